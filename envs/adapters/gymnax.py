"""Environments of gymnax; the only module that imports it."""

from typing import Any

import gymnax
from gymnax.environments.environment import Environment as _GymnaxBase

from ..base import Array, Obs, Step
from ..spaces import Box, Space
from .adapted import Adapted, as_members, scalar


class GymnaxEnvironment(Adapted):
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
        except OSError as error:
            raise ValueError(
                f"{env} needs files that gymnax downloads when it makes it, and could "
                f"not ({error})."
            ) from None

    def observation_space(self, params: Any = None) -> Space:
        """Return gymnax's space; of MinAtar truth values, which its games hold."""
        space = super().observation_space(params)
        module = type(self.wrapped).__module__
        is_minatar = module.startswith("gymnax.environments.minatar.")
        return Box(0, 1, space.shape, bool) if is_minatar else space

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, Any]:
        """Start an episode; the key is consumed."""
        obs, state = self.wrapped.reset_env(key, params)
        return self.first(obs, state, params)

    def step_env(self, key: Array, state: Any, action: Array, params: Any) -> Step:
        """Take one step without reset."""
        found = self.wrapped.step_env(key, state, action, params)
        return self.outcome(found, found[1], state, params)

    def is_truncated(self, state: Any, params: Any) -> Array:
        """Return whether gymnax's own time limit is reached."""
        return scalar(self.wrapped.is_truncated(state, params), bool)

    def typed(self, obs: Any, params: Any) -> Any:
        """Return an observation with the dtypes of its space."""
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
