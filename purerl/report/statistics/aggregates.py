"""Point estimates over runs and tasks.

They are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice". `scores` is `[S, M]` (S runs, one per seed, on each of M tasks)
or `[S]` (one task). A numpy array gives a number in double precision; a JAX array may
be traced. NaN is left out of every formula: the policy that put it there, or took it
away, was applied before (see `missing.resolve`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # numpy on the host, JAX under a trace.
STATISTICS = ("iqm", "mean", "median", "optimality_gap")
CUT = 4  # An interquartile mean leaves out one n-th at either end.


def iqm(scores: Array) -> Array:
    """Return the interquartile mean: of the middle half of all runs, tasks pooled.

    As a 25% trimmed mean, `n // 4` runs are left out at either end.
    """
    xp = _namespace(scores)
    pooled = xp.sort(xp.reshape(xp.asarray(scores), (-1,)))  # NaN sorts last
    known = xp.sum(~xp.isnan(pooled))
    rank = xp.arange(pooled.shape[0])
    kept = (rank >= known // CUT) & (rank < known - known // CUT)
    return xp.sum(xp.where(kept, pooled, 0.0)) / xp.sum(kept)


def mean(scores: Array) -> Array:
    """Return the mean over tasks of each task's mean over runs."""
    xp = _namespace(scores)
    return xp.nanmean(task_means(scores))


def median(scores: Array) -> Array:
    """Return the median over tasks of each task's mean over runs."""
    xp = _namespace(scores)
    return xp.nanmedian(task_means(scores))


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """Return how far runs fall short of `target`; better ones count as `target`."""
    xp = _namespace(scores)
    return xp.nanmean(task_means(xp.maximum(target - xp.asarray(scores), 0.0)))


def aggregate(scores: Array, statistic: str, target: float = 1.0) -> Array:
    """Return one of `STATISTICS` by name.

    Args:
        scores: Scores, `[S, M]` or `[S]`.
        statistic: Name in `STATISTICS`.
        target: Target of the optimality gap.
    """
    if statistic == "optimality_gap":
        return optimality_gap(scores, target)
    return {"iqm": iqm, "mean": mean, "median": median}[statistic](scores)


def improvement(x: Array, y: Array) -> Array:
    """Return the probability that a run of X beats one of Y, averaged over tasks.

    The Mann-Whitney statistic U over the number of pairs: a tie is half a win.

    Args:
        x: Scores of X, `[S, M]` or `[S]`.
        y: Scores of Y, `[R, M]` or `[R]`.
    """
    xp = _namespace(x)
    x, y = _columns(xp, x), _columns(xp, y)
    pairs = []
    for task in range(x.shape[1]):
        mine, theirs = xp.sort(x[:, task]), xp.sort(y[:, task])
        known = ~xp.isnan(mine)
        below = xp.searchsorted(theirs, mine, side="left")
        upto = xp.searchsorted(theirs, mine, side="right")
        wins = xp.sum(xp.where(known, 0.5 * (below + upto), 0.0))
        pairs.append(wins / (xp.sum(known) * xp.sum(~xp.isnan(theirs))))
    return xp.mean(xp.stack(pairs))


def profile(scores: Array, thresholds: Array) -> Array:
    """Return the share of runs above each threshold, averaged over tasks, `[K]`."""
    xp = _namespace(scores)
    scores, levels = _columns(xp, scores), xp.asarray(thresholds)
    known = xp.sum(~xp.isnan(scores), axis=0)  # NaN exceeds nothing.
    shares = [(scores > level).sum(0) / known for level in levels]
    return xp.mean(xp.stack(shares), axis=-1)


def task_means(scores: Array) -> Array:
    """Return the mean over runs of each task, `[M]`; NaN of one without any."""
    xp = _namespace(scores)
    scores = _columns(xp, scores)
    known = ~xp.isnan(scores)
    count = xp.sum(known, axis=0)
    total = xp.sum(xp.where(known, scores, 0.0), axis=0)
    return xp.where(count > 0, total / xp.maximum(count, 1), xp.nan)


def _columns(xp: Any, scores: Array) -> Array:
    scores = xp.asarray(scores)
    return scores[:, None] if scores.ndim == 1 else scores


def _namespace(values: Array) -> Any:
    return jnp if isinstance(values, jax.Array) else np
