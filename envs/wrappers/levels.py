"""Levels that are drawn anew, or given: parameters that belong to an episode."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from ..base import Info, Obs
from .base import Wrapper, WrapperState

# No draw of an environment is this long, so that the key of the level, which is folded
# from that of the reset, is none of those that the environment makes of it.
_LEVEL = 0x1E7E_1000


@struct.dataclass
class LevelState(WrapperState):
    """The state of the environment inside, and the level of this episode.

    Attributes:
        level: Parameters of the environment inside in this episode.
    """

    level: Any


@dataclasses.dataclass(unsafe_hash=True)
class RandomLevels(Wrapper):
    """An environment in which every reset draws a level: domain randomisation.

    A level is all parameters of the environment inside, as its `draw_level` draws them.
    The state of an episode has its level, so that each of many environments can have
    its own.

    Attributes:
        env: The environment inside, with `draw_level`.
    """

    has_state: ClassVar[bool] = True
    adds_to_observations: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse an environment without levels.

        Raises:
            ValueError: it does not draw any.
        """
        if not self.env.has_levels:
            raise ValueError(
                f"{self.env.name} has no levels: {type(self).__name__} needs an "
                "environment with draw_level(key, params), such as Maze-v0."
            )

    def draw_level(self, key: jax.Array, params: Any) -> Any:
        """Draw a level; the key is consumed.

        Args:
            key: Random key, consumed.
            params: Numbers of the environment, of which those that belong to no level
                stay.
        """
        return jax.tree.map(_as_array, self.env.draw_level(key, params))

    def drawn(self, params: Any) -> Any:
        """Return which numbers `draw_level` draws: a bool for every leaf of `params`.

        The others, such as a time limit, come out as they went in, and belong to no
        level.

        Args:
            params: Numbers of the environment.
        """
        leaves = jax.tree.map(_as_array, params)
        traced = jax.make_jaxpr(self.draw_level)(jax.random.key(0), leaves).jaxpr
        given = {id(variable) for variable in traced.invars}
        found = [id(variable) not in given for variable in traced.outvars]
        return jax.tree.unflatten(jax.tree.structure(leaves), found)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Obs, LevelState]:
        """Draw a level and start an episode in it; the key is consumed."""
        level = self.draw_level(jax.random.fold_in(key, _LEVEL), params)
        return self.reset_in(key, level)

    def reset_in(self, key: jax.Array, level: Any) -> tuple[Obs, LevelState]:
        """Start an episode in a level; the key is consumed.

        Args:
            key: Random key, consumed.
            level: Parameters of the environment inside, as `draw_level` returns them.
        """
        obs, inner = self.env.reset_env(key, level)
        return obs, LevelState(inner, level)

    def step_env(
        self, key: jax.Array, state: LevelState, action: jax.Array, params: Any
    ) -> tuple[Obs, LevelState, jax.Array, jax.Array, Info]:
        """Take one step in the level of this episode.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment, in the place of which stands the level.
        """
        del params
        obs, inner, *rest = self.env.step_env(key, state.inner, action, state.level)
        return obs, LevelState(inner, state.level), *rest  # type: ignore[return-value]

    def is_truncated(self, state: LevelState, params: Any) -> jax.Array:
        """Return whether the time limit of this episode is reached."""
        del params
        return self.env.is_truncated(state.inner, state.level)

    def render(self, state: LevelState, params: Any = None) -> np.ndarray:
        """Draw the environment in the level of this episode."""
        del params
        return self.env.render(state.inner, state.level)


@dataclasses.dataclass(unsafe_hash=True)
class RepeatedLevels(RandomLevels):
    """Random levels that stay: all episodes of an environment have its first level.

    Every `reset` draws. `step` starts the next episode in the level of the last one, so
    that its reset is its own: there is no pool of resets for it.

    Attributes:
        env: The environment inside, with `draw_level`.
    """

    steps_without_reset: ClassVar[bool] = False

    def step(
        self,
        key: jax.Array,
        state: LevelState,
        action: jax.Array,
        params: Any = None,
    ) -> tuple[Obs, LevelState, jax.Array, jax.Array, jax.Array, Info]:
        """Take one step; where it ended the episode, the next has the same level.

        Args:
            key: Random key, consumed.
            state: State of the running episode.
            action: Member of `action_space(params)`.
            params: Numbers of the environment, in the place of which stands the level.
        """
        del params
        obs, inner, *rest = self.env.step(key, state.inner, action, state.level)
        return obs, LevelState(inner, state.level), *rest  # type: ignore[return-value]


def _as_array(number: Any) -> jax.Array:
    """A number of a level as an array whose type does not depend on how it came."""
    return jnp.asarray(number, jax.dtypes.canonicalize_dtype(jnp.result_type(number)))
