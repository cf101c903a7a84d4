"""Spaces, observations and actions, between this package and Gymnasium."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces as gym_spaces

from ..spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from .adapted import as_space

_COLOURS = (1, 3, 4)


def _by_part(leaf: Callable[[Any, Any], Any], space: Any, value: Any) -> Any:
    """Apply `leaf(space, value)` to every part of a value of a `Dict` or `Tuple`."""
    if isinstance(space, gym_spaces.Dict):
        return {key: _by_part(leaf, part, value[key]) for key, part in space.items()}
    if isinstance(space, gym_spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return tuple(_by_part(leaf, part, one) for part, one in pairs)
    return leaf(space, value)


def to_gym_space(space: Space) -> gym_spaces.Space:
    """Return Gymnasium's space with the same members.

    Integers of `Discrete` and `MultiDiscrete` are int64 there, as Gymnasium wants them.

    Raises:
        ValueError: it is none of `envs.spaces`.
    """
    if isinstance(space, Discrete):
        return gym_spaces.Discrete(space.n)
    if isinstance(space, Box):
        return gym_spaces.Box(
            np.array(space.low), np.array(space.high), space.shape, space.dtype.type
        )
    if isinstance(space, MultiDiscrete):
        return gym_spaces.MultiDiscrete(space.nvec)
    if isinstance(space, MultiBinary):
        return gym_spaces.MultiBinary(space.shape)
    if isinstance(space, Dict):
        parts = {key: to_gym_space(part) for key, part in space.spaces.items()}
        return gym_spaces.Dict(parts)
    if isinstance(space, Tuple):
        return gym_spaces.Tuple([to_gym_space(part) for part in space.spaces])
    raise ValueError(f"{space!r} is none of envs.spaces.")


def to_observation(space: gym_spaces.Space, obs: Any) -> Any:
    """Return an observation, or a batch of them, as Gymnasium hands it out.

    Returns:
        An array of its own, which the caller may write into; an `np.int64` for one
        member of a `Discrete`. Of a `Dict` or a `Tuple`, a dictionary or tuple of such.
    """
    return _by_part(lambda part, x: np.array(x, dtype=part.dtype)[()], space, obs)


def to_action(space: gym_spaces.Space, action: Any, *lanes: int) -> Any:
    """Return an action, or a batch of them, as the compiled step takes it.

    Box actions are not clipped; what is beyond the bounds is the environment's
    business, as in Gymnasium.

    Args:
        action: `[*lanes, *space.shape]`, or a dictionary or tuple of such.
        *lanes: Number of lanes of a batch.

    Raises:
        InvalidAction: another shape, or integers that are no members.
    """
    return _by_part(partial(_to_action, lanes), space, action)


def _to_action(lanes: tuple[int, ...], space: Any, action: Any) -> np.ndarray:
    value = np.asarray(action)
    expected = (*lanes, *(space.shape or ()))
    if value.shape != expected:
        raise gymnasium.error.InvalidAction(
            f"action has shape {value.shape}, expected {expected}."
        )
    is_binary = isinstance(space, gym_spaces.MultiBinary)
    if isinstance(space, gym_spaces.Box):
        return value.astype(space.dtype)
    most: Any = 1 if is_binary else getattr(space, "nvec", getattr(space, "n", 0)) - 1
    # A compiled program clamps an index that is out of range and says nothing.
    is_whole = value.dtype.kind in ("iub" if is_binary else "iu")
    if not is_whole or not np.all((value >= 0) & (value <= most)):
        kind = "an integer" if space.shape == () else "integers"
        raise gymnasium.error.InvalidAction(
            f"action must be {kind} in 0 .. {most}, got {action!r}."
        )
    return value.astype(np.int8 if is_binary else np.int32)


def from_gym_space(space: gym_spaces.Space, what: str) -> Space:
    """Return this package's space of what `from_observation` and `batch_action` make.

    Integers count from 0 whatever their `start`, 64-bit numbers have 32 bits, and a
    picture of bytes is `[height, width, channels]`.

    Raises:
        ValueError: a space of another kind.
    """
    if isinstance(space, gym_spaces.Dict):
        return Dict({k: from_gym_space(part, what) for k, part in space.items()})
    if isinstance(space, gym_spaces.Tuple):
        return Tuple(from_gym_space(part, what) for part in space.spaces)
    if isinstance(space, gym_spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, gym_spaces.MultiDiscrete):
        return MultiDiscrete(space.nvec)
    if not isinstance(space, gym_spaces.Box):
        return as_space(space, what)
    low, high = (_from_observation(space, x) for x in (space.low, space.high))
    return Box(low, high, dtype=low.dtype)


def _is_picture(space: gym_spaces.Box) -> bool:
    """Return whether members are pictures of bytes in another layout than ours.

    They are `[channels, height, width]` as Gymnasium's and EnvPool's stacked frames of
    Atari, stacks `[k, height, width, c]` or `[k, c, height, width]` of pictures with
    `c` colours, or grey pictures `[height, width]`. Small tables of bytes are none.
    """
    if space.dtype != np.uint8 or np.any(space.low != 0) or np.any(space.high != 255):
        return False
    shape = space.shape
    if len(shape) == 4:
        begins_with_colours = shape[1] in _COLOURS and shape[1] < min(shape[2:])
        return begins_with_colours or _ends_in_colours(shape)
    is_grey = len(shape) == 2 and min(shape) >= 28
    return is_grey or (len(shape) == 3 and shape[0] < min(shape[1:]))


def _ends_in_colours(shape: tuple[int, ...]) -> bool:
    """Return whether a stack is `[k, height, width, colours]`."""
    return shape[3] in _COLOURS and shape[3] < min(shape[1:3])


def _channels_last(space: gym_spaces.Box, pictures: np.ndarray) -> np.ndarray:
    """Return pictures `[..., *space.shape]` as `[..., height, width, channels]`.

    The channels of a stack are those of its first picture, then those of the next.
    """
    if len(space.shape) == 2:
        return pictures[..., None]
    if len(space.shape) == 3:
        return np.moveaxis(pictures, -3, -1)
    if not _ends_in_colours(space.shape):
        pictures = np.moveaxis(pictures, -3, -1)
    stacked = np.moveaxis(pictures, -4, -2)
    return stacked.reshape(*stacked.shape[:-2], -1)


def from_observation(space: gym_spaces.Space, obs: Any) -> Any:
    """Return an observation of Gymnasium's, or a batch, as arrays of this package."""
    return _by_part(_from_observation, space, obs)


def _from_observation(space: Any, obs: Any) -> np.ndarray:
    if isinstance(space, gym_spaces.Discrete | gym_spaces.MultiDiscrete):
        return np.array(np.asarray(obs) - space.start, np.int32)
    if isinstance(space, gym_spaces.Box) and _is_picture(space):
        obs = _channels_last(space, np.asarray(obs))
    # The type that JAX keeps numbers in, with whole ones within what it holds.
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))
    if dtype.kind in "iu" and dtype != space.dtype:
        ends = np.iinfo(dtype)
        obs = np.clip(obs, ends.min, ends.max)
    return np.array(obs, dtype)


def check_action_space(space: gym_spaces.Space, name: str) -> None:
    """Refuse a box of integers, into which a policy's numbers would be cut.

    Args:
        space: Space of one action, also of one with several parts.
        name: Name of the environment, for the message.

    Raises:
        ValueError: naming the space and the remedy.
    """
    if isinstance(space, gym_spaces.Dict | gym_spaces.Tuple):
        parts = space.spaces
        for part in parts.values() if isinstance(parts, dict) else parts:
            check_action_space(part, name)
    if isinstance(space, gym_spaces.Box) and space.dtype.kind != "f":
        raise ValueError(
            f"actions of {name} must be real numbers or choices, got {space}, a box of "
            "integers; make it a MultiDiscrete in a wrapper."
        )


def batch_action(space: gym_spaces.Space, action: Any) -> Any:
    """Return a batch of actions of this package as Gymnasium takes it.

    Numbers lie within the bounds of a `Box`: those of the policy, which has 32 bits and
    a centre and a radius, may lie beyond by rounding.

    Args:
        action: `[B, ...]` actions, or a dictionary or tuple of such.
    """
    return _by_part(_batch_action, space, action)


def _batch_action(space: Any, action: Any) -> np.ndarray:
    action = np.asarray(action)
    if isinstance(space, gym_spaces.Discrete | gym_spaces.MultiDiscrete):
        return action.astype(space.dtype) + space.start
    if isinstance(space, gym_spaces.Box):
        return np.clip(action.astype(space.dtype), space.low, space.high)
    return action.astype(space.dtype)
