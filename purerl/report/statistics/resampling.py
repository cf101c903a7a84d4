"""Statistics of runs and of their resamples (the stratified bootstrap).

A resample of M samples (one for each task) draws as many runs of each as it has, with
replacement. It is kept as how often each run is drawn, its *counts*: runs are sorted
once, and a statistic of every resample follows from sums over the counts.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

STATISTICS = ("iqm", "mean", "median", "optimality_gap")
CUT = 4  # An interquartile mean leaves out one n-th at either end.
WORDS = 250_000  # Numbers of a block of resamples, at most: they stay in the cache.
MANY = 1_000  # Of so many runs it is faster to count draws than to draw counts.

Counts = np.ndarray  # How often each run is drawn, `[R, N]` for R resamples of N runs.


def aggregate(scores: np.ndarray, statistic: str, target: float = 1.0) -> float:
    """Return one of `STATISTICS` by name; NaN in the scores is left out.

    Args:
        scores: Scores, `[S, M]` or `[S]`.
        statistic: Interquartile mean (all runs of all tasks pooled; as a 25% trimmed
            mean, `n // 4` runs are left out at either end), mean or median over tasks
            of each task's mean over runs, or optimality gap: how far runs fall short of
            `target` on average, where better ones count as `target`.
        target: Target of the optimality gap.
    """
    columns = sorted_columns(np.reshape(scores, (len(scores), -1)))
    columns = [column for column in columns if len(column)]
    return float(statistic_of(columns, statistic, target)(once(columns))[0])


def resampled(
    scores: np.ndarray,
    statistics: Sequence[str],
    resamples: int,
    *,
    seed: int = 0,
    target: float = 1.0,
) -> np.ndarray:
    """Compute statistics of stratified resamples, `[resamples, len(statistics)]`.

    Args:
        scores: Scores, `[S, M]`; NaN is left out.
        statistics: Names in `STATISTICS`.
        resamples: Number of resamples.
        seed: Seed of the resampling.
        target: Target of the optimality gap.
    """
    columns = sorted_columns(scores)
    each = [statistic_of(columns, name, target) for name in statistics]
    return bootstrap(together(each), columns, resamples, seed)


def sorted_columns(table: np.ndarray) -> list[np.ndarray]:
    """Return the known scores of each task of `[S, M]`, ascending."""
    return [np.sort(column[np.isfinite(column)]) for column in table.T]


def by_sample(counts: Counts, columns: Sequence[np.ndarray]) -> list[Counts]:
    """Return the counts of each sample by itself."""
    return np.split(counts, np.cumsum([*map(len, columns)])[:-1], axis=1)


def once(columns: Sequence[np.ndarray]) -> Counts:
    """Return the counts of the runs themselves, of which each counts once, `[1, N]`."""
    return np.ones((1, sum(map(len, columns))), int)


def statistic_of(
    columns: Sequence[np.ndarray], name: str, target: float = 1.0
) -> Callable[[Counts], np.ndarray]:
    """Return a statistic `[R]` of some tasks' runs as a function of counts `[R, N]`."""
    pooled = np.concatenate(columns)
    if name == "iqm":
        if len(columns) == 1:  # It is sorted.
            return iqm_of(pooled)
        order = np.argsort(pooled, kind="stable")
        return lambda counts: middle(counts[:, order]) @ pooled[order]
    values = np.maximum(target - pooled, 0.0) if name == "optimality_gap" else pooled
    sizes = np.array([*map(len, columns)])
    starts = np.cumsum(sizes) - sizes
    centre = np.median if name == "median" else np.mean

    def over_tasks(counts: Counts) -> np.ndarray:
        means = np.add.reduceat(counts * values, starts, axis=1) / sizes
        return centre(means, axis=1)

    return over_tasks


def iqm_of(ordered: np.ndarray) -> Callable[[Counts], np.ndarray]:
    """Return the interquartile mean `[R, ...]` of sorted samples `[N, ...]`."""
    return lambda counts: middle(counts) @ ordered


def together(
    each: Sequence[Callable[[Counts], np.ndarray]],
) -> Callable[[Counts], np.ndarray]:
    """Return several statistics of the same counts, `[R, K]`."""
    return lambda counts: np.stack([compute(counts) for compute in each], axis=1)


def middle(counts: Counts) -> np.ndarray:
    """Return the weights of sorted runs in the mean of the middle half, `[R, N]`."""
    total = int(counts[0].sum())
    cut = total // CUT
    drawn = np.cumsum(counts, axis=1)
    np.clip(drawn, cut, total - cut, out=drawn)
    drawn[:, 1:] -= drawn[:, :-1].copy()
    drawn[:, 0] -= cut
    return drawn / (total - 2 * cut)


def running_sums(counts: Counts) -> np.ndarray:
    """Return how many of the first 0, 1, ... N runs are drawn, `[R, N + 1]`."""
    return np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))


def bootstrap(
    compute: Callable[[Counts], np.ndarray],
    columns: Sequence[np.ndarray],
    resamples: int,
    seed: int,
) -> np.ndarray:
    """Compute something of the counts of every resample, `[resamples, ...]`."""
    drawn = draw_counts([*map(len, columns)], resamples, seed)
    return np.concatenate([compute(counts) for counts in drawn])


def draw_counts(sizes: Sequence[int], resamples: int, seed: int) -> Iterator[Counts]:
    """Draw as many runs of each sample as it has, by blocks of resamples `[R, N]`.

    Each sample has a stream of its own, so that what is drawn does not depend on the
    blocks, and fewer resamples are the first ones of more.
    """
    streams = [np.random.default_rng([seed, number]) for number in range(len(sizes))]
    width = max(1, WORDS // sum(sizes))
    for first in range(0, resamples, width):
        rows = min(width, resamples - first)
        parts = [
            _counts(stream, size, rows)
            for stream, size in zip(streams, sizes, strict=True)
        ]
        yield np.concatenate(parts, axis=1)


def _counts(stream: np.random.Generator, size: int, rows: int) -> Counts:
    if size < MANY:
        return stream.multinomial(size, np.full(size, 1 / size), rows)
    drawn = stream.integers(size, size=(rows, size))
    drawn += size * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * size).reshape(rows, size)
