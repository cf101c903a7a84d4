"""Environments of the older contract, whose `done` does not say why it is true."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Environment, EnvState, Info, Obs
from ..spaces import Space
from .arrays import as_arrays, as_members, as_space, cast_like

_NO_LIMIT = np.iinfo(np.int32).max


@struct.dataclass
class FiveValueState(EnvState):
    """The state of the object, and whether its episode was cut.

    Attributes:
        inner: State of the object.
        is_cut: `[]` bool, whether the last step ended the episode by the time limit.
    """

    inner: Any
    is_cut: jax.Array


class FiveValueEnvironment(Environment[Any, Any]):
    """An object whose `step` returns `obs, state, reward, done, info`.

    That was the contract of gymnax before 1.0: `done` is true at a termination and at
    the time limit alike. They are told apart by asking twice. Where `done` would also
    be true without any limit (`max_steps_in_episode` of the parameters at its largest),
    the episode terminated, and else it was truncated; the compiler shares what the two
    questions have in common. An object without that parameter says nothing about time:
    every `done` is a termination, unless `limit` is given.

    Only `reset_env` and `step_env` are called, which do not reset by themselves.

    Attributes:
        wrapped: The object.
        limit: Number of steps after which a `done` is a time limit; None where the
            parameters have `max_steps_in_episode`, or there is no limit.
    """

    def __init__(self, wrapped: Any, limit: int | None = None) -> None:
        """Wrap the object.

        Args:
            wrapped: The object.
            limit: Number of steps after which its `done` is a time limit, for objects
                that have a limit but no `max_steps_in_episode`.

        Raises:
            TypeError: it lacks a part of the contract; the message names the parts.
            ValueError: a limit that is no positive whole number, or beside another.
        """
        names = ("reset_env", "step_env", "action_space", "observation_space")
        missing = [name for name in names if not hasattr(type(wrapped), name)]
        if not hasattr(wrapped, "default_params"):
            missing.append("default_params")
        if missing:
            raise TypeError(
                f"env is a {type(wrapped).__name__} without {', '.join(missing)}, "
                "which an environment of five values needs: what resets by itself has "
                "lost the last observation of the episode."
            )
        self.wrapped, self.limit = wrapped, limit
        is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
        if limit is not None and not is_count:
            raise ValueError(f"limit must be a positive whole number, got {limit!r}.")
        if limit is not None and self._has_limit:
            raise ValueError(
                f"{self.name} has a parameter max_steps_in_episode, which is its "
                "limit: leave out limit, and set the parameter."
            )

    @property
    def name(self) -> str:
        """The object's name, or that of its class."""
        return str(getattr(self.wrapped, "name", type(self.wrapped).__name__))

    @property
    def note(self) -> str:
        """Says where ends of episodes cannot be told apart."""
        if self._has_limit or self.limit is not None:
            return ""
        return "its `done` says nothing about a time limit: every end is a termination."

    @property
    def default_params(self) -> Any:
        """The object's, with `max_steps_in_episode` where `limit` was given."""
        params = self.wrapped.default_params
        if self.limit is None:
            return params
        fields = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
        return _limited(type(params))(**fields, max_steps_in_episode=self.limit)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, FiveValueState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.wrapped.reset_env(key, params)
        state = FiveValueState(jnp.int32(0), as_arrays(inner), jnp.asarray(False))
        return self._typed(obs, params), state

    def step_env(
        self, key: jax.Array, state: FiveValueState, action: jax.Array, params: Any
    ) -> tuple[Obs, FiveValueState, jax.Array, jax.Array, Info]:
        """Take one step without reset.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment.
        """
        obs, inner, reward, done, info = self.wrapped.step_env(
            key, state.inner, action, params
        )
        time = state.time + 1
        done = jnp.asarray(done, bool).reshape(())
        terminated = done & self._ends(key, state.inner, action, params)
        is_cut = done & ~terminated
        if self.limit is not None:
            is_cut = time >= params.max_steps_in_episode
            terminated = done & ~is_cut
        after = FiveValueState(time, cast_like(inner, state.inner), is_cut)
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return self._typed(obs, params), after, reward, terminated, dict(info)

    def is_truncated(self, state: FiveValueState, params: Any) -> jax.Array:
        """Return whether the last step was cut by the time limit."""
        del params
        return state.is_cut

    def action_space(self, params: Any = None) -> Space:
        """Return the object's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.action_space(params), "action_space")

    def observation_space(self, params: Any = None) -> Space:
        """Return the object's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.observation_space(params), "observation_space")

    @property
    def _has_limit(self) -> bool:
        return hasattr(self.wrapped.default_params, "max_steps_in_episode")

    def _ends(self, key: Any, inner: Any, action: Any, params: Any) -> Any:
        """Return whether the step ends the episode without a time limit too."""
        if not self._has_limit:
            return True
        dtype = jnp.result_type(params.max_steps_in_episode)
        endless = params.replace(max_steps_in_episode=jnp.asarray(_NO_LIMIT, dtype))
        done = self.wrapped.step_env(key, inner, action, endless)[3]
        return jnp.asarray(done, bool).reshape(())

    def _typed(self, obs: Any, params: Any) -> Any:
        return as_members(self.observation_space(params), obs, self.name)


def returns_five_values(env: Any) -> bool:
    """Return whether an object's `step` returns five values, and it has `step_env`.

    Objects that pass unknown attributes on, as wrappers of gymnax do, are not meant:
    their `step_env` is that of the environment inside.
    """
    if not all(hasattr(type(env), name) for name in ("reset_env", "step_env", "step")):
        return False
    try:
        return len(jax.eval_shape(functools.partial(_one_step, env))) == 5
    except Exception:  # Whatever fails here fails again, where it is told.
        return False


def _one_step(env: Any) -> tuple:
    params, key = env.default_params, jax.random.key(0)
    _, state = env.reset(key, params)
    action = env.action_space(params).sample(key)
    return tuple(env.step(key, state, action, params))


@functools.cache
def _limited(inner: Any) -> Any:
    """The class of an object's parameters with a time limit among them."""
    body: dict[str, Any] = {
        "max_steps_in_episode": 1_000,
        "__annotations__": {"max_steps_in_episode": "int | jax.Array"},
        "__module__": __name__,
        "__doc__": "The numbers of the object, and the limit that it was given.",
    }
    return struct.dataclass(type("LimitedParams", (inner,), body))
