"""Statistics of runs and of their resamples (the stratified bootstrap).

Scores are `[S, M]`: S runs of M tasks, NaN where there is no score. A resample draws as
many runs of each task as have a score, with replacement. It is kept as how often each
run is drawn, its *counts*; every statistic is a function of the counts `[R, M, S]` of
R resamples.
"""

from collections.abc import Callable, Iterator

import numpy as np

STATISTICS = ("iqm", "mean", "median", "optimality_gap")
CUT = 4  # An interquartile mean leaves out one n-th at either end.
BLOCK = 250_000  # Numbers of a block of resamples, at most: they stay in the cache.
MANY = 1_000  # Of so many runs it is faster to count draws than to draw counts.

Counts = np.ndarray
Statistic = Callable[[Counts], np.ndarray]


def draw_counts(known: np.ndarray, resamples: int, seed: int) -> Iterator[Counts]:
    """Draw the counts of resamples in blocks `[R, M, S]`.

    Each task has a stream of its own, so that what is drawn does not depend on the
    blocks, and fewer resamples are the first ones of more.

    Args:
        known: Whether each run has a score, `[S, M]`; in each task, those that have one
            come first.
        resamples: Number of resamples.
        seed: Seed of the resampling.
    """
    sizes = known.sum(0).astype(int)
    streams = [np.random.default_rng([seed, task]) for task in range(len(sizes))]
    width = max(1, BLOCK // int(sizes.sum()))
    for first in range(0, resamples, width):
        rows = min(width, resamples - first)
        counts = np.zeros((rows, *known.T.shape))
        for task, (stream, size) in enumerate(zip(streams, sizes, strict=True)):
            if size < MANY:
                drawn = stream.multinomial(size, np.full(size, 1 / size), rows)
            else:
                places = stream.integers(size, size=(rows, size))
                drawn = [np.bincount(row, minlength=size) for row in places]
            counts[:, task, :size] = drawn
        yield counts


def bootstrap(
    statistic: Statistic, known: np.ndarray, resamples: int, seed: int
) -> np.ndarray:
    """Return a statistic of every resample, `[resamples, ...]`; see `draw_counts`."""
    return np.concatenate([*map(statistic, draw_counts(known, resamples, seed))])


def ordered(scores: np.ndarray) -> np.ndarray:
    """Return scores, ascending in each task, with NaN behind them."""
    return np.sort(scores, axis=0)


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
    scores = np.reshape(scores, (len(scores), -1))
    scores = scores[:, np.isfinite(scores).any(0)]
    once = np.isfinite(scores.T)[None].astype(float)
    return float(statistic_of(scores, statistic, target)(once)[0])


def statistic_of(scores: np.ndarray, name: str, target: float = 1.0) -> Statistic:
    """Return one of `STATISTICS` of scores `[S, M]` as a function of counts."""
    scores = scores.T
    values = np.where(np.isfinite(scores), scores, 0.0)
    if name == "iqm":
        order = np.argsort(scores, axis=None, kind="stable")
        pooled = values.ravel()[order]
        return lambda counts: middle(counts.reshape(len(counts), -1)[:, order]) @ pooled
    if name == "optimality_gap":
        values = np.maximum(target - values, 0.0)
    centre = np.median if name == "median" else np.mean
    return lambda counts: centre((counts * values).sum(2) / counts.sum(2), axis=1)


def middle(counts: Counts) -> np.ndarray:
    """Return the weights of sorted runs in the mean of the middle half, `[R, N]`."""
    total = int(counts[0].sum())
    cut = total // CUT
    drawn = np.clip(np.cumsum(counts, axis=1), cut, total - cut)
    return np.diff(drawn, axis=1, prepend=cut) / (total - 2 * cut)
