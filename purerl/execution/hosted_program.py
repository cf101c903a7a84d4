"""The compiled pieces of an update, for agents whose environments are on the host."""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.acting.evaluate import play_episodes
from purerl.acting.policy import recurrence_of
from purerl.acting.rollout import EnvCarry, Episodes, Played
from purerl.config import ConfigError
from purerl.envs.adapters.host import HostEnvs
from purerl.execution.memory import least_bytes, require_agent
from purerl.keys import evaluation_key, init_keys
from purerl.networks.recurrent import forget
from purerl.scale.devices import compiler_options, make_workers
from purerl.train import Bound
from purerl.types import Array, HostMetrics, PyTree, Transition

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
        compile_seconds: Seconds spent tracing and compiling.

    Raises:
        ConfigError: the algorithm has no pieces, or an agent does not fit the memory.
    """

    def __init__(self, bound: Bound) -> None:
        began = time.perf_counter()
        self.bound = bound
        algorithm = bound.algorithm(bound.config)
        if algorithm.hosted is None:
            raise ConfigError(
                f"{type(bound.config).__name__} cannot be trained in {bound.env.name}, "
                "which is stepped on the host: its Algorithm has no field hosted, the "
                "update in pieces; see purerl.types.Hosted."
            )
        self._algorithm, self._make = algorithm, algorithm.hosted
        sizes = algorithm.hosted(jnp.int32(0))
        self.num_rounds, self.num_steps = sizes.num_rounds, sizes.num_steps
        self._recurrence = recurrence_of(algorithm)
        require_agent(self.member_shapes(), 1, make_workers()[0])
        self.keeps_states = least_bytes(self.member_shapes()) <= _MOST_KEPT
        self._compile()
        self.compile_seconds = time.perf_counter() - began

    def _compile(self) -> None:
        """Compile all pieces for the shapes that they have."""
        config, hosted = self.bound.config, self._make
        key = jax.random.key(0)
        self.init = _compiled(self._algorithm.init, key)
        state = jax.eval_shape(self._algorithm.init, key)
        obs, update = state.envs.obs, state.update
        self.restart = _compiled(_restart(hosted), state, obs)
        begin = _begin(hosted)
        self.begin = _compiled(begin, state, donate=None if self.keeps_states else 0)
        work, memory, noise = jax.eval_shape(begin, state)
        number, done = np.int32(0), jax.ShapeDtypeStruct((config.num_envs,), bool)
        acting = (update, work, noise, (number, number), obs, memory, done)
        self.act = _compiled(_act(hosted), *acting)
        raw, outputs, _, memory = jax.eval_shape(_act(hosted), *acting)
        played = self._played_shapes(state.envs, (obs, raw, outputs, memory))
        learning = (update, work, number, *played)
        self.learn = _compiled(_learn(hosted), *learning, donate=1)
        _, report = jax.eval_shape(_learn(hosted), *learning)
        reports = _stacked_shapes(report, self.num_rounds)
        self.finish = _compiled(_finish(hosted), update, work, reports, donate=1)
        self._seeds = _compiled(_seeds, state)
        lanes = config.eval_episodes
        seen = _stacked_shapes(jax.tree.map(_one, obs), lanes)
        blank = jax.eval_shape(partial(self._recurrence.init, (lanes,)))
        self.policy = _compiled(self._recurrence.act, state, seen, blank)

    def _played_shapes(self, envs: Any, chosen: tuple) -> tuple:
        """Shapes of what `learn` gets of the steps of a round."""
        obs, raw, outputs, memory = _stacked_shapes(chosen, self.num_steps)
        shape = (self.num_steps, self.bound.config.num_envs)
        number: Any = jax.ShapeDtypeStruct(shape, np.float32)
        flag: Any = jax.ShapeDtypeStruct(shape, bool)
        scalar: Any = jax.ShapeDtypeStruct(shape, np.int32)
        transitions = Transition(obs, raw, outputs, number, obs, flag, flag)
        return envs, transitions, memory, (number, scalar)

    def member_shapes(self) -> PyTree:
        """Return the shapes of one agent's state."""
        return jax.eval_shape(self._algorithm.init, jax.random.key(0))

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


def _begin(hosted: Any) -> Callable:
    return lambda state: hosted(state.update).begin(state)


def _restart(hosted: Any) -> Callable:
    return lambda state, obs: hosted(state.update).restart(state, obs)


def _finish(hosted: Any) -> Callable:
    return lambda update, work, reports: hosted(update).finish(work, reports)


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


def _compiled(function: Callable, *args: Any, donate: int | None = None) -> Callable:
    """A function compiled for arguments of some shapes, one of which it consumes."""
    given = () if donate is None else (donate,)
    lowered = jax.jit(function, donate_argnums=given).lower
    with warnings.catch_warnings():
        # Networks may come out in other shapes; a buffer, which is large, does not.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        return lowered(*args).compile(compiler_options())


def _stacked_shapes(tree: PyTree, count: int) -> PyTree:
    """Shapes of `count` of each."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), tree
    )


def _one(x: Any) -> Any:
    """The shape of one of a batch."""
    return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
