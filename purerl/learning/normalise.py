"""Running statistics and what they scale: observations and rewards.

Statistics are frozen while a rollout is collected, and merged with its raw data
afterwards. So the log-probabilities of a rollout and of its learning see the same
normalised observations. Nothing is filtered: an observation that is not a number, as
physics that have blown up give, stays in the statistics and ends the agent's learning.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.learning.collectives import pmean
from purerl.learning.returns import running_returns
from purerl.types import Array


class Moments(NamedTuple):
    """Mean and variance of what was seen.

    Attributes:
        count: `[]` float32, number of samples seen.
        mean: `[*shape]` mean.
        var: `[*shape]`, population variance.
    """

    count: Array
    mean: Array
    var: Array


class RewardScale(NamedTuple):
    """Statistics of discounted returns, by which rewards are scaled.

    Attributes:
        moments: Moments of the running returns.
        running: `[B]` discounted sum of each environment's current episode.
    """

    moments: Moments
    running: Array


def init_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Return zero mean and unit variance, so that normalising does nothing."""
    return Moments(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def merge(moments: Moments, batch: Array, axis_name: str | None = None) -> Moments:
    """Merge a batch into the moments (Chan, Golub & LeVeque 1979).

    Args:
        moments: Statistics of what was seen so far, leaves `[*shape]`.
        batch: `[..., *shape]` samples; all leading axes are samples.
        axis_name: Mapped axis over which the samples are spread, if any.
    """
    batch = batch.reshape(-1, *moments.mean.shape).astype(jnp.float32)
    num = jnp.float32(batch.shape[0])
    if axis_name is not None:
        num = num * jax.lax.axis_size(axis_name)
    mean = pmean(batch.mean(0), axis_name)
    var = pmean(jnp.square(batch - mean[None]).mean(0), axis_name)

    total = moments.count + num
    delta = mean - moments.mean
    weight = num / total
    merged = moments.var * (1 - weight) + var * weight
    # Before anything was seen, `var` is a placeholder that weighs nothing.
    between = jnp.square(delta) * weight * (1 - weight)
    return Moments(total, moments.mean + delta * weight, merged + between)


def normalise(moments: Moments, x: Array, clip: Array | float) -> Array:
    """Standardise and clip.

    Before anything was seen the mean is 0 and the variance 1, so that observations are
    clipped in their own units.

    Args:
        moments: Statistics of what was seen so far, leaves `[*shape]`.
        x: `[..., *shape]` values to standardise.
        clip: Largest absolute value of what is returned.
    """
    scale = jax.lax.rsqrt(moments.var + 1e-8)
    mean, scale = (jnp.broadcast_to(s, x.shape) for s in (moments.mean, scale))
    return jnp.clip((x - mean) * scale, -clip, clip)


def scale_rewards(
    scale: RewardScale,
    reward: Array,
    done: Array,
    *,
    gamma: Array | float,
    clip: Array | float,
    axis_name: str | None = None,
) -> tuple[RewardScale, Array]:
    """Divide rewards by the standard deviation of running discounted returns.

    The mean is not subtracted: that would change the task. The sum of an episode ends
    with it (see `running_returns`).

    Args:
        scale: Statistics before this rollout.
        reward: `[T, B]` rewards.
        done: `[T, B]` bool, the episode ended: `terminated | truncated`.
        gamma: Discount.
        clip: Largest absolute value of a scaled reward.
        axis_name: Mapped axis over which environments are spread, if any.

    Returns:
        Statistics with this rollout in them, and the scaled rewards `[T, B]`.
    """
    running, returns = running_returns(scale.running, reward, done, gamma=gamma)
    moments = merge(scale.moments, returns, axis_name)
    scaled = reward * jax.lax.rsqrt(moments.var + 1e-8)
    return RewardScale(moments, running), jnp.clip(scaled, -clip, clip)


def standardise(advantage: Array, axis_name: str | None = None) -> Array:
    """Scale samples `[...]` (of all devices) to zero mean and unit variance."""
    mean = pmean(advantage.mean(), axis_name)
    var = pmean(jnp.square(advantage - mean).mean(), axis_name)
    return (advantage - mean) / (jnp.sqrt(var) + 1e-8)
