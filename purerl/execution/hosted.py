"""Agents that learn in environments on the host: one loop for every algorithm."""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.accelerator.kernels import forget
from purerl.acting.evaluate import play_episodes
from purerl.acting.policy import recurrence_of
from purerl.acting.rollout import EnvCarry, Episodes, Played, Transition
from purerl.config import ConfigError
from purerl.envs.adapters.host import HostEnvs, finite_rows
from purerl.execution.curves import FEW_BAD, PARAMETERS_FINITE, Segment, with_marks
from purerl.execution.memory import least_bytes, require_agent
from purerl.execution.programs import has_few_bad
from purerl.keys import evaluation_key, init_keys
from purerl.scale.devices import compiler_options, make_workers
from purerl.scale.host import to_device, to_host
from purerl.train import Bound, parameters_finite
from purerl.types import Array, HostMetrics, Metrics, PyTree

# The bytes of the largest state that is kept while an update is made of it. A replay of
# pictures is larger, and every update would copy it.
_MOST_KEPT = 2**26


class HostedProgram:
    """The compiled pieces of an update, shared by all agents.

    Args:
        bound: Config, environment and plan.

    Attributes:
        bound: Config, environment and plan.
        num_rounds: R, how often an update acts and learns.
        num_steps: T, steps of every environment in a round.
        keeps_states: Whether an update leaves the state as it was that it began with;
            not where it is so large that there is no room or time for two.
        compile_seconds: Seconds spent tracing and compiling so far.

    Raises:
        ConfigError: the algorithm has no pieces, or an agent does not fit the memory.
    """

    def __init__(self, bound: Bound) -> None:
        self.bound, self.compile_seconds = bound, 0.0
        algorithm = bound.algorithm(bound.config)
        if algorithm.hosted is None:
            raise ConfigError(
                f"{type(bound.config).__name__} cannot be trained in {bound.env.name}, "
                "which is stepped on the host: its Algorithm has no field hosted, the "
                "update in pieces; see purerl.types.Hosted."
            )
        hosted, self._recurrence = algorithm.hosted, recurrence_of(algorithm)
        sizes = hosted(jnp.int32(0))
        self.num_rounds, self.num_steps = sizes.num_rounds, sizes.num_steps
        shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
        require_agent(shapes, 1, make_workers()[0])
        self.keeps_states = least_bytes(shapes) <= _MOST_KEPT

        def finish(update: Array, work: PyTree, reports: PyTree) -> Any:
            return hosted(update).finish(work, reports)

        keeps = None if self.keeps_states else 0
        self.init = self._compiled(algorithm.init)
        self.restart = self._compiled(lambda s, x: hosted(s.update).restart(s, x))
        self.begin = self._compiled(lambda s: hosted(s.update).begin(s), keeps)
        self.act = self._compiled(_act(hosted))
        self.learn = self._compiled(_learn(hosted), donate=1)
        self.finish = self._compiled(finish, donate=1)
        self.policy = self._compiled(self._recurrence.act)
        self._seeds = self._compiled(_seeds)

    def _compiled(self, function: Callable, donate: int | None = None) -> Callable:
        """A function that is compiled when it is first called; it may consume one."""
        given = () if donate is None else (donate,)
        programs: list[Any] = []

        def call(*args: Any) -> Any:
            if not programs:
                began = time.perf_counter()
                with warnings.catch_warnings():
                    # Networks may come out in other shapes; a buffer, which is large,
                    # does not.
                    unused = "Some donated buffers were not usable"
                    warnings.filterwarnings("ignore", unused)
                    lowered = jax.jit(function, donate_argnums=given).lower(*args)
                    programs.append(lowered.compile(compiler_options()))
                self.compile_seconds += time.perf_counter() - began
            return programs[0](*args)

        return call

    def start_seed(self, state: PyTree) -> int:
        """Return the seed of environments with which an agent begins, or goes on."""
        return int(self._seeds(state)[0])

    def evaluate(self, state: PyTree, envs: HostEnvs) -> HostMetrics:
        """Play episodes of the deterministic policy of one agent.

        Args:
            state: State of the agent.
            envs: `eval_episodes` environments for evaluations.
        """
        plan = self.bound.plan
        played = play_episodes(
            envs,
            partial(self.policy, state),
            self._recurrence.init((envs.num_envs,)),
            int(self._seeds(state)[1]),
            plan.eval_max_steps,
        )
        steps = int(state.update) * plan.steps_per_update
        return {"env_steps": np.asarray(steps, np.uint32), **played}


def _act(hosted: Any) -> Callable:
    """The policy, with the noise of a step among that of the update."""

    def act(
        update: Array,
        work: PyTree,
        noise: PyTree,
        position: tuple[Array, Array],
        obs: PyTree,
        memory: PyTree,
        done: Array,
    ) -> tuple:
        now = jax.tree.map(lambda x: x[position], noise)
        memory = forget(memory, done)
        (raw, outputs, action), memory = hosted(update).act(work, obs, memory, now)
        return raw, outputs, action, memory

    return act


def _learn(hosted: Any) -> Callable:
    """Return the compiled function that learns from the steps of a round."""

    def learn(
        update: Array,
        work: PyTree,
        number: Array,
        envs: EnvCarry,
        transitions: Transition,
        memories: PyTree,
        running: tuple[Array, Array],
    ) -> tuple:
        terminated, truncated = transitions.terminated, transitions.truncated
        last = jax.tree.map(lambda x: x[-1], memories)
        played = Played(
            envs,
            forget(last, (terminated | truncated)[-1]),
            transitions,
            memories,
            Episodes(terminated ^ truncated, *running, envs.bad),
        )
        return hosted(update).learn(work, number, played)

    return learn


def _seeds(state: Any) -> tuple[Array, ...]:
    """The seeds of environments that an agent begins with, and of an evaluation."""
    start = jax.random.fold_in(init_keys(state.key, 3)[2], state.update)
    # Not all environments take seeds of more than 31 bits.
    return tuple(
        jax.random.bits(key, (), jnp.uint32) >> 1
        for key in (start, evaluation_key(state))
    )


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
        failed: The agent by its number, and the update, in which an exception was
            raised; the states are then those of the last segment that all completed,
            where the program keeps them (`HostedProgram.keeps_states`).
    """

    def __init__(self, program: HostedProgram, keys: Array, length: int) -> None:
        self.program, self._keys, self._length = program, keys, length
        self._compiled_before = program.compile_seconds
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

    @property
    def compile_seconds(self) -> float:
        """Seconds spent compiling for this cohort."""
        return self.program.compile_seconds - self._compiled_before

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
        checks = {PARAMETERS_FINITE: finite, FEW_BAD: few}
        return with_marks(bound.config, metrics) | checks, evaluation

    def _update(self, member: int) -> Metrics:
        """Make one update of an agent."""
        program, envs = self.program, self._envs[member]
        state = self._states[member]
        update = np.asarray(state.update)
        carry = jax.device_get(state.envs)
        work, memory, noise = program.begin(state)
        reports = []
        for number in map(np.int32, range(program.num_rounds)):

            def act(step: Any, *seen: Any, round_=number, work_=work) -> Any:
                return program.act(update, work_, noise, (round_, step), *seen)

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
        step: Any = envs.step(action)
        returns = carry.episode_return + step.reward
        begins_badly = ~np.isfinite(returns)
        running = np.flatnonzero(begins_badly & ~(step.terminated | step.truncated))
        if len(running):
            step = step._replace(obs=envs.restart(step.obs, running))
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
        obs = step.obs
        if not is_finite.all():
            obs = jax.tree.map(
                lambda x: np.where(np.isfinite(x), x, np.zeros_like(x)), obs
            )
        carry = EnvCarry((), obs, kept, counted, carry.bad + (terminated & truncated))
    return carry, forget(memory, jnp.asarray(done)), _stack(jax.device_get(rows))


def _stack(rows: list) -> Any:
    """Pytrees of the host as one, with an axis in front."""
    return jax.tree.map(lambda *x: np.stack(x), *rows)
