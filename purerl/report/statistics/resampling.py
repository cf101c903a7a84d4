"""The stratified bootstrap as device programs.

A resample of `[S, M]` scores draws S runs of each task with replacement, independently
per task: all that a statistic needs of it is how often each run was drawn, its *counts*
`[M, S]`. Runs are sorted once, before resampling, so that no resample is sorted again:
a trimmed mean follows from the counts' running sum. Resamples are a loop of narrow
batches on a CPU and of wide ones on accelerators; each has a key of its own, so what is
drawn does not depend on the width.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from purerl.report.statistics.aggregates import CUT

# Two indices are read off one random word up to this many runs: 2**32 / 4096**2 = 256
# words for every pair, so that no index is likelier than another by more than 0.4%.
PAIRED = 4096
MULTIPLY_HIGH = 2**16 - 1  # The largest factor of the 32-bit product below.
# The number of draws of one batch. A CPU wants them in its cache, and enough of them
# that drawing random words runs at full width: 2000 resamples of 4096 runs took 105 ms
# one by one and 52 ms by eight (two cores).
CPU_WORDS = 2**15
BATCH_WORDS = 2**25


def draw_counts(key: jax.Array, known: jax.Array, runs: int) -> jax.Array:
    """Draw how often each run is in one resample, `[M, runs]` int32.

    Args:
        key: Random key, consumed.
        known: The number of runs of each task that take part, `[M]`, the first ones; as
            many are drawn.
        runs: Number S of runs.
    """
    tasks = known.shape[0]
    index = _draw_indices(key, known, runs)
    flat = (index + runs * jnp.arange(tasks)[:, None]).reshape(-1)
    drawn = jnp.arange(runs)[None] < known[:, None]
    counts = jnp.zeros(tasks * runs, jnp.int32)
    counts = counts.at[flat].add(drawn.reshape(-1).astype(jnp.int32))
    return counts.reshape(tasks, runs)


def _draw_indices(key: jax.Array, known: jax.Array, runs: int) -> jax.Array:
    """Indices `[M, runs]`, uniform below `known`."""
    shape = (known.shape[0], runs)
    if runs > MULTIPLY_HIGH:
        return jax.random.randint(key, shape, 0, known[:, None])
    factor = known[:, None].astype(jnp.uint32)
    if runs > PAIRED:
        return _high_product(jax.random.bits(key, shape), factor)
    words = jax.random.bits(key, (shape[0], (runs + 1) // 2))
    # The product's low half is uniform too, and all but independent of the high one.
    pair = (_high_product(words, factor), _high_product(words * factor, factor))
    return jnp.concatenate(pair, axis=1)[:, :runs]


def _high_product(word: jax.Array, factor: jax.Array) -> jax.Array:
    """`floor(word * factor / 2**32)`, for factors below `2**16`."""
    low = ((word & 0xFFFF) * factor) >> 16
    return (((word >> 16) * factor + low) >> 16).astype(jnp.int32)


def trimmed(counts: jax.Array, known: jax.Array) -> jax.Array:
    """Return the part of sorted runs' counts `[N]` in the middle half of the draws."""
    upto = jnp.clip(jnp.cumsum(counts), known // CUT, known - known // CUT)
    return jnp.diff(upto, prepend=known // CUT)


@partial(jax.jit, static_argnames=("statistics", "resamples"))
def aggregate_resamples(
    key: jax.Array,
    scores: jax.Array,
    statistics: tuple[str, ...],
    target: float | jax.Array,
    resamples: int,
) -> jax.Array:
    """Compute statistics of stratified resamples, `[resamples, len(statistics)]`.

    Args:
        key: Random key of the resampling.
        scores: Scores, `[S, M]`; NaN is left out.
        statistics: Names in `aggregates.STATISTICS`.
        target: Target of the optimality gap.
        resamples: Number of resamples.
    """
    ordered, known = _order(scores)
    # One task is in order already; NaN sorts last.
    pooled = jnp.argsort(ordered.reshape(-1)) if len(ordered) > 1 else slice(None)
    values = jnp.nan_to_num(ordered)
    ranked = values.reshape(-1)[pooled]
    total = known.sum()
    middle = total - 2 * (total // CUT)

    def resample(key: jax.Array) -> jax.Array:
        counts = draw_counts(key, known, scores.shape[0])
        means = (counts * values).sum(1) / known
        found = {"mean": jnp.nanmean(means), "median": jnp.nanmedian(means)}
        if "iqm" in statistics:
            weights = trimmed(counts.reshape(-1)[pooled], total)
            found["iqm"] = (weights * ranked).sum() / middle
        short = (counts * jnp.maximum(target - values, 0.0)).sum(1) / known
        found["optimality_gap"] = jnp.nanmean(short)
        return jnp.stack([found[name] for name in statistics])

    return _each(resample, key, resamples, scores.size)


@partial(jax.jit, static_argnames=("statistic", "resamples"))
def stratified_curve_resamples(
    key: jax.Array, values: jax.Array, statistic: str, resamples: int
) -> jax.Array:
    """Return a statistic at every point of resampled curves, `[resamples, T]`.

    Args:
        key: Random key of the resampling.
        values: Curves of S runs of M tasks, `[S, M, T]`.
        statistic: Name in `aggregates.STATISTICS`.
        resamples: Number of resamples.
    """

    def at(scores: jax.Array) -> jax.Array:
        return aggregate_resamples(key, scores, (statistic,), 0.0, resamples)[:, 0]

    return jax.vmap(at, in_axes=2, out_axes=1)(values)


@partial(jax.jit, static_argnames=("resamples",))
def improvement_resamples(
    key: jax.Array, x: jax.Array, y: jax.Array, resamples: int
) -> jax.Array:
    """Return P(X > Y) of resamples of both, `[resamples]`.

    Args:
        key: Random key of the resampling.
        x: Scores of X, `[S, M]`.
        y: Scores of Y, `[R, M]`.
        resamples: Number of resamples.
    """
    (mine, known_x), (theirs, known_y) = _order(x), _order(y)
    side = jax.vmap(jnp.searchsorted, (0, 0))
    below = side(theirs, mine)
    upto = jax.vmap(partial(jnp.searchsorted, side="right"), (0, 0))(theirs, mine)

    def resample(key: jax.Array) -> jax.Array:
        key_x, key_y = jax.random.split(key)
        counts_x = draw_counts(key_x, known_x, x.shape[0])
        counts_y = draw_counts(key_y, known_y, y.shape[0])
        beaten = jnp.pad(jnp.cumsum(counts_y, 1), ((0, 0), (1, 0)))
        # Runs of Y below each run of X, and half of those equal to it.
        twice = jnp.take_along_axis(beaten, below, 1)
        twice += jnp.take_along_axis(beaten, upto, 1)
        share = (counts_x / known_x[:, None]) * (twice / known_y[:, None])
        return 0.5 * jnp.mean(share.sum(1))

    return _each(resample, key, resamples, x.size + y.size)


@partial(jax.jit, static_argnames=("resamples",))
def profile_resamples(
    key: jax.Array, scores: jax.Array, thresholds: jax.Array, resamples: int
) -> jax.Array:
    """Return performance profiles of resamples, `[resamples, K]`.

    Args:
        key: Random key of the resampling.
        scores: Scores, `[S, M]`.
        thresholds: Thresholds, `[K]`.
        resamples: Number of resamples.
    """
    ordered, known = _order(scores)
    find = partial(jnp.searchsorted, v=thresholds, side="right")
    below = jax.vmap(find)(ordered)  # [M, K] runs at or below

    def resample(key: jax.Array) -> jax.Array:
        counts = draw_counts(key, known, scores.shape[0])
        upto = jnp.pad(jnp.cumsum(counts, 1), ((0, 0), (1, 0)))
        share = jnp.take_along_axis(upto, below, 1) / known[:, None]
        return 1.0 - share.mean(0)

    return _each(resample, key, resamples, scores.size)


@partial(jax.jit, static_argnames=("statistic", "resamples"))
def curve_resamples(
    key: jax.Array,
    values: jax.Array,
    known: int | jax.Array,
    statistic: str,
    resamples: int,
) -> jax.Array:
    """Compute IQM or mean of resampled runs at every point, `[resamples, T]`.

    The weights of sorted runs do not depend on their values, so one set of resamples
    serves all points, and a product of matrices does the rest.

    Args:
        key: Random key of the resampling.
        values: Curves, `[S, T]`, sorted over runs, the first `known` of each column
            numbers.
        known: Number of runs that have a score, the same at every point.
        statistic: The name of the statistic, `"iqm"` or `"mean"`.
        resamples: Number of resamples.
    """
    runs = values.shape[0]
    known = jnp.asarray(known, jnp.int32)

    def resample(key: jax.Array) -> jax.Array:
        counts = draw_counts(key, known[None], runs)[0]
        if statistic == "mean":
            return counts / known
        return trimmed(counts, known) / (known - 2 * (known // CUT))

    weights = _each(resample, key, resamples, runs)
    precision = jax.lax.Precision.HIGHEST  # An accelerator would round to 10 bits.
    return jnp.dot(weights, jnp.nan_to_num(values), precision=precision)


def _order(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scores `[M, S]` with each task's runs ascending, NaN last; numbers in each."""
    ordered = jnp.sort(scores.T, axis=1)
    return ordered, (~jnp.isnan(ordered)).sum(1)


def _each(
    resample: Callable[[jax.Array], jax.Array],
    key: jax.Array,
    resamples: int,
    size: int,
) -> jax.Array:
    """`resample` of every resample's own key, in batches that suit the device."""
    words = CPU_WORDS if jax.default_backend() == "cpu" else BATCH_WORDS
    width = min(max(1, words // max(size, 1)), resamples)
    batches = -(-resamples // width)
    numbers = jnp.arange(batches * width).reshape(batches, width)
    each = jax.vmap(lambda number: resample(jax.random.fold_in(key, number)))
    found = jax.lax.map(each, numbers)
    return found.reshape(batches * width, *found.shape[2:])[:resamples]
