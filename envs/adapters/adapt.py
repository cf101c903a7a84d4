"""From any object that keeps a known contract to an `Environment`."""

import sys
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Array, AutoResetStep, Environment, Obs, Step
from ..options import whole_number
from .adapted import (
    Adapted,
    SuiteState,
    as_arrays,
    cast_like,
    scalar,
    with_numbers,
)

_NO_LIMIT = np.iinfo(np.int32).max


def adapt(env: Any) -> Environment:
    """Return `env` as an `Environment`.

    An `Environment` comes back as it is. A gymnax environment gets the gymnax adapter.
    An object of the older contract, whose `step` returns five values with one `done`,
    becomes a `FiveValueEnvironment`, which says how its ends are told apart.
    Any other object that keeps the gymnax 1.0 contract, a wrapper for instance, is
    used through its `reset` and `step`.

    Raises:
        TypeError: it does not keep the contract, it is a class or a name, or it is one
            of Gymnasium or brax, which are made by their names.
    """
    if isinstance(env, Environment):
        return env
    if isinstance(env, str):
        raise TypeError(
            f"env is the name {env!r}; make the environment first: envs.make({env!r})."
        )
    if isinstance(env, type):
        name = env.__name__
        raise TypeError(f"env is the class {name}; call it to make one: {name}().")
    # An object of a package can only exist where the package is imported already.
    for name, module in (("gymnasium", "gymnasium"), ("brax", "brax.envs")):
        base = getattr(sys.modules.get(module), "Env", ())
        if isinstance(env, base):
            raise TypeError(
                f"env is a {type(env).__name__} of {name}; give the name under which "
                f"it is registered there: env='{name}/NAME'."
            )
    if "gymnax" in sys.modules:
        from .gymnax import GymnaxEnvironment, is_plain_gymnax

        if is_plain_gymnax(env):
            return GymnaxEnvironment(env)
    if returns_five_values(env):
        return FiveValueEnvironment(env)
    return ContractEnvironment(env)


class ContractEnvironment(Adapted):
    """Any object with gymnax 1.0's `reset` and `step`, such as a gymnax wrapper.

    Only those two are called. gymnax's wrappers pass unknown attributes on to the
    environment inside, so a wrapper's `step_env` is the inner one and does not see the
    wrapper. For the same reason there is no step without auto-reset here.

    Attributes:
        wrapped: The object.
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

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, Any]:
        """Return the object's `reset`."""
        return as_arrays(self.wrapped.reset(key, params))

    def step(
        self, key: Array, state: Any, action: Array, params: Any = None
    ) -> AutoResetStep:
        """Take the object's step, its flags made exclusive.

        Raises:
            ValueError: it does not return the six values, or no final observation.
        """
        if params is None:
            params = self.default_params
        result = self.wrapped.step(key, state, action, params)
        if len(result) != 6:
            raise ValueError(
                f"step of {self.name} returned {len(result)} values, expected 6: obs, "
                "state, reward, terminated, truncated, info. Split its `done` into two "
                "flags, or pass an object with reset_env and step_env: see envs.adapt."
            )
        obs, next_state, reward, terminated, truncated, info = result
        if "final_observation" not in info:
            raise ValueError(
                f"step of {self.name} returned info with {sorted(info)}, expected "
                "'final_observation' too: the observation before the auto-reset."
            )
        terminated = jnp.asarray(terminated, bool)
        truncated = jnp.asarray(truncated, bool) & ~terminated
        info = {**info, "terminated": terminated, "truncated": truncated}
        next_state = cast_like(next_state, state)
        reward = jnp.asarray(reward, jnp.float32)
        return as_arrays(obs), next_state, reward, terminated, truncated, info

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Refuse: the object resets by itself."""
        raise NotImplementedError(
            f"{self.name} is known by its `reset` and `step` alone: call `step`."
        )


@struct.dataclass
class FiveValueState(SuiteState):
    """The state of the object, and whether its episode was cut.

    Attributes:
        is_cut: `[]` bool, whether the last step ended the episode by the time limit.
    """

    is_cut: Array


class FiveValueEnvironment(Adapted):
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
            ValueError: a limit that is no positive whole number, or beside another.
        """
        self.wrapped, self.limit = wrapped, limit
        if limit is not None:
            self.limit = whole_number("limit", limit, least=1)
            if self._has_limit:
                raise ValueError(
                    f"{self.name} has max_steps_in_episode already: leave out limit."
                )

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
        return with_numbers(params, "Limited", {"max_steps_in_episode": self.limit})

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, FiveValueState]:
        """Start an episode; the key is consumed."""
        obs, inner = self.wrapped.reset_env(key, params)
        state = FiveValueState(jnp.int32(0), inner, jnp.asarray(False))
        return self.first(obs, state, params)

    def step_env(
        self, key: Array, state: FiveValueState, action: Array, params: Any
    ) -> Step:
        """Take one step without reset."""
        obs, inner, reward, done, info = self.wrapped.step_env(
            key, state.inner, action, params
        )
        time = state.time + 1
        done = scalar(done, bool)
        terminated = done & self._ends(key, state.inner, action, params)
        is_cut = done & ~terminated
        if self.limit is not None:
            is_cut = time >= params.max_steps_in_episode
            terminated = done & ~is_cut
        after = FiveValueState(time, inner, is_cut)
        found = obs, after, reward, terminated, info
        return self.outcome(found, after, state, params)

    def is_truncated(self, state: FiveValueState, params: Any) -> Array:
        """Return whether the last step was cut by the time limit."""
        return state.is_cut

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
        return scalar(done, bool)


def returns_five_values(env: Any) -> bool:
    """Return whether an object's `step` returns five values, and it has `step_env`.

    Objects that pass unknown attributes on, as wrappers of gymnax do, are not meant:
    their `step_env` is that of the environment inside.
    """
    if not all(hasattr(type(env), name) for name in ("reset_env", "step_env", "step")):
        return False

    def one_step() -> tuple:
        params, key = env.default_params, jax.random.key(0)
        _, state = env.reset(key, params)
        action = env.action_space(params).sample(key)
        return tuple(env.step(key, state, action, params))

    try:
        return len(jax.eval_shape(one_step)) == 5
    except Exception:  # Whatever fails here fails again, where it is told.
        return False
