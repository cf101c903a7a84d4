"""Simulated experiments: how often a test finds a difference that there is."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

BATCH = 256  # The number of simulations whose bootstraps are done side by side.


def standardised(scores: np.ndarray) -> np.ndarray:
    """Return scores of zero mean and unit variance, from which runs are drawn."""
    # Draws from n runs spread less than the runs' estimated population, by the factor
    # sqrt(1 - 1 / n); they are widened to the estimate.
    return (scores - scores.mean()) / (scores.std() or 1.0)


def simulate(
    key: jax.Array,
    pools: tuple[np.ndarray, np.ndarray] | None,
    gap: float,
    spread: np.ndarray,
    simulations: int,
    most: int,
) -> tuple[jax.Array, jax.Array]:
    """Draw scores of two algorithms, `[simulations, at least most]` each.

    The scores of fewer seeds are the first columns.

    Args:
        key: Random key, consumed.
        pools: Scores to draw from, of zero mean and unit variance; normal ones where
            not given.
        gap: Difference of the means, second minus first.
        spread: Standard deviation of each.
        simulations: Number of experiments.
        most: Most seeds of an experiment.
    """
    groups = []
    most = 1 << (most - 1).bit_length()  # Few shapes, so few programs.
    for which in range(2):
        # Each seed draws its own row, so that more seeds leave the first ones as they
        # were.
        keys = jax.vmap(partial(jax.random.fold_in, jax.random.fold_in(key, which)))
        pool = None if pools is None else jnp.asarray(pools[which], jnp.float32)
        shape = _draw(keys(jnp.arange(most)), pool, simulations)
        groups.append(which * gap + float(spread[which]) * shape.T)
    return groups[0], groups[1]


@partial(jax.jit, static_argnames="simulations")
def _draw(keys: jax.Array, pool: jax.Array | None, simulations: int) -> jax.Array:
    if pool is None:
        return jax.vmap(lambda key: jax.random.normal(key, (simulations,)))(keys)
    return jax.vmap(lambda key: jax.random.choice(key, pool, (simulations,)))(keys)


@jax.jit
def welch(
    groups: tuple[jax.Array, jax.Array], numbers: jax.Array, significance: float
) -> jax.Array:
    """Return the share of experiments in which Welch's t-test rejects, `[N]`.

    Args:
        groups: Scores of both, `[simulations, seeds]`.
        numbers: `[N]`, numbers of seeds of which the test is made.
        significance: Probability below which it rejects.
    """

    def moments(values: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        kept = (jnp.arange(values.shape[1]) < number)[None]
        mean = jnp.where(kept, values, 0.0).sum(1) / number
        squares = jnp.where(kept, (values - mean[:, None]) ** 2, 0.0).sum(1)
        return mean, squares / (number - 1) / number

    def rejected(number: jax.Array) -> jax.Array:
        (mean_x, error_x), (mean_y, error_y) = (moments(g, number) for g in groups)
        both = error_x + error_y
        # Welch-Satterthwaite degrees of freedom; 0 / 0 if nothing varies at all.
        freedom = both**2 * (number - 1) / (error_x**2 + error_y**2)
        square = (mean_x - mean_y) ** 2 / both
        # P(|t| > x) = I(v / (v + x^2); v / 2, 1 / 2)
        value = jax.scipy.special.betainc(
            freedom / 2, 0.5, freedom / (freedom + square)
        )
        certain = (both == 0) & (mean_x != mean_y)
        return jnp.mean(jnp.where(both == 0, certain, value < significance))

    return jax.lax.map(rejected, numbers)


@partial(jax.jit, static_argnames="resamples")
def bootstrap(
    key: jax.Array,
    groups: tuple[jax.Array, jax.Array],
    significance: float,
    resamples: int,
) -> jax.Array:
    """Return the share of experiments whose interval of the difference excludes zero.

    Args:
        key: Random key, consumed.
        groups: Scores of both, `[simulations, seeds]`.
        significance: One minus the level of the interval.
        resamples: Resamples of each bootstrap.
    """
    number = groups[0].shape[1]

    def rejected(values: tuple[jax.Array, tuple[jax.Array, jax.Array]]) -> jax.Array:
        index, (x, y) = values
        keys = jax.random.split(jax.random.fold_in(key, index))
        means = [
            group[jax.random.randint(k, (resamples, number), 0, number)].mean(1)
            for k, group in zip(keys, (x, y), strict=True)
        ]
        tail = jnp.array([significance / 2, 1 - significance / 2])
        low, high = jnp.quantile(means[1] - means[0], tail)
        return (low > 0) | (high < 0)

    # Numbers are counted from the far end, because the first ones made the scores.
    index = 2**31 - 1 - jnp.arange(len(groups[0]))
    return jnp.mean(jax.lax.map(rejected, (index, groups), batch_size=BATCH))
