"""From an environment's observation to the floats that a network takes."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.types import Array


def obs_shape(space: Any) -> tuple[int, ...]:
    """Shape of the features of one observation.

    Raises:
        ValueError: neither a box nor a discrete space.
    """
    if hasattr(space, "n"):
        return (int(space.n),)
    if not hasattr(space, "low"):
        raise ValueError(
            f"observations must be one array (a box or a discrete space), got {space}; "
            "flatten them in a wrapper."
        )
    return tuple(space.shape)


def to_features(space: Any, obs: Array) -> Array:
    """Float features: one-hot for a discrete space, else a cast."""
    if hasattr(space, "n"):
        return jax.nn.one_hot(obs, int(space.n))
    return obs.astype(jnp.float32)
