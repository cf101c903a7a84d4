"""The base of all wrappers: an environment inside, and numbers of their own."""

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from ..adapters.adapt import adapt
from ..adapters.adapted import with_numbers
from ..base import Array, AutoResetStep, Environment, Obs, Step
from ..spaces import Box, Space

MASK = "action_mask"  # Key of an observation that is for actions, and is not seen.


@struct.dataclass
class WrapperState:
    """The state of the environment inside, beside what a wrapper carries itself.

    Attributes:
        inner: State of the environment inside.
    """

    inner: Any

    @property
    def time(self) -> Array:
        """Steps that the environment inside has taken since the reset, `[]` int32."""
        return self.inner.time


def _of_the_inside(name: str) -> Any:
    """A property of a wrapper that is that of the environment inside."""
    return property(attrgetter(f"env.{name}"))


@dataclasses.dataclass(unsafe_hash=True)
class Wrapper(Environment[Any, Any]):
    """An environment around another one; whatever is not overridden is the other's.

    A subclass is a dataclass whose first field is the environment inside and whose
    other fields are structure or defaults of its numbers. These stand beside those of
    the environment inside, under the names that `numbers` returns.

    Attributes:
        env: The environment inside.
        has_state: Whether the state is a `WrapperState`, not that of the environment
            inside.
    """

    env: Environment[Any, Any]
    has_state: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the environment inside, and then what a subclass asks of it.

        Raises:
            TypeError: `env` does not keep the contract.
            ValueError: it only resets by itself, or has a number of the same name.
        """
        self.env = adapt(self.env)
        who, inside = type(self).__name__, self.env
        if inside.resets_by_itself:
            raise ValueError(
                f"{who} needs reset_env and step_env, but {inside.name} only resets by "
                "itself: wrap the bare environment."
            )
        self.check()
        own = self.numbers()
        taken = [name for name in own if hasattr(inside.default_params, name)]
        if taken:
            raise ValueError(
                f"{inside.name} has a parameter {taken[0]} already, which {who} would "
                f"replace: use one {who} around an environment."
            )
        self.check_numbers(own)

    def check(self) -> None:
        """Refuse an environment or a field that cannot work; asked when it is made.

        Raises:
            ValueError: naming what does not fit.
        """

    def numbers(self) -> dict[str, Any]:
        """Return names and defaults of the wrapper's own numbers."""
        return {}

    def check_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Refuse values of the wrapper's own numbers that cannot work.

        Raises:
            ValueError: naming the number, its value and what it must be.
        """

    name = _of_the_inside("name")
    note = _of_the_inside("note")
    stochastic_transitions = _of_the_inside("stochastic_transitions")
    terminal_limit = _of_the_inside("terminal_limit")
    time_per_step = _of_the_inside("time_per_step")
    has_picture = _of_the_inside("has_picture")
    has_levels = _of_the_inside("has_levels")
    shapes_rewards = _of_the_inside("shapes_rewards")

    @property
    def default_params(self) -> Any:
        """Those of the environment inside, and the wrapper's own numbers."""
        inner, own = self.env.default_params, self.numbers()
        return with_numbers(inner, type(self).__name__, own) if own else inner

    def inner_state(self, state: Any) -> Any:
        """Return the state of the environment inside."""
        return state.inner if self.has_state else state

    def inner_params(self, state: Any, params: Any) -> Any:
        """Return the numbers that the environment inside has in this episode."""
        return params

    def draw_level(self, key: Array, params: Any) -> Any:
        """Draw a level of the environment inside; the key is consumed."""
        return self.env.draw_level(key, params)

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, Any]:
        """Start an episode of the environment inside; the key is consumed."""
        return self.env.reset_env(key, params)

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take a step of the environment inside, with its numbers of this episode."""
        inner, numbers = self.inner_state(state), self.inner_params(state, params)
        obs, inner, *rest = self.env.step_env(key, inner, action, numbers)
        after = state.replace(inner=inner) if self.has_state else inner
        return obs, after, *rest  # type: ignore[return-value]

    def is_truncated(self, state: Any, params: Any) -> Array:
        """Return whether the time limit of the environment inside is reached."""
        inner = self.inner_params(state, params)
        return self.env.is_truncated(self.inner_state(state), inner)

    def action_space(self, params: Any = None) -> Space:
        """Return the action space of the environment inside."""
        return self.env.action_space(self._params(params))

    def observation_space(self, params: Any = None) -> Space:
        """Return the observation space of the environment inside."""
        return self.env.observation_space(self._params(params))

    def render(self, state: Any, params: Any = None) -> np.ndarray:
        """Draw the environment inside, uint8 `[height, width, 3]`."""
        inner = self.inner_params(state, self._params(params))
        return self.env.render(self.inner_state(state), inner)

    def _params(self, params: Any) -> Any:
        return self.default_params if params is None else params

    def _step_with_the_same_numbers(
        self, key: Array, state: Any, action: Array, params: Any = None
    ) -> AutoResetStep:
        """Take one step; where it ended the episode, the next has its numbers."""
        params = self._params(params)
        inner, numbers = self.inner_state(state), self.inner_params(state, params)
        obs, inner, *rest = self.env.step(key, inner, action, numbers)
        return obs, state.replace(inner=inner), *rest  # type: ignore[return-value]

    def _reset_with_the_same_numbers(
        self, key: Array, state: Any, params: Any
    ) -> tuple[Obs, Any]:
        """Start an episode with the numbers of the one before; the key is consumed."""
        obs, inner = self.env.reset_env(key, self.inner_params(state, params))
        return obs, state.replace(inner=inner)


@dataclasses.dataclass(unsafe_hash=True)
class ObservationWrapper(Wrapper):
    """A wrapper that shows something else; states and rewards are untouched."""

    def check(self) -> None:
        """Refuse observations for which `observation_space` raises a ValueError."""
        self.observation_space()

    def observe(self, obs: Obs, state: Any, params: Any) -> Obs:
        """Return what is shown in place of an observation of the environment inside.

        Args:
            obs: Observation of the environment inside.
            state: State that it belongs to.
        """
        raise NotImplementedError

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, Any]:
        """Start an episode; the key is consumed."""
        obs, state = self.env.reset_env(key, params)
        return self.observe(obs, state, params), state

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take one step."""
        obs, state, *rest = self.env.step_env(key, state, action, params)
        return self.observe(obs, state, params), state, *rest  # type: ignore[return-value]


def innermost(env: Environment) -> Environment:
    """Return the environment inside all wrappers."""
    while isinstance(env, Wrapper):
        env = env.env
    return env


def unwrap(env: Environment, params: Any, state: Any) -> tuple[Environment, Any, Any]:
    """Take all wrappers off an environment and off its state.

    Args:
        env: The environment, with its wrappers.
        params: Numbers of the environment, distributions among them.
        state: State of one environment.

    Returns:
        The environment inside, its numbers in this episode, and its state.
    """
    while isinstance(env, Wrapper):
        params = env.inner_params(state, params)
        state, env = env.inner_state(state), env.env
    return env, params, state


def box_of(env: Environment, params: Any, who: str) -> Box:
    """Return the observation space of an environment if it is a box.

    Args:
        env: The environment.
        who: Name of the wrapper that asks.

    Raises:
        ValueError: it is not.
    """
    space = env.observation_space(params)
    if not isinstance(space, Box):
        raise ValueError(
            f"{who} takes observations that are arrays, but {env.name} observes "
            f"{space}; OneHotObservation makes arrays of discrete ones."
        )
    return space


def vector_of(env: Environment, params: Any, who: str) -> Box:
    """Return the observation space of an environment if it is a vector of floats.

    Raises:
        ValueError: it is not.
    """
    box = box_of(env, params, who)
    if len(box.shape) == 1 and np.issubdtype(box.dtype, np.floating):
        return box
    raise ValueError(
        f"{who} appends numbers to vectors of floats, but {env.name} observes {box}; "
        "put FlattenObservation before it."
    )


def numpy_of(*bounds: Any) -> Any:
    """Return NumPy for bounds of spaces, or JAX's where one of them is traced."""
    return jnp if any(isinstance(bound, Tracer) for bound in bounds) else np


def check_number(who: str, name: str, value: Any, *, finite: bool = True) -> float:
    """Return a number of a wrapper as a float; refuse anything else, and NaN.

    Args:
        who: Name of the wrapper.
        name: Name of its field.
        value: Value of the field.
        finite: Whether it may not be infinite.

    Raises:
        ValueError: it is something else.
    """
    try:
        number = float("nan" if isinstance(value, str) else value)
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number) or (finite and not abs(number) <= np.finfo(np.float32).max):
        raise ValueError(
            f"{who}: {name} must be a {'finite ' if finite else ''}number, got "
            f"{value!r}."
        )
    return number
