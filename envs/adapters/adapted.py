"""Another package's spaces, states and numbers as ours: shared by all adapters."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from ..base import Array, Environment, EnvParams, EnvState, Step, StepError
from ..spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

UNLIMITED = 100_000
"""Time limit where a package has none: its games end by themselves before that."""


@struct.dataclass
class SuiteState(EnvState):
    """The state of an episode of another package's environment.

    Attributes:
        inner: State, or timestep, of the package.
    """

    inner: Any


class Adapted(Environment[Any, Any]):
    """An environment of another package: what is not overridden is the object's.

    Attributes:
        wrapped: The object.
        id: The name for `envs.make`; empty where it has none.
    """

    wrapped: Any
    id: str = ""

    @property
    def name(self) -> str:
        """The id, or the object's name, or that of its class."""
        own = getattr(self.wrapped, "name", type(self.wrapped).__name__)
        return self.id or str(own)

    @property
    def default_params(self) -> Any:
        """The default parameters of the object."""
        return self.wrapped.default_params

    def action_space(self, params: Any = None) -> Space:
        """Return the object's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.action_space(params), "action_space")

    def observation_space(self, params: Any = None) -> Space:
        """Return the object's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.observation_space(params), "observation_space")

    def first(self, obs: Any, state: Any, params: Any) -> tuple[Any, Any]:
        """Return an observation and a state of a reset as arrays of strong types."""
        return self.typed(obs, params), as_arrays(state)

    def outcome(self, found: Any, after: Any, before: Any, params: Any) -> Step:
        """Return what a step of five values found, with the types of this package.

        Args:
            found: Observation, state, reward, flag and info of the object.
            after: State after the step.
            before: State before it, whose types the one after it gets.
            params: Numbers of the environment.
        """
        obs, _, reward, ended, info = found
        obs, after = self.typed(obs, params), cast_like(after, before)
        return obs, after, scalar(reward, jnp.float32), scalar(ended, bool), dict(info)

    def typed(self, obs: Any, params: Any) -> Any:
        """Return an observation with the dtypes of its space; see `as_members`."""
        return as_members(self.observation_space(params), obs, self.name)


class Suite(Adapted):
    """An environment of another package whose steps return timesteps of its own.

    Subclasses write `begin`, `advance` and `read`.

    Attributes:
        limit: Time limit.
        actions: Space of actions.
        observations: Space of observations.
    """

    limit: int
    actions: Space
    observations: Space

    def begin(self, key: Array, params: Any) -> Any:
        """Return the first timestep of an episode; the key is consumed."""
        raise NotImplementedError

    def advance(self, key: Array, timestep: Any, action: Array, params: Any) -> Any:
        """Return the next timestep; the key is consumed."""
        raise NotImplementedError

    def read(self, timestep: Any) -> tuple[Any, Any, Any]:
        """Return observation, reward, and whether the episode terminated."""
        raise NotImplementedError

    @property
    def default_params(self) -> Any:
        """The time limit."""
        return EnvParams(self.limit)

    def reset_env(self, key: Array, params: Any) -> tuple[Any, SuiteState]:
        """Start an episode; the key is consumed."""
        with jax.numpy_rank_promotion("allow"):
            first = self.begin(key, params)
            obs = self.read(first)[0]
        return self.first(obs, SuiteState(jnp.int32(0), first), params)

    def step_env(
        self, key: Array, state: SuiteState, action: Array, params: Any
    ) -> Step:
        """Take one step without reset."""
        with jax.numpy_rank_promotion("allow"):
            last = self.advance(key, state.inner, action, params)
            obs, reward, terminated = self.read(last)
        after = SuiteState(state.time + 1, last)
        return self.outcome((obs, after, reward, terminated, {}), after, state, params)

    def action_space(self, params: Any = None) -> Space:
        """Return the package's actions."""
        return self.actions

    def observation_space(self, params: Any = None) -> Space:
        """Return the space of the package's observations."""
        return self.observations


def as_space(space: Any, field: str = "space") -> Space:
    """Convert a space of gymnax or Gymnasium, known by its attributes, into ours.

    Args:
        space: Space of any of the known packages.
        field: Name that error messages give to it.

    Raises:
        ValueError: it is of another kind, such as a graph or a text.
    """
    if isinstance(space, Space):
        return space
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return Dict({key: as_space(parts[key], f"{field}[{key!r}]") for key in parts})
    if isinstance(parts, list | tuple):
        pairs = enumerate(parts)
        return Tuple(as_space(part, f"{field}[{place}]") for place, part in pairs)
    if hasattr(space, "n") and space.shape != ():  # Gymnasium's, with one n for all.
        return MultiBinary(tuple(int(size) for size in space.shape))
    if hasattr(space, "nvec") or hasattr(space, "n"):
        if np.any(np.asarray(getattr(space, "start", 0)) != 0):  # As Gymnasium's may.
            raise ValueError(f"{space!r} does not start at 0: number its members anew.")
        sizes = getattr(space, "nvec", None)
        return Discrete(int(space.n)) if sizes is None else MultiDiscrete(sizes)
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = tuple(int(size) for size in space.shape)
        low, high = (_fit(bound, shape) for bound in (space.low, space.high))
        return Box(low, high, shape, space.dtype)
    raise ValueError(
        f"{field} is {space!r}, which is none of envs.spaces (Discrete, Box, "
        "MultiDiscrete, MultiBinary, Dict, Tuple)."
    )


def as_arrays(tree: Any) -> Any:
    """Turn every leaf, Python numbers included, into an array of a strong type."""
    return jax.tree.map(_strong, tree)


def cast_like(tree: Any, like: Any) -> Any:
    """Give every leaf the dtype of its counterpart, so that a scan can carry it."""
    return jax.tree.map(lambda x, y: _strong(x, jnp.result_type(y)), tree, like)


def scalar(x: Any, dtype: Any) -> Array:
    """Return a number or truth value as an array `[]`."""
    return jnp.asarray(x, dtype).reshape(())


def _strong(x: Any, dtype: Any = None) -> Array:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return jax.lax.convert_element_type(x, x.dtype if dtype is None else dtype)


def _fit(bound: Any, shape: tuple[int, ...]) -> Any:
    """Reduce a bound of one element to a scalar; others must have the shape."""
    if np.shape(bound) == shape or isinstance(bound, Tracer):
        return bound
    return np.asarray(bound).reshape(()) if np.size(bound) == 1 else bound


def as_members(space: Any, obs: Any, owner: str = "") -> Any:
    """Return observations with the dtypes of their space, part by part.

    Args:
        space: Space of the observations.
        obs: Observation of another package's environment.
        owner: Name of an environment whose fractions must not be cut to whole numbers;
            empty for those of whose numbers it is known that they are whole.

    Raises:
        StepError: a space of whole numbers, and observations with fractions.
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, dict):
        return {key: as_members(part, obs[key], owner) for key, part in parts.items()}
    if parts is not None:
        pairs = zip(parts, obs, strict=True)
        return tuple(as_members(part, one, owner) for part, one in pairs)
    given = jnp.asarray(obs).dtype
    is_cut = jnp.issubdtype(given, jnp.floating) and space.dtype.kind in "iub"
    if owner and is_cut:
        raise StepError(
            f"{owner}: an observation of {given}, expected {space.dtype} as its "
            f"observation space {space} says, which would cut fractions."
        )
    return jnp.asarray(obs, space.dtype)


def with_numbers(inner: Any, wrapper: str, numbers: dict[str, Any]) -> Any:
    """Return parameters with further numbers among them.

    Their class is a subclass, so that the environment inside takes them as its own.

    Args:
        inner: Parameters of the environment inside, a dataclass.
        wrapper: Name of the wrapper's class, which begins that of the parameters.
        numbers: Numbers by name.
    """
    own = {f.name: getattr(inner, f.name) for f in dataclasses.fields(inner)}
    return _params_class(type(inner), wrapper, tuple(numbers))(**own, **numbers)


@functools.cache
def _params_class(inner: Any, wrapper: str, names: tuple[str, ...]) -> Any:
    body: dict[str, Any] = {name: 0.0 for name in names}
    body["__annotations__"] = {name: "float | Array" for name in names}
    body["__module__"] = __name__
    body["__doc__"] = f"The numbers of the environment inside, and of {wrapper}."
    return struct.dataclass(type(f"{wrapper}Params", (inner,), body))
