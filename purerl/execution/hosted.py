"""Agents that learn in environments on the host: one loop for every algorithm.

The compiled pieces of an update (`types.Hosted`) and the environments take turns:
actions are chosen for all environments of an agent in one call, the environments are
stepped, and what they did is learned from. Agents take turns too, an update after the
other. To what drives a run, all this is a cohort.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.acting.rollout import EnvCarry
from purerl.config import ConfigError
from purerl.envs.adapters.host import HostEnvs, finite_rows
from purerl.execution.cohort import Segment
from purerl.execution.hosted_program import HostedProgram
from purerl.execution.programs import has_few_bad
from purerl.execution.reduce import FEW_BAD, PARAMETERS_FINITE
from purerl.learning.diagnostics import parameters_finite
from purerl.networks.recurrent import forget
from purerl.scale.host import to_device, to_host
from purerl.types import Array, HostMetrics, Metrics, PyTree, Transition


class HostedCohort:
    """Agents with environments on the host, which are trained in turns.

    It has what a run asks of a `Cohort`.

    Args:
        program: The compiled pieces.
        keys: Random keys of the agents, `[N]`.
        length: Updates of a segment, K.

    Raises:
        ConfigError: the environments cannot be made.

    Attributes:
        program: The compiled pieces.
        update: Updates that all agents have done.
        compile_seconds: Seconds spent compiling.
        failed: The agent by its number, and the update, in which an exception was
            raised; the states are then those of the last segment that all completed,
            where the program keeps them (`HostedProgram.keeps_states`).
    """

    def __init__(self, program: HostedProgram, keys: Array, length: int) -> None:
        self.program, self._keys, self._length = program, keys, length
        self.compile_seconds = program.compile_seconds
        self.update = 0
        self.failed: tuple[int, int] | None = None
        self._states: list[PyTree] = []
        env = program.bound.env
        num_envs = program.bound.config.num_envs
        try:
            self._envs: list[HostEnvs] = [env.start(num_envs) for _ in range(len(keys))]
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._evaluation: HostEnvs | None = None

    def init(self) -> None:
        """Give every agent its initial state, and begin episodes."""
        self._begin([self.program.init(key) for key in self._keys])

    def restore(self, states: PyTree, update: int) -> None:
        """Go on with states from the host, in new episodes.

        Args:
            states: States on the host as of `gather`, leaves `[N, ...]`.
            update: Updates that they have seen.
        """
        self.update, agents = update, to_device(states)
        members = range(len(self._keys))
        self._begin([jax.tree.map(lambda x, i=i: x[i], agents) for i in members])

    def _begin(self, states: list[PyTree]) -> None:
        """Begin an episode in every environment."""
        program = self.program
        self._states = [
            program.restart(state, envs.reset(program.start_seed(state)))
            for state, envs in zip(states, self._envs, strict=True)
        ]

    def gather(self) -> PyTree:
        """Return the agents' states on the host, leaves `[N, ...]`."""
        hosts = [to_host(state) for state in self._states]
        return jax.tree.map(lambda *x: np.stack(x), *hosts)

    def segments(
        self, until: int, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[Segment]:
        """Train up to an update, segment by segment.

        Args:
            until: The update to reach.
            is_stopped: A function that is asked before every segment whether to train
                no further.
        """
        total = self.program.bound.plan.num_updates
        while self.update < until and not is_stopped():
            first = self.update
            ran = min(self._length, total - first)
            before = list(self._states)
            try:
                results = [self._advance(i, first, ran) for i in range(len(self._keys))]
            except Exception:
                self._states = before
                raise
            metrics, evaluation = jax.tree.map(lambda *x: np.stack(x), *results)
            self.update = first + ran
            yield Segment(first, ran, metrics, evaluation)

    def close(self) -> None:
        """End all environments."""
        for envs in (*self._envs, *([self._evaluation] if self._evaluation else [])):
            envs.close()

    def _advance(
        self, member: int, first: int, count: int
    ) -> tuple[HostMetrics, HostMetrics]:
        """Train one agent for some updates, and evaluate it where that is due."""
        rows: list[Metrics] = []
        evaluations: list[HostMetrics] = []
        for done in range(first + 1, first + count + 1):
            self.failed = (member, done)  # unless it comes to an end
            rows.append(self._update(member))
            if done in self.program.bound.plan.evaluate_after:
                evaluations.append(self._evaluate(member))
        finite = np.ones(count, bool)
        finite[-1] = bool(parameters_finite(self._states[member]))
        self.failed = None
        bound, updates = self.program.bound, np.arange(first, first + count)
        moving = jax.device_get(bound.moving(bound.config, jnp.asarray(updates)))
        metrics = moving | _stack(jax.device_get(rows))
        evaluation = _stack(evaluations) if evaluations else {}
        few = has_few_bad(self.program.bound, metrics)
        return metrics | {PARAMETERS_FINITE: finite, FEW_BAD: few}, evaluation

    def _update(self, member: int) -> Metrics:
        """Make one update of an agent."""
        program, envs = self.program, self._envs[member]
        state = self._states[member]
        update = np.asarray(state.update)
        carry = jax.device_get(state.envs)
        work, memory, noise = program.begin(state)
        reports = []
        for number in map(np.int32, range(program.num_rounds)):
            act = partial(_act_at, program, (update, work, noise), number)
            carry, memory, steps = play_steps(
                envs, act, carry, memory, program.num_steps
            )
            work, report = program.learn(update, work, number, carry, *steps)
            reports.append(report)
        stacked = _stack(jax.device_get(reports))
        self._states[member], metrics = program.finish(update, work, stacked)
        return metrics

    def _evaluate(self, member: int) -> HostMetrics:
        """Play the deterministic policy in environments of its own."""
        program = self.program
        envs, env = self._evaluation, program.bound.env
        if envs is None:
            envs = self._evaluation = env.start(program.bound.config.eval_episodes)
        return program.evaluate(self._states[member], envs)


def _act_at(
    program: HostedProgram, parts: tuple, number: Any, step: Any, *seen: Any
) -> Any:
    """Choose the actions of a step of a round; see `HostedProgram.act`."""
    return program.act(*parts, (number, step), *seen)


def play_steps(
    envs: HostEnvs,
    act: Callable[..., Any],
    carry: EnvCarry,
    memory: PyTree,
    num_steps: int,
) -> tuple[EnvCarry, PyTree, tuple]:
    """Step environments with a compiled policy: `rollout.unroll` on the host.

    Args:
        envs: The environments.
        act: `(number of the step, obs, memory, done) -> (raw action, outputs, env
            action, memory)`, which forgets the memory of episodes that are done.
        carry: The environments before the first step, arrays of the host.
        memory: Memory of the running episodes, `[B, ...]`.
        num_steps: Number T of steps.

    Returns:
        The environments after the steps; the memory, zero where an episode ended; and
        transitions, memories, and returns and lengths of the running episodes, `[T, B,
        ...]` each.
    """
    rows = []
    done = np.zeros(envs.num_envs, bool)
    for number in map(np.int32, range(num_steps)):
        raw, outputs, action, memory = act(number, carry.obs, memory, done)
        step = envs.step(action)
        returns = carry.episode_return + step.reward
        begins_badly = ~np.isfinite(returns)
        terminated = step.terminated | begins_badly
        truncated = step.truncated | begins_badly
        transition = Transition(
            obs=carry.obs,
            action=raw,
            log_prob=outputs,
            reward=step.reward,
            next_obs=step.next_obs,
            terminated=terminated,
            truncated=truncated,
        )
        lengths = carry.episode_length + np.int32(1)
        rows.append((transition, memory, (returns, lengths)))
        done = terminated | truncated
        is_finite = finite_rows(step.obs, envs.num_envs)
        begun = np.where(is_finite, np.float32(0), np.float32(np.nan))
        kept: Any = np.where(done, begun, returns)
        counted: Any = np.where(done, np.int32(0), lengths)
        obs = step.obs if is_finite.all() else jax.tree.map(_as_finite, step.obs)
        carry = EnvCarry((), obs, kept, counted, carry.bad + (terminated & truncated))
    return carry, forget(memory, jnp.asarray(done)), _stack(jax.device_get(rows))


def _as_finite(x: np.ndarray) -> np.ndarray:
    """An array with 0 in the place of numbers that are not finite."""
    return np.where(np.isfinite(x), x, np.zeros_like(x))


def _stack(rows: list) -> Any:
    """Pytrees of the host as one, with an axis in front."""
    return jax.tree.map(lambda *x: np.stack(x), *rows)
