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

from ..base import Environment, EnvState, Info, Obs
from ..spaces import Space
from .arrays import as_arrays, as_members, as_space, cast_like

NAMES = (
    "Craftax-Symbolic-v1",
    "Craftax-Pixels-v1",
    "Craftax-Classic-Symbolic-v1",
    "Craftax-Classic-Pixels-v1",
)
_NEVER = np.iinfo(np.int32).max


@struct.dataclass
class CraftaxState(EnvState):
    """The state of an episode of Craftax.

    Attributes:
        game: Craftax's own state.
    """

    game: Any


class CraftaxEnvironment(Environment[CraftaxState, Any]):
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
            craftax_name: Name of the game, one of `NAMES`.
            **static: Fields of Craftax's `StaticEnvParams`, such as `map_size`.

        Raises:
            ValueError: Craftax has no such game, or no such field.
        """
        if craftax_name not in NAMES:
            raise ValueError(
                f"craftax_name {craftax_name!r} is none of Craftax's: "
                f"{', '.join(NAMES)}."
            )
        plain: Any = make_craftax_env_from_name(craftax_name, auto_reset=False)
        if static:
            known: Any = plain.default_static_params()
            names = [field.name for field in dataclasses.fields(known)]
            unknown = sorted(set(static) - set(names))
            if unknown:
                raise ValueError(
                    f"options of {craftax_name} were {', '.join(unknown)}, which it "
                    f"does not take; it takes {', '.join(names)}."
                )
            # They are structure, and hashed: a file has lists where they have tuples.
            static = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in static.items()
            }
            plain = type(plain)(known.replace(**static))
        self.wrapped, self.craftax_name = plain, craftax_name

    @property
    def name(self) -> str:
        """`craftax/` and Craftax's name."""
        return f"craftax/{self.craftax_name}"

    @property
    def default_params(self) -> Any:
        """Craftax's numbers, with `max_steps_in_episode` for its `max_timesteps`."""
        params = self.wrapped.default_params
        kept = {
            field.name: getattr(params, field.name)
            for field in dataclasses.fields(params)
            if field.name != "max_timesteps"
        }
        limit = params.max_timesteps
        return _params_of(type(params))(max_steps_in_episode=limit, **kept)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, CraftaxState]:
        """Start an episode in a fresh world; the key is consumed."""
        with jax.numpy_rank_promotion("allow"):
            obs, game = self.wrapped.reset_env(key, self._endless(params))
        state = CraftaxState(jnp.int32(0), as_arrays(game))
        return self._typed(obs, params), state

    def step_env(
        self, key: jax.Array, state: CraftaxState, action: jax.Array, params: Any
    ) -> tuple[Obs, CraftaxState, jax.Array, jax.Array, Info]:
        """Take one step without reset.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Number of an action.
            params: Numbers of the environment.
        """
        with jax.numpy_rank_promotion("allow"):
            obs, game, reward, terminated, info = self.wrapped.step_env(
                key, state.game, action, self._endless(params)
            )
        info = {name: x for name, x in info.items() if name != "discount"}
        after = CraftaxState(state.time + 1, cast_like(game, state.game))
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        terminated = jnp.asarray(terminated, bool).reshape(())
        return self._typed(obs, params), after, reward, terminated, info

    def action_space(self, params: Any = None) -> Space:
        """Return Craftax's space as one of this package."""
        return as_space(self.wrapped.action_space(params), "action_space")

    def observation_space(self, params: Any = None) -> Space:
        """Return Craftax's space as one of this package."""
        return as_space(self.wrapped.observation_space(params), "observation_space")

    def _endless(self, params: Any) -> Any:
        """Craftax's numbers of a game without a time limit."""
        ours = ("max_steps_in_episode", "max_timesteps")
        kind = type(self.wrapped.default_params)
        names = [f.name for f in dataclasses.fields(kind) if f.name not in ours]
        kept = {name: getattr(params, name) for name in names}
        return kind(max_timesteps=_NEVER, **kept)

    def _typed(self, obs: Any, params: Any) -> Any:
        return as_members(self.observation_space(params), obs)


@functools.cache
def _params_of(kind: Any) -> Any:
    """The class of a game's numbers: Craftax's fields with the limit by our name."""
    fields = [
        field for field in dataclasses.fields(kind) if field.name != "max_timesteps"
    ]
    body: dict[str, Any] = {
        "__annotations__": {
            "max_steps_in_episode": "int | jax.Array",
            **{field.name: Any for field in fields},
        },
        "__module__": __name__,
        "__doc__": "The numbers of a game of Craftax.",
        "max_steps_in_episode": 10_000,
        **{field.name: field.default for field in fields},
    }
    return struct.dataclass(type("CraftaxParams", (), body))
