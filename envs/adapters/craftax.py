"""Environments of Craftax (Matthews et al. 2024); the only module that imports it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from craftax.craftax_env import make_craftax_env_from_name
from flax import struct

from ..base import Array, Obs, Step
from .adapted import Adapted, SuiteState, as_members
from .names import CRAFTAX_NAMES
from .packages import check_name

_NEVER = np.iinfo(np.int32).max


class CraftaxEnvironment(Adapted):
    """A game of Craftax 1.6 under this package's contract.

    Dynamics, observations and rewards are Craftax's. Its `done` is true at death (and
    in the full game at the defeat of the boss) and at the time limit alike; here the
    first terminate and the last truncates. Every reset is a fresh world. `info` has
    Craftax's: per achievement 100 where the episode terminated having it, else 0, also
    where the time limit cut it.

    Attributes:
        wrapped: Environment object of Craftax that does not reset by itself.
    """

    def __init__(self, craftax_name: str, **static: Any) -> None:
        """Make a game.

        Args:
            craftax_name: Name of the game, one of `CRAFTAX_NAMES`.
            **static: Fields of Craftax's `StaticEnvParams`, such as `map_size`.

        Raises:
            ValueError: Craftax has no such game, or no such field.
        """
        check_name("Craftax", craftax_name, CRAFTAX_NAMES)
        plain: Any = make_craftax_env_from_name(craftax_name, auto_reset=False)
        if static:
            # They are structure, and hashed: a file has lists where they have tuples.
            new = {k: tuple(x) if isinstance(x, list) else x for k, x in static.items()}
            plain = type(plain)(plain.default_static_params().replace(**new))
        self.wrapped, self.id = plain, f"craftax/{craftax_name}"

    @property
    def default_params(self) -> Any:
        """Craftax's numbers, with `max_steps_in_episode` for its `max_timesteps`."""
        params = self.wrapped.default_params
        kept = {name: getattr(params, name) for name in _numbers_of(type(params))}
        limit = params.max_timesteps
        return _params_of(type(params))(max_steps_in_episode=limit, **kept)

    def reset_env(self, key: Array, params: Any) -> tuple[Obs, SuiteState]:
        """Start an episode in a fresh world; the key is consumed."""
        with jax.numpy_rank_promotion("allow"):
            obs, game = self.wrapped.reset_env(key, self._endless(params))
        return self.first(obs, SuiteState(jnp.int32(0), game), params)

    def step_env(
        self, key: Array, state: SuiteState, action: Array, params: Any
    ) -> Step:
        """Take one step without reset."""
        with jax.numpy_rank_promotion("allow"):
            *found, info = self.wrapped.step_env(
                key, state.inner, action, self._endless(params)
            )
        info = {name: x for name, x in info.items() if name != "discount"}
        after = SuiteState(state.time + 1, found[1])
        return self.outcome((*found, info), after, state, params)

    def typed(self, obs: Any, params: Any) -> Any:
        """Return an observation with the dtypes of its space."""
        return as_members(self.observation_space(params), obs)

    def _endless(self, params: Any) -> Any:
        """Craftax's numbers of a game without a time limit."""
        kind = type(self.wrapped.default_params)
        kept = {name: getattr(params, name) for name in _numbers_of(kind)}
        return kind(max_timesteps=_NEVER, **kept)


def _numbers_of(kind: Any) -> list[str]:
    """The names of a game's numbers but for the time limit."""
    names = (field.name for field in dataclasses.fields(kind))
    return [name for name in names if name != "max_timesteps"]


@functools.cache
def _params_of(kind: Any) -> Any:
    """The class of a game's numbers: Craftax's fields with the limit by our name."""
    numbers = {f.name: f.default for f in dataclasses.fields(kind)}
    del numbers["max_timesteps"]
    body: dict[str, Any] = {"max_steps_in_episode": 10_000, **numbers}
    body["__annotations__"] = dict.fromkeys(body, Any)
    body["__module__"] = __name__
    body["__doc__"] = "The numbers of a game of Craftax."
    return struct.dataclass(type("CraftaxParams", (), body))
