"""Environments of gymnax; the only module that imports it."""

from __future__ import annotations

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.environments.environment import Environment as _GymnaxBase

from ..base import Environment, Info, Obs
from ..spaces import Space
from .arrays import as_arrays, as_members, as_space, cast_like


class GymnaxEnvironment(Environment[Any, Any]):
    """An environment of gymnax 1.0 under this package's contract.

    Dynamics, parameters and keys are gymnax's: the same key gives the same episode.
    What changes: the flags exclude each other, states and observations keep one dtype
    (that of the observation space for the latter), rewards are float32.

    Attributes:
        wrapped: Environment object of gymnax.
    """

    def __init__(self, env: str | Any, **options: Any) -> None:
        """Wrap an environment of gymnax.

        Args:
            env: A gymnax id, or an environment of gymnax.
            **options: Keywords of gymnax's constructor; only with an id.

        Raises:
            ValueError: gymnax has no such id, or the environment no such option.
        """
        if not isinstance(env, str):
            self.wrapped = env
            return
        try:
            self.wrapped, _ = gymnax.make(env, **options)
        except TypeError as error:
            raise ValueError(
                f"options of {env} were {sorted(options)}, which gymnax does not take "
                f"({error})."
            ) from error
        except OSError as error:
            raise ValueError(
                f"{env} needs files that gymnax downloads when it makes it, and could "
                f"not ({error})."
            ) from None

    @property
    def name(self) -> str:
        """The name that gymnax gives the environment."""
        return self.wrapped.name

    @property
    def finite_observations(self) -> bool:  # type: ignore[override]
        """True of MinAtar, whose pictures are truth values cast to float32."""
        return type(self.wrapped).__module__.startswith("gymnax.environments.minatar.")

    @property
    def default_params(self) -> Any:
        """The default parameters of gymnax."""
        return self.wrapped.default_params

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, Any]:
        """Start an episode; the key is consumed."""
        obs, state = self.wrapped.reset_env(key, params)
        return self._typed(obs, params), as_arrays(state)

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: Any
    ) -> tuple[Obs, Any, jax.Array, jax.Array, Info]:
        """Take one step without reset.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Action of the agent.
            params: Numbers of the environment.
        """
        obs, next_state, reward, terminated, info = self.wrapped.step_env(
            key, state, action, params
        )
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        terminated = jnp.asarray(terminated, bool).reshape(())
        next_state = cast_like(next_state, state)
        return self._typed(obs, params), next_state, reward, terminated, dict(info)

    def is_truncated(self, state: Any, params: Any) -> jax.Array:
        """Return whether gymnax's own time limit is reached."""
        return jnp.asarray(self.wrapped.is_truncated(state, params), bool).reshape(())

    def action_space(self, params: Any = None) -> Space:
        """Return gymnax's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.action_space(params), "action_space")

    def observation_space(self, params: Any = None) -> Space:
        """Return gymnax's space as one of this package."""
        params = self.default_params if params is None else params
        return as_space(self.wrapped.observation_space(params), "observation_space")

    def _typed(self, obs: Any, params: Any) -> Any:
        # Catch-bsuite has whole numbers that are floats; its space says int32.
        is_gymnaxs = type(self.wrapped).__module__.partition(".")[0] == "gymnax"
        owner = "" if is_gymnaxs else self.name
        return as_members(self.observation_space(params), obs, owner)


def is_plain_gymnax(env: Any) -> bool:
    """Return whether `env` is a gymnax environment that resets in gymnax's own `step`.

    One that overrides `step` or `reset` is trusted for those two only.
    """
    if not isinstance(env, _GymnaxBase):
        return False
    kind = type(env)
    return kind.step is _GymnaxBase.step and kind.reset is _GymnaxBase.reset
