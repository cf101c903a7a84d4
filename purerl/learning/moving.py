"""Mean and spread of a number that is seen again and again, as moving averages."""

from typing import NamedTuple

import jax.numpy as jnp

from purerl.learning.normalise import mean_and_var
from purerl.types import Array

_EPSILON = 1e-6


class MovingMoments(NamedTuple):
    """Exponential averages of a number, corrected for their beginning at nothing.

    Attributes:
        mean: `[]` average of the number.
        var: `[]` variance around it.
        weight: `[]` weight of what was seen: 1 minus the share of the beginning; 0 at
            first.
    """

    mean: Array
    var: Array
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
    batch_mean, left, batch_var = mean_and_var(values.reshape(-1), axis_name)
    weight = decay * moments.weight + (1.0 - decay)
    share = (1.0 - decay) / weight
    # The difference of two averages of squares would lose all digits of a small spread.
    delta = (batch_mean - moments.mean) + left
    before = moments.var + share * jnp.square(delta)
    return MovingMoments(
        moments.mean + share * delta,
        (1.0 - share) * before + share * batch_var,
        weight,
    )


def standardised(moments: MovingMoments, values: Array) -> Array:
    """Return values without the moving mean, in units of the moving deviation.

    Args:
        moments: Moments of at least one batch.
        values: `[...]` values to standardise.
    """
    deviation = jnp.sqrt(moments.var + _EPSILON**2) + _EPSILON
    return (values - moments.mean) / deviation
