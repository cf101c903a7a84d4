"""Checks of observations of several parts: which keys networks see, and the mask."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from purerl.config import ConfigError
from purerl.envs.base import Environment
from purerl.networks import composite
from purerl.networks.composite import MASK

_ONE_WAY = (
    'an observation {"observation": ..., "action_mask": bool [A]}, of the space '
    "envs.spaces.MultiBinary(A) under action_mask"
)


def check_keys(config: Any, env: Environment, shape: Any) -> None:
    """Refuse keys of networks that an observation does not have.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.
        shape: Shape of the features of one observation.

    Raises:
        ConfigError: naming the field, the key and those that there are.
    """
    for field in ("actor_keys", "critic_keys"):
        keys = getattr(config, field, ())
        if not keys:
            continue
        if not isinstance(keys, tuple) or not all(isinstance(k, str) for k in keys):
            raise ConfigError(
                f"{field} must be keys of the observation, got {keys!r}; for example "
                '("observation",).'
            )
        there = composite.part_keys(shape) if isinstance(shape, Mapping) else ()
        unknown = [key for key in keys if key not in there]
        if unknown or len(set(keys)) < len(keys):
            has = f"has the keys {', '.join(there)}" if there else "is no dictionary"
            raise ConfigError(
                f"{field} must name keys of the observation, each once, got {keys!r}, "
                f"and that of {env.name} {has} (a mask of actions is seen by none)."
            )


def check_mask(config: Any, env: Environment, shape: Any) -> None:
    """Refuse a mask of actions that does not fit the actions, or has no use.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.
        shape: Shape of the features of one observation.

    Raises:
        ConfigError: naming the spaces and the remedy.
    """
    params = env.default_params
    space: Any = env.observation_space(params)
    actions = env.action_space(params)
    if _is_hidden(space):
        raise ConfigError(
            f"{env.name} has the key {MASK!r} inside another part of its observation: "
            f"a mask must be at the top, {_ONE_WAY}; rename what is none."
        )
    if not composite.has_mask(shape):
        return
    if not composite.part_keys(shape):
        raise ConfigError(f"{env.name} has no observation beside its mask: {_ONE_WAY}.")
    num = mask_size(actions)
    if num is None:
        raise ConfigError(
            f"{env.name} has a mask of actions under {MASK!r}, but its actions are "
            f"{actions}, and a mask is for Discrete and MultiDiscrete ones (a "
            "MultiBinary(n) is a MultiDiscrete([2] * n)); rename the key if it is none."
        )
    mask: Any = space["action_mask"]
    is_flags = hasattr(mask, "bits") or (
        hasattr(mask, "low") and np.dtype(mask.dtype).kind in "biu"
    )
    if not is_flags or tuple(mask.shape) != (num,):
        raise ConfigError(
            f"{env.name} has a mask of actions in {mask}, and its actions {actions} "
            f"need {num} truth values: MultiBinary({num}), or a Box of 0 and 1 with "
            "whole numbers of that shape."
        )


def mask_size(actions: Any) -> int | None:
    """Return the size of a mask of some actions; None where they can have none.

    Args:
        actions: Action space.
    """
    if hasattr(actions, "n"):
        return int(actions.n)
    return int(np.sum(actions.nvec)) if hasattr(actions, "nvec") else None


def _is_hidden(space: Any, depth: int = 0) -> bool:
    """Return whether there is a mask's key below the top of a composite space."""
    if not hasattr(space, "spaces"):
        return False
    parts = space.spaces
    if isinstance(parts, dict) and depth and MASK in parts:
        return True
    inner = parts.values() if isinstance(parts, dict) else parts
    return any(_is_hidden(part, depth + 1) for part in inner)
