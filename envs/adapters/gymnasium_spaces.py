"""Spaces, observations and actions, between this package and Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from ..spaces import Box, Discrete, Space


def to_gym_space(space: Space) -> gym_spaces.Space:
    """Return Gymnasium's space with the same members.

    Integers of `Discrete` are int64 there, as Gymnasium wants them.

    Raises:
        ValueError: it is neither discrete nor a box.
    """
    if isinstance(space, Discrete):
        return gym_spaces.Discrete(space.n)
    if isinstance(space, Box):
        return gym_spaces.Box(
            np.array(space.low), np.array(space.high), space.shape, space.dtype.type
        )
    raise ValueError(f"{space!r} is neither discrete nor a box: convert it first.")


def to_observation(space: gym_spaces.Space, obs: Any) -> Any:
    """Return an observation, or a batch of them, as Gymnasium hands it out.

    Returns:
        An array of its own, which the caller may write into; an `np.int64` for one
        member of a `Discrete`.
    """
    return np.array(obs, dtype=space.dtype)[()]


def to_action(space: gym_spaces.Space, action: Any, *lanes: int) -> np.ndarray:
    """Return an action, or a batch of them, as the compiled step takes it.

    Box actions are not clipped; what is beyond the bounds is the environment's
    business, as in Gymnasium.

    Args:
        space: Space of one action.
        action: `[*lanes, *space.shape]`.
        *lanes: Number of lanes of a batch.

    Raises:
        InvalidAction: another shape, or not a member of a `Discrete`.
    """
    value = np.asarray(action)
    expected = (*lanes, *(space.shape or ()))
    if value.shape != expected:
        raise gymnasium.error.InvalidAction(
            f"action has shape {value.shape}, expected {expected}."
        )
    if not isinstance(space, gym_spaces.Discrete):
        return value.astype(space.dtype)
    # A compiled program clamps an index that is out of range and says nothing.
    if value.dtype.kind not in "iu" or not np.all((value >= 0) & (value < space.n)):
        raise gymnasium.error.InvalidAction(
            f"action must be an integer in 0 .. {space.n - 1}, got {action!r}."
        )
    return value.astype(np.int32)
