"""Mean and spread of a number that is seen again and again, as moving averages."""

from typing import NamedTuple

import jax.numpy as jnp

from purerl.learning.collectives import pmean
from purerl.types import Array

_EPSILON = 1e-6


class MovingMoments(NamedTuple):
    """Exponential averages of a number and of its square, which begin at zero.

    Attributes:
        mean: `[]` average of the number, not corrected for its beginning.
        square: `[]` average of the square, not corrected for its beginning.
        weight: `[]` weight of what was seen: 1 minus the share of the beginning in both
            averages; 0 at first.
    """

    mean: Array
    square: Array
    weight: Array


def init_moments() -> MovingMoments:
    """Return moments of nothing."""
    return MovingMoments(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def seen(
    moments: MovingMoments,
    values: Array,
    decay: Array | float,
    axis_name: str | None,
) -> MovingMoments:
    """Return the moments after a batch of values.

    Args:
        moments: Moments before it.
        values: `[...]`; a batch counts once, however large it is.
        decay: Share of what was known before.
        axis_name: Mapped axis over which values are spread, if any.
    """
    mean, square = pmean((values.mean(), jnp.square(values).mean()), axis_name)
    return MovingMoments(
        decay * moments.mean + (1.0 - decay) * mean,
        decay * moments.square + (1.0 - decay) * square,
        decay * moments.weight + (1.0 - decay),
    )


def standardised(moments: MovingMoments, values: Array) -> Array:
    """Return values without the moving mean, in units of the moving deviation.

    Args:
        moments: Moments of at least one batch.
        values: `[...]` values to standardise.
    """
    mean = moments.mean / moments.weight
    variance = jnp.maximum(0.0, moments.square / moments.weight - jnp.square(mean))
    return (values - mean) / (jnp.sqrt(variance + _EPSILON**2) + _EPSILON)
