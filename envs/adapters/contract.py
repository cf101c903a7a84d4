"""Objects that keep the gymnax 1.0 contract, known only by their methods."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..base import Environment, Info, Obs
from ..spaces import Box, Discrete, Space
from .gymnasium import is_of_gymnasium, refusal


class ContractEnvironment(Environment[Any, Any]):
    """Any object with gymnax 1.0's `reset` and `step`, such as a gymnax wrapper.

    Only those two are called. gymnax's wrappers pass unknown attributes on to the
    environment inside, so a wrapper's `step_env` is the inner one and does not see the
    wrapper. For the same reason there is no step without auto-reset here.

    Attributes:
        wrapped: the object.
    """

    steps_without_reset: ClassVar[bool] = False

    def __init__(self, wrapped: Any) -> None:
        """Wrap the object.

        Raises:
            TypeError: it lacks a part of the contract; the message names the parts.
        """
        parts = ("reset", "step", "default_params", "action_space", "observation_space")
        missing = [part for part in parts if not hasattr(wrapped, part)]
        if missing:
            raise TypeError(
                f"env is a {type(wrapped).__name__} without {', '.join(missing)}: an "
                "environment needs the gymnax 1.0 contract (see envs.Environment)."
            )
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        """The object's name, or that of its class."""
        return str(getattr(self.wrapped, "name", type(self.wrapped).__name__))

    @property
    def default_params(self) -> Any:
        """The object's."""
        return self.wrapped.default_params

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, Any]:
        """The object's `reset`."""
        return as_arrays(self.wrapped.reset(key, params))

    def step(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any = None
    ) -> tuple[Obs, Any, jax.Array, jax.Array, jax.Array, Info]:
        """The object's `step`, its flags made exclusive.

        Raises:
            ValueError: it does not return the six values, or no final observation.
        """
        if params is None:
            params = self.default_params
        result = self.wrapped.step(key, state, action, params)
        _check_step(self.name, result)
        obs, next_state, reward, terminated, truncated, info = result
        terminated = jnp.asarray(terminated, bool)
        truncated = jnp.asarray(truncated, bool) & ~terminated
        info = {**info, "terminated": terminated, "truncated": truncated}
        next_state = cast_like(next_state, state)
        reward = jnp.asarray(reward, jnp.float32)
        return as_arrays(obs), next_state, reward, terminated, truncated, info

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Obs, Any, jax.Array, jax.Array, Info]:
        """Not possible: the object resets by itself.

        Raises:
            NotImplementedError: always.
        """
        del key, state, action, params
        raise NotImplementedError(
            f"{self.name} is known by its `reset` and `step` only, and `step` resets "
            "by itself: call `step`, or pass the bare environment."
        )

    def action_space(self, params: Any = None) -> Space:
        """The object's, as a space of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.action_space(params), "action_space")

    def observation_space(self, params: Any = None) -> Space:
        """The object's, as a space of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.observation_space(params), "observation_space")


def adapt(env: Any) -> Environment:
    """Return `env` as an `Environment`.

    An `Environment` comes back as it is. A gymnax environment gets the gymnax adapter.
    Any other object that keeps the gymnax 1.0 contract, a wrapper for instance, is
    used through its `reset` and `step`.

    Raises:
        TypeError: it does not keep the contract, or it is one of Gymnasium.
    """
    if isinstance(env, Environment):
        return env
    if is_of_gymnasium(env):
        raise TypeError(refusal(f"({type(env).__name__})"))
    # An object of gymnax can only exist where gymnax is imported already.
    if "gymnax" in sys.modules:
        from .gymnax import GymnaxEnvironment, is_plain_gymnax

        if is_plain_gymnax(env):
            return GymnaxEnvironment(env)
    return ContractEnvironment(env)


def as_space(space: Any, field: str = "space") -> Space:
    """Convert a space with `n`, or with `low`, `high` and `shape`, into ours.

    Args:
        space: of any package.
        field: its name in the error message.

    Raises:
        ValueError: it is of another kind, such as a dictionary of spaces.
    """
    if isinstance(space, Space):
        return space
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = tuple(int(size) for size in space.shape)
        low, high = (_fit(bound, shape) for bound in (space.low, space.high))
        return Box(low, high, shape, space.dtype)
    raise ValueError(
        f"{field} is {space!r}, which is neither discrete nor a box: wrap the "
        "environment so that it is one of them, for instance by flattening."
    )


def as_arrays(tree: Any) -> Any:
    """Turn every leaf, Python numbers included, into an array of a strong type."""
    return jax.tree.map(_strong, tree)


def cast_like(tree: Any, like: Any) -> Any:
    """Give every leaf the dtype of its counterpart, so that a scan can carry it."""
    return jax.tree.map(lambda x, y: _strong(x, jnp.result_type(y)), tree, like)


def _strong(x: Any, dtype: Any = None) -> jax.Array:
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return x
    return jax.lax.convert_element_type(x, x.dtype if dtype is None else dtype)


def _fit(bound: Any, shape: tuple[int, ...]) -> Any:
    """Reduce a bound of one element to a scalar; others must have the shape."""
    if np.shape(bound) == shape or isinstance(bound, Tracer):
        return bound
    return np.asarray(bound).reshape(()) if np.size(bound) == 1 else bound


def _check_step(name: str, result: Any) -> None:
    if len(result) != 6:
        raise ValueError(
            f"step of {name} returned {len(result)} values, expected 6 (obs, state, "
            "reward, terminated, truncated, info): it follows an older contract; "
            "split its `done` into the two flags, as gymnax 1.0 does."
        )
    if "final_observation" not in result[-1]:
        raise ValueError(
            f"step of {name} returned info with {sorted(result[-1])}, expected "
            "'final_observation' too: the observation before the auto-reset."
        )
