"""From an environment's observation to the floats that a network takes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.types import Array


def obs_shape(space: Any) -> tuple[int, ...]:
    """Return the shape of the features of one observation.

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
    """Turn observations into floats: one-hot for a discrete space, a cast for numbers.

    Images in bytes, from 0 to 255, come out between 0 and 1.

    Args:
        space: Space of the observations.
        obs: `[..., *shape]`; a buffer keeps them as they are, bytes as bytes.

    Returns:
        float32 `[..., *obs_shape(space)]`.
    """
    if hasattr(space, "n"):
        return jax.nn.one_hot(obs, int(space.n))
    features = obs.astype(jnp.float32)
    return features / 255.0 if _is_picture(space) else features


def _is_picture(space: Any) -> bool:
    """Whether observations are `[height, width, channels]` in bytes from 0 to 255."""
    if len(space.shape) != 3 or np.dtype(space.dtype) != np.uint8:
        return False
    bounds = space.low, space.high
    if any(isinstance(bound, Tracer) for bound in bounds):
        return False
    low, high = (np.asarray(bound) for bound in bounds)
    return bool(np.all(low == 0) and np.all(high == 255))
