"""Objects that keep the gymnax 1.0 contract, known only by their methods."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ..base import Environment, Info, Obs
from ..spaces import Space
from .arrays import as_arrays, as_space, cast_like


class ContractEnvironment(Environment[Any, Any]):
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

    @property
    def name(self) -> str:
        """The object's name, or that of its class."""
        return str(getattr(self.wrapped, "name", type(self.wrapped).__name__))

    @property
    def default_params(self) -> Any:
        """The default parameters of the object."""
        return self.wrapped.default_params

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, Any]:
        """Return the object's `reset`."""
        return as_arrays(self.wrapped.reset(key, params))

    def step(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any = None
    ) -> tuple[Obs, Any, jax.Array, jax.Array, jax.Array, Info]:
        """Take the object's step, its flags made exclusive.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment; the object's own where not given.

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
        """Refuse: the object resets by itself.

        Args:
            key: Random key, which is not used.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.

        Raises:
            NotImplementedError: always.
        """
        del key, state, action, params
        raise NotImplementedError(
            f"{self.name} is known by its `reset` and `step` only, and `step` resets "
            "by itself: call `step`, or pass the bare environment."
        )

    def action_space(self, params: Any = None) -> Space:
        """Return the object's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.action_space(params), "action_space")

    def observation_space(self, params: Any = None) -> Space:
        """Return the object's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.observation_space(params), "observation_space")


def _check_step(name: str, result: Any) -> None:
    if len(result) != 6:
        raise ValueError(
            f"step of {name} returned {len(result)} values, expected 6 (obs, state, "
            "reward, terminated, truncated, info): it follows an older contract; "
            "split its `done` into the two flags, as gymnax 1.0 does, or pass an "
            "environment whose class has reset_env and step_env (see envs.adapt)."
        )
    if "final_observation" not in result[-1]:
        raise ValueError(
            f"step of {name} returned info with {sorted(result[-1])}, expected "
            "'final_observation' too: the observation before the auto-reset."
        )
