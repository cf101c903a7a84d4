"""Averages: over samples, over devices, and running ones that normalise.

Statistics are frozen while a rollout is collected, and merged with its raw data
afterwards. So the log-probabilities of a rollout and of its learning see the same
normalised observations. Bad transitions, with numbers that are not finite, have no part
in them. What lies beyond 1e15 counts as 1e15, so that squares are finite.

One environment's step moves a mean of millions of steps by less than a float32 beside
that mean can hold, so that plain sums would stop moving. Every statistic therefore has
a second number, the rest that its first one leaves out (Kahan 1965).

On XLA's CPU backend the collectives of a program must form one chain: those that do not
depend on one another may run at once, and its in-process all-reduce then confuses them
(seen with jaxlib 0.10.2 as crashes in `ReduceScatter`, in 4 of 8 processes). So a
pytree is reduced in one piece, and `after` makes one phase wait for another.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from purerl.learning.returns import running_returns
from purerl.types import Array, PyTree

# The mean of the squares of 80 million such numbers is still a float32.
_FARTHEST = 1e15


class Moments(NamedTuple):
    """Mean and variance of what was seen.

    Attributes:
        count: `[]` float32, number of samples seen.
        mean: `[*shape]` mean.
        var: `[*shape]`, population variance.
        count_rest: `[]`, what the number of samples is above `count`.
        mean_rest: `[*shape]`, what the mean is above `mean`.
        var_rest: `[*shape]`, what the variance is above `var`.
    """

    count: Array
    mean: Array
    var: Array
    count_rest: Array
    mean_rest: Array
    var_rest: Array


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
    zero, zeros = jnp.zeros(()), jnp.zeros(shape)
    return Moments(zero, zeros, jnp.ones(shape), zero, zeros, zeros)


def merge(moments: Moments, batch: Array, axis_name: str | None = None) -> Moments:
    """Merge a batch into the moments (Chan, Golub & LeVeque 1979).

    Args:
        moments: Statistics of what was seen so far, leaves `[*shape]`.
        batch: `[..., *shape]` samples; all leading axes are samples.
    """
    batch = batch.reshape(-1, *moments.mean.shape).astype(jnp.float32)
    num = jnp.float32(batch.shape[0])
    if axis_name is not None:
        num = num * jax.lax.axis_size(axis_name)
    mean, mean_left, var = mean_and_var(batch, axis_name)

    # Before anything was seen, the variance of one is a placeholder.
    seen = jnp.where(moments.count == 0, 0.0, moments.var)
    count, count_rest = _add(moments.count, moments.count_rest, num)
    weight = num / count
    delta = (mean - moments.mean) - moments.mean_rest + mean_left
    between = jnp.square(delta) * (1 - weight)
    wider = (var - seen) - moments.var_rest + between
    new_mean, mean_rest = _add(moments.mean, moments.mean_rest, delta * weight)
    new_var, var_rest = _add(seen, moments.var_rest, wider * weight)
    return Moments(count, new_mean, new_var, count_rest, mean_rest, var_rest)


def mean_and_var(batch: Array, axis_name: str | None) -> tuple[Array, Array, Array]:
    """Return mean, what the mean leaves out, and population variance, `[*shape]` each.

    A float32 average of 256 numbers of 1000.1 is 1000.0997. So the average of what is
    left is taken too: a constant has variance 0.

    Args:
        batch: `[N, *shape]` samples.
    """
    batch = jnp.clip(batch, -_FARTHEST, _FARTHEST)
    mean = pmean(batch.mean(0), axis_name)
    far = batch - mean[None]
    left, square = pmean((far.mean(0), jnp.square(far).mean(0)), axis_name)
    return mean, left, jnp.maximum(square - jnp.square(left), 0.0)


def _add(value: Array, rest: Array, step: Array) -> tuple[Array, Array]:
    """Add to a number and the rest that it leaves out; return both (Knuth 1969)."""
    step = step + rest
    total = value + step
    added = total - value
    return total, (value - (total - added)) + (step - added)


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
    axis_name: str | None,
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
    return (advantage - mean) / (root(var) + 1e-8)


@jax.custom_jvp
def root(square: Array) -> Array:
    """Return the square root, with a derivative of 0 at 0, where it has none.

    A meta-gradient through a gradient of zero, or through equal advantages, would be no
    number. The rule is apart from the root, because a choice in its place costs an
    accelerator a kernel.
    """
    return jnp.sqrt(square)


@root.defjvp
def _root_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (square,), (moved,) = primals, tangents
    found = root(square)
    is_zero = square == 0
    slope = jnp.where(is_zero, 0.0, 0.5 / jnp.where(is_zero, 1.0, found))
    return found, slope * moved


def explained_variance(value: Array, target: Array, axis_name: str | None) -> Array:
    """Return `1 - Var[target - value] / Var[target]`; 1 is perfect, 0 a constant guess.

    Args:
        value: `[N]` predicted values.
        target: `[N]` targets of the predictions.
    """
    pair = jnp.stack([target, target - value])
    mean = pmean(pair.mean(1, keepdims=True), axis_name)
    spread, left = pmean(jnp.square(pair - mean).mean(1), axis_name)
    return 1.0 - left / jnp.maximum(spread, 1e-8)


def means(samples: dict[str, Array]) -> dict[str, Array]:
    """Average what a minibatch has of each sample, all names in one reduction.

    Every reduction is a kernel of its own, or several, in each gradient step.

    Args:
        samples: Name -> `[..., N]`; a truth value counts as 0 or 1.

    Returns:
        Name -> float32 `[...]`.
    """
    rows = jnp.stack([x.astype(jnp.float32) for x in samples.values()])
    return dict(zip(samples, rows.mean(axis=-1), strict=True))


def pmean(tree: PyTree, axis_name: str | None) -> PyTree:
    """Return the mean of floats over the mapped axis, or `tree` itself without one."""
    if axis_name is None:
        return tree
    flat, restore = ravel_pytree(tree)
    return restore(jax.lax.pmean(flat, axis_name))


def psum(tree: PyTree, axis_name: str | None) -> PyTree:
    """Sum over the mapped axis, or `tree` itself without one; leaves are floats."""
    if axis_name is None:
        return tree
    flat, restore = ravel_pytree(tree)
    return restore(jax.lax.psum(flat, axis_name))


def pmax(x: Array, axis_name: str | None) -> Array:
    """Return the maximum over the mapped axis, or `x` itself without one."""
    return x if axis_name is None else jax.lax.pmax(x, axis_name)


def after(tree: PyTree, anchor: Array, axis_name: str | None) -> PyTree:
    """Return `tree` unchanged, but not before the number `anchor` is known.

    Adds a zero that the compiler cannot tell from a number. Without a mapped axis
    nothing needs an order and `tree` is returned as it is.

    Args:
        tree: Pytree of arrays.
        anchor: Number that is to be known first.
        axis_name: Mapped axis, if any.
    """
    if axis_name is None:
        return tree
    zero = jnp.nan_to_num(jnp.minimum(jnp.abs(anchor), 0.0))
    return jax.tree.map(lambda x: x + zero.astype(x.dtype), tree)


def vary_like(tree: PyTree, like: Array) -> PyTree:
    """Mark `tree` as differing between the devices over which the key `like` does.

    Values stay as they are. `jax.shard_map` checks that what a loop carries is marked
    alike before and after, and a constant start is marked as the same everywhere.
    """
    axes = _varying_axes(jax.random.key_data(like))
    if not axes:
        return tree

    def mark(x: Array) -> Array:
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(
                mark(jax.random.key_data(x)), impl=jax.random.key_impl(x)
            )
        missing = tuple(axes - _varying_axes(x))
        if not missing:
            return x
        return jax.lax.pcast(x, missing, to="varying")

    return jax.tree.map(mark, tree)


def _varying_axes(x: Array) -> frozenset[str]:
    """Names of the axes of `jax.shard_map` over which `x` is marked as differing."""
    aval = jax.typeof(x)
    manual = getattr(aval, "manual_axis_type", None)
    if manual is not None:
        return manual.varying
    # Before jax 0.10 the attribute was called vma.
    return getattr(aval, "vma", frozenset())
