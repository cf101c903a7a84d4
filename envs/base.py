"""The contract every environment keeps: pure functions of explicit state.

It is the contract of gymnax 1.0 (Lange 2022, github.com/RobertTLange/gymnax), kept
without importing gymnax. An environment holds structure (sizes, kinds of
observation); its `EnvParams` hold numbers, which may be traced, vmapped and
differentiated; its `EnvState` is what one episode carries from step to step.

Everything here is for one environment. A batch is the caller's `jax.vmap`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import jax
import numpy as np
from flax import struct

from .spaces import Space

Array = jax.Array
Obs = Any
Info = dict[str, Any]
Step = tuple[Obs, Any, Array, Array, Info]
"""What `step_env` returns: `obs, state, reward, terminated, info`."""
STEP = "obs, state, reward, terminated, info"
AutoResetStep = tuple[Obs, Any, Array, Array, Array, Info]
"""What `step` returns: `obs, state, reward, terminated, truncated, info`."""
# The entry of `info` with the reward before a `RewardWrapper` has changed it.
RAW_REWARD = "raw_reward"
# The most steps of an evaluation episode where nothing else bounds it: those of Atari
# (Machado et al. 2018), 30 minutes of play with an action in every fourth frame.
EVALUATION_STEPS = 27_000


@struct.dataclass
class EnvState:
    """The state that an episode carries from step to step.

    Attributes:
        time: `[]` int32, number of steps taken since the reset.
    """

    time: Array


@struct.dataclass
class EnvParams:
    """The numbers of an environment; every field is a leaf that can be vmapped.

    Attributes:
        max_steps_in_episode: Steps after which an episode is truncated.
    """

    max_steps_in_episode: int | Array = 1_000


StateT = TypeVar("StateT", bound=EnvState)
ParamsT = TypeVar("ParamsT", bound=EnvParams)


class StepError(ValueError):
    """An environment's functions return something else than the contract says."""


def unpacked(env: Any, found: Any, function: str, names: str) -> Any:
    """Return what a function of an environment returned, as many values as expected.

    Args:
        env: The environment, for the sentence.
        found: What its function returned.
        function: Name of the function.
        names: Names of the values that are expected, such as `obs, state`.

    Raises:
        StepError: it is something else.
    """
    what = "one array" if hasattr(found, "dtype") else f"a {type(found).__name__}"
    if isinstance(found, tuple | list):
        if len(found) == len(names.split(", ")):
            return found
        what = f"{len(found)} values"
    raise StepError(f"{env.name}: {function} returns {what}, expected {names}.")


class Environment(Generic[StateT, ParamsT]):
    """A Markov decision process as pure functions.

    Subclasses write `default_params`, `reset_env`, `step_env`, `action_space` and
    `observation_space`; `reset` and `step` follow. Nothing is jitted here: the caller
    compiles the whole loop.

    Attributes:
        stochastic_transitions: Whether `step_env` uses its key. Where it does not, a
            step spends one random split less.
        steps_without_reset: Whether `step_env` works. Only adapted wrappers, which
            reset by themselves, say no.
        terminal_limit: Whether the time limit is meant to terminate an episode, as
            where `TerminalLimit` is around it: the time that is left is the task's.
        on_host: Whether it has no pure functions and is stepped from Python, as
            Gymnasium's environments are.
        shapes_rewards: Whether it pays other rewards than the game, which `info` has
            then: see `wrappers.RewardWrapper`.
        made_as: Name and options of `make`, of an adapter that it has made: they say
            all of what the adapter holds in `wrapped`.
        title: The name it is registered under; empty for that of its class.
    """

    stochastic_transitions: ClassVar[bool] = True
    steps_without_reset: ClassVar[bool] = True
    terminal_limit: ClassVar[bool] = False
    on_host: ClassVar[bool] = False
    shapes_rewards: ClassVar[bool] = False
    made_as: Mapping[str, Any] = MappingProxyType({})
    title: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The name it is registered under, or its class name."""
        return self.title or type(self).__name__

    @property
    def note(self) -> str:
        """A sentence about what its returns do not compare with; mostly empty."""
        return ""

    @property
    def time_per_step(self) -> int:
        """The time that a step adds to the state's `time`; 1 unless it is repeated."""
        return 1

    @property
    def resets_by_itself(self) -> bool:
        """True if `step` alone is the environment, and `step_env` does not follow it.

        That is so of adapted wrappers, and where a subclass has a `step` of its own.
        """
        own = type(self).step is not Environment.step
        return own or not self.steps_without_reset

    @property
    def keeps_last_state(self) -> bool:
        """True if `outcome` returns the state in which an episode ended.

        Where not, nobody but the environment ever sees that state.
        """
        return not self.resets_by_itself

    @property
    def has_picture(self) -> bool:
        """True if `render` is written for the environment."""
        return type(self).render is not Environment.render

    @property
    def has_levels(self) -> bool:
        """True if `draw_level` is written for the environment."""
        return type(self).draw_level is not Environment.draw_level

    @property
    def default_params(self) -> ParamsT:
        """The numbers of the standard task."""
        raise NotImplementedError

    @property
    def num_actions(self) -> int:
        """Number of actions if they are discrete, else the size of an action."""
        space = self.action_space(self.default_params)
        return getattr(space, "n", None) or int(np.prod(space.shape))

    def reset(self, key: Array, params: ParamsT | None = None) -> tuple[Obs, StateT]:
        """Start an episode.

        Args:
            key: Random key, consumed.
            params: The numbers; `default_params` where not given.

        Returns:
            The first observation and the state.
        """
        return self.reset_env(key, self.default_params if params is None else params)

    def reset_again(
        self, key: Array, state: StateT, params: ParamsT
    ) -> tuple[Obs, StateT]:
        """Start another episode of an environment: as `reset`, unless something stays.

        Args:
            key: Random key, consumed.
            state: State of an episode before, of which that is kept which stays.
            params: The numbers.
        """
        return self.reset(key, params)

    def step(
        self, key: Array, state: StateT, action: Array, params: ParamsT | None = None
    ) -> AutoResetStep:
        """Take one step, and start a fresh episode if it ended the current one.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: A member of `action_space`.
            params: The numbers; `default_params` where not given.

        Returns:
            `obs, state, reward, terminated, truncated, info`. Where the episode ended,
            `obs` and `state` are the next episode's first ones. The flags are never
            both true: an episode that ends by itself on its last step terminated.
            `info` has `terminated`, `truncated` and `final_observation`, the
            observation that the action led to, before any reset.
        """
        if params is None:
            params = self.default_params
        key_step = key_reset = key  # One use each: an unused key needs no split.
        if self.stochastic_transitions:
            key_step, key_reset = jax.random.split(key)

        taken = self.step_env(key_step, state, action, params)
        final_obs, last_state, reward, terminated, info = unpacked(
            self, taken, "step_env", STEP
        )
        if isinstance(terminated, bool):  # ~False is -1 in Python.
            raise StepError(
                f"{self.name}: step_env returns terminated as a Python bool, expected "
                "bool[] of JAX, such as jnp.asarray(terminated, bool)."
            )
        truncated = self.is_truncated(last_state, params) & ~terminated
        first_obs, first_state = self.reset_env(key_reset, params)
        obs, next_state = select_tree(
            terminated | truncated, (first_obs, first_state), (final_obs, last_state)
        )
        info = {
            **info,
            "terminated": terminated,
            "truncated": truncated,
            "final_observation": final_obs,
        }
        return obs, next_state, reward, terminated, truncated, info

    def start(self, num_envs: int) -> Any:
        """Make environments that are stepped from Python, where it is `on_host`."""
        raise NotImplementedError

    def reset_env(self, key: Array, params: ParamsT) -> tuple[Obs, StateT]:
        """Start an episode; `reset` with explicit numbers. The key is consumed."""
        raise NotImplementedError

    def step_env(
        self, key: Array, state: StateT, action: Array, params: ParamsT
    ) -> Step:
        """Take one step without any reset.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.

        Returns:
            `obs, state, reward, terminated, info`: reward float32 `[]`, terminated
            bool `[]`. The time limit is not its business: see `is_truncated`.
        """
        raise NotImplementedError

    def is_truncated(self, state: StateT, params: ParamsT) -> Array:
        """Return whether the time limit is reached, bool `[]`.

        It does not look at termination; whoever combines the two lets `terminated`
        win, as `step` does.
        """
        if not hasattr(params, "max_steps_in_episode"):
            raise StepError(
                f"{self.name}: its {type(params).__name__} has no "
                "max_steps_in_episode, which is_truncated compares with state.time."
            )
        return state.time >= params.max_steps_in_episode

    def action_space(self, params: ParamsT | None = None) -> Space:
        """Return what `step` accepts."""
        raise NotImplementedError

    def observation_space(self, params: ParamsT | None = None) -> Space:
        """Return what `reset` and `step` return."""
        raise NotImplementedError

    def draw_level(self, key: Array, params: ParamsT) -> ParamsT:
        """Draw a level: `params` with the numbers that a level consists of drawn anew.

        Args:
            key: Random key, consumed.
            params: Numbers of the environment; those that belong to no level stay.

        Raises:
            NotImplementedError: this environment has no levels.
        """
        raise NotImplementedError(f"{self.name} has no levels to draw.")

    def render(self, state: StateT, params: ParamsT | None = None) -> np.ndarray:
        """Draw one state, uint8 `[height, width, 3]` on the host.

        Raises:
            NotImplementedError: this environment has no picture.
        """
        raise NotImplementedError(f"{self.name} has no picture to render.")


def outcome(
    env: Environment, key: Array, state: Any, action: Any, params: Any
) -> AutoResetStep:
    """Take one step of one environment, and leave an episode that ended as it ended.

    Nothing that the environment returns is cast, and both flags may be true. Where it
    does not keep the last state, that of the next episode is returned with the last
    observation of the one before: see `keeps_last_state`.

    Args:
        env: Environment to step.
        key: Random key, consumed.
        state: State of the running episode.
        action: Action of the environment.
        params: Numbers of the environment.
    """
    if not env.keeps_last_state:
        _, state, reward, terminated, truncated, info = env.step(
            key, state, action, params
        )
        obs = info["final_observation"]
        return obs, state, reward, terminated, truncated, info
    if env.resets_by_itself and env.stochastic_transitions:
        key = jax.random.split(key)[0]  # As its `step` does.
    taken = env.step_env(key, state, action, params)
    obs, state, reward, terminated, info = unpacked(env, taken, "step_env", STEP)
    return obs, state, reward, terminated, env.is_truncated(state, params), info


def is_env(value: Any) -> bool:
    """Return whether a value is an environment, and not a class of them."""
    return _steps(value) and not isinstance(value, type)


def is_env_class(value: Any) -> bool:
    """Return whether a value is a class of environments."""
    return _steps(value) and isinstance(value, type)


def _steps(value: Any) -> bool:
    return hasattr(value, "step") and hasattr(value, "reset")


def select_tree(condition: Array, on_true: Any, on_false: Any) -> Any:
    """Choose between two pytrees of the same structure by one boolean `[]`.

    Args:
        condition: `[]` bool, which of the two is taken.
        on_true: Pytree that is returned where the condition holds.
        on_false: Pytree that is returned otherwise.
    """
    return jax.tree.map(lambda x, y: jax.lax.select(condition, x, y), on_true, on_false)
