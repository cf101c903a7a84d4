"""Means, other statistics of runs, and their intervals.

Scores are `[S, M]`: S runs (seeds) on each of M tasks, or `[S]` for one task.

The interval of a mean of n runs of one task is `mean_interval`'s, in every table,
picture and page: from ten runs a 95% interval by the studentised bootstrap; below ten,
the range of the runs; of one run, nothing. Scores of reinforcement learning are often
skewed, or those of two kinds of runs, some that solved the task and some that got
stuck. Ten is the fewest runs from which an interval of such a mean can hold its level:
if one run in five gets stuck, five runs of three samples out of ten show none that did,
and no method can know of what it has not seen. `experiments/interval_coverage.py`
prints the coverage of this and of other methods, which docs/sweeps.md quotes.

Intervals of other statistics, and over several tasks, are percentile intervals of the
stratified bootstrap (runs are drawn with replacement, each task by itself), as
recommended by Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice". The percentiles lie further out where runs are few (Hesterberg
2015), because resamples of n runs spread less than samples do. There are intervals from
ten runs of each task, or from five where there are at least forty of all tasks
together. Of fewer runs of one task the ends are their range; of fewer runs of several
tasks, or of two groups that are compared, there are no ends (NaN).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, shown
from purerl.report.statistics import resampling
from purerl.report.statistics.missing import (
    Missing,
    as_numbers,
    check_choice,
    check_share,
    resolve,
)

INTERVAL = "95% interval"
CURVES = ("iqm", "mean")
FEWEST = 10  # With fewer runs than this the range is given.
# With so many runs of each of several tasks, and so many of all of them together, the
# interval of a pooled statistic holds its level (`experiments/pooled_coverage.py`).
FEWEST_OF_MANY, POOLED = 5, 40
RESAMPLES = 2_000
# A resample of equal runs has no standard error, and its t is infinite: no end of an
# interval lies further from the mean than so many standard errors, or beyond all runs.
# Neither costs coverage.
REACH = 4.5
MANY = 1_000  # With so many runs the mean is as good as normal, and needs no resamples.


class Estimate(NamedTuple):
    """A statistic of runs, with the interval or the range that stands beside it.

    Attributes:
        value: The point estimate: a number, or one per threshold or point of a curve.
        low: Lower end, shaped like `value`; NaN where there is none.
        high: Upper end.
        missing: The number of runs that had no score, whatever then became of them; for
            a curve one number per point.
        kind: The kind of the ends: `"interval"`, `"range"` (few runs, or runs that are
            all equal) or `"none"`.
        runs: Number of runs of each task, at least; for a curve, of its best known
            point.
        confidence: Confidence level of the interval.
    """

    value: Any
    low: Any
    high: Any
    missing: Any = 0
    kind: str = "interval"
    runs: int = 0
    confidence: float = 0.95

    @property
    def words(self) -> str:
        """The name of the ends, for a heading, a legend or a caption."""
        return name_of(self.kind, self.runs, self.confidence)

    def text(self, digits: int = 1, heading: str = INTERVAL) -> str:
        """Return the ends of a number in words; see `text_of`."""
        return text_of(self.low, self.high, self.words, digits, heading)


def name_of(kind: str, runs: int, confidence: float = 0.95) -> str:
    """Return what the two ends beside a mean are, in words.

    Args:
        kind: The kind of the ends: `"interval"`, `"range"` or `"none"`.
        runs: Number of runs that the mean is of.
        confidence: Confidence level of an interval.
    """
    if kind == "interval":
        return f"{100 * confidence:g}% interval"
    if kind == "range":
        return f"range of {runs}"
    return "one run" if runs == 1 else "no interval"


def heading_of(runs: int) -> str:
    """Return the heading of a column or legend for means of so many runs each."""
    return name_of(_kind_of(runs), runs)


def text_of(
    low: float,
    high: float,
    words: str,
    digits: int = 1,
    heading: str = INTERVAL,
    sign: str = "",
) -> str:
    """Write two ends: `1.0 to 2.0`; `no spread` if equal; `-` without ends.

    Args:
        low: Lower end.
        high: Upper end.
        words: What the ends are, in words: `name_of`, or `heading_of` for a mean.
        digits: Number of decimal places.
        heading: The words with which the reader has been told what the ends are; where
            they are something else, it is said behind them.
        sign: Sign before positive numbers: `"+"`, or nothing.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "-"
    if low == high:
        return "no spread"
    ends = f"{low:{sign},.{digits}f} to {high:{sign},.{digits}f}"
    return ends if words == heading else f"{ends}, {words}"


def nanmean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of what is known; NaN, without a warning, where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_interval(
    values: np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the mean over the first axis (runs), with its interval or their range.

    Args:
        values: Values of S runs, `[S, ...]`; a value that is not finite counts as
            missing.
        confidence: Share of samples of whose intervals the mean is to be in.
        resamples: Number of resamples of the bootstrap.
        seed: Number that the resamples are drawn from.

    Returns:
        Means and ends `[...]`. Of a curve with ten known runs somewhere, points at
        which fewer are known have no ends.

    Raises:
        ConfigError: values that are no numbers of runs, a confidence that is no share,
            or that resamples cannot reach.

    Source: the studentised bootstrap (bootstrap-t) of Efron and Tibshirani 1993, "An
    Introduction to the Bootstrap", chapter 12.
    """
    check_share("confidence", confidence)
    array = as_numbers("values", values)
    if not array.ndim or not len(array):
        raise ConfigError(
            f"values must have a row for each run, got {shown(values)}; give at least "
            "one run, such as [1.0]."
        )
    table = array.reshape(len(array), -1)
    known = np.isfinite(table)
    counts = known.sum(0)
    runs = int(counts.max(initial=0))
    kind = _kind_of(runs)
    ordered = np.sort(np.where(known, table, np.nan), axis=0)  # NaN sorts last
    low, high = np.full((2, table.shape[1]), np.nan)
    for count in np.unique(counts):
        at = np.flatnonzero(counts == count)
        if kind == "range" and count > 1:
            low[at], high[at] = ordered[0, at], ordered[count - 1, at]
        elif count >= FEWEST:
            low[at], high[at] = _studentised(
                ordered[:count, at], confidence, resamples, seed
            )
    if kind == "interval" and not (high > low).any():
        kind = "range"
    parts = (nanmean(table), low, high, len(table) - counts)
    value, low, high, missing = (x.reshape(array.shape[1:])[()] for x in parts)
    return Estimate(value, low, high, missing, kind, runs, confidence)


def _studentised(
    values: np.ndarray, confidence: float, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ends `[K]` of the intervals of means of `values` `[n, K]`, all of them known."""
    runs = len(values)
    tail = (1 - confidence) / 2
    mean = np.clip(values.mean(0), values.min(0), values.max(0))  # They may be equal.
    centred = values - mean
    error = np.sqrt((centred**2).sum(0) / (runs - 1) / runs)
    if runs >= MANY:
        half = NormalDist().inv_cdf(1 - tail) * error
        return mean - half, mean + half
    if tail * (resamples + 1) < 1:
        raise ConfigError(
            f"confidence {confidence!r} is more than {resamples:,} resamples can say. "
            "Give a smaller confidence, more resamples, or more runs."
        )
    drawn = np.concatenate(
        [*resampling.draw_counts(np.ones((runs, 1)), resamples, seed)]
    )
    weights = drawn[:, 0] / runs
    width = max(1, resampling.BLOCK // resamples)
    parts = range(0, values.shape[1], width)
    ends = [_quantiles(weights, centred[:, at : at + width], tail) for at in parts]
    below, above = np.concatenate(ends, axis=1) if ends else np.zeros((2, 0))
    # A high t of a resample stands for a mean that lies low, and the other way.
    low = mean - np.clip(above, 0, REACH) * error
    high = mean + np.clip(-below, 0, REACH) * error
    return np.maximum(low, values.min(0)), np.minimum(high, values.max(0))


def _quantiles(weights: np.ndarray, centred: np.ndarray, tail: float) -> np.ndarray:
    """Lower and upper quantile `[2, K]` of Student's t of every resample."""
    runs = len(centred)
    means = weights @ centred
    squares = weights @ centred**2
    spread = np.maximum(squares - means**2, 0.0)
    # If all runs are equal, only rounding is left.
    equal = spread <= 1e-12 * (centred**2).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(
            equal,
            np.where(means == 0, 0.0, np.sign(means) * np.inf),
            means / np.sqrt(spread / (runs - 1)),
        )
    tail_rank = round(tail * (len(t) + 1)) - 1
    ranks = (tail_rank, len(t) - 1 - tail_rank)
    return np.partition(t, ranks, axis=0)[list(ranks)]


def estimate(scores: Any, statistic: str = "iqm", **options: Any) -> Estimate:
    """Estimate one statistic of scores, with its interval.

    Args:
        scores: Scores, `[S, M]` or `[S]`.
        statistic: Name of the statistic, see `estimates`.
        **options: Options of `estimates`.
    """
    return estimates(scores, (statistic,), **options)[statistic]


def estimates(
    scores: Any,
    statistics: Sequence[str] = resampling.STATISTICS,
    *,
    nan: Missing = "raise",
    target: float = 1.0,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Estimate statistics with bootstrap intervals, all from the same resamples.

    Args:
        scores: Scores of S runs of M tasks, `[S, M]` or `[S]`.
        statistics: Names of statistics: iqm, mean, median (of task means),
            optimality_gap.
        nan: The policy for runs without a score; see `missing`.
        target: Target of the optimality gap.
        confidence: Confidence level of the intervals.
        resamples: Number of resamples of the bootstrap.
        seed: Seed of the resampling.

    Returns:
        An `Estimate` by name.

    Raises:
        ConfigError: an unknown statistic or policy, scores of another shape or kind,
            or NaN with `nan="raise"`.
    """
    for name in statistics:
        check_choice("statistics", name, resampling.STATISTICS)
    check_share("confidence", confidence)
    options = {"confidence": confidence, "resamples": resamples, "seed": seed}
    (scores,), missing = resolve(scores, nan=nan)
    scores = resampling.ordered(scores)
    each = [resampling.statistic_of(scores, name, target) for name in statistics]

    def together(counts: resampling.Counts) -> np.ndarray:
        return np.stack([compute(counts) for compute in each], axis=1)

    whole = _estimate_of(together, [scores], missing, **options)
    found = {}
    for number, name in enumerate(statistics):
        value, low, high = (float(part[number]) for part in whole[:3])
        kind = whole.kind
        if name == "mean" and scores.shape[1] == 1:
            own = mean_interval(scores[:, 0], **options)
            low, high, kind = own.low, own.high, own.kind
        elif kind == "none" and scores.shape[1] == 1 and whole.runs > 1:
            is_gap = name == "optimality_gap"
            shown = np.maximum(target - scores, 0.0) if is_gap else scores
            low, high, kind = np.nanmin(shown), np.nanmax(shown), "range"
        ends = float(low), float(high)
        found[name] = Estimate(value, *ends, missing, kind, whole.runs, confidence)
    return found


def probability_of_improvement(
    x: Any,
    y: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the probability that a run of X scores higher than one of Y, ties half.

    It is the Mann-Whitney statistic U over the number of pairs, averaged over tasks.

    Args:
        x: Scores of X, `[S, M]` or `[S]`.
        y: Scores of Y, `[R, M]` or `[R]`: the same tasks, any number of runs.
        nan: The policy for runs without a score; the worst is that of both.
        confidence: Confidence level of the interval.
        resamples: Number of resamples of the bootstrap, which draws runs of X and of Y.
        seed: Seed of the resampling.

    Raises:
        ConfigError: see `estimates`; different numbers of tasks.
    """
    check_share("confidence", confidence)
    tables, missing = resolve(x, y, nan=nan)
    first, second = tables = [resampling.ordered(table) for table in tables]
    # What each run of X is worth against each run of Y, `[S, R, M]`.
    above, below = first[:, None] > second, first[:, None] < second
    wins = np.moveaxis(0.5 + 0.5 * above - 0.5 * below, 2, 0)

    def shares(counts: resampling.Counts) -> np.ndarray:
        mine, theirs = np.split(np.moveaxis(counts, 1, 0), 2)
        mine, theirs = mine[..., : len(first)], theirs[..., : len(second)]
        won = (mine @ wins * theirs).sum(2) / (mine.sum(2) * theirs.sum(2))
        return won.mean(0)

    return _estimate_of(shares, tables, missing, confidence, resamples, seed)


def performance_profile(
    scores: Any,
    thresholds: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate the share of runs above each threshold (the run-score distribution).

    Args:
        scores: Scores of S runs of M tasks, `[S, M]` or `[S]`.
        thresholds: Thresholds, `[K]`.
        nan: The policy for runs without a score.
        confidence: Confidence level of the intervals, each threshold by itself.
        resamples: Number of resamples of the bootstrap.
        seed: Seed of the resampling.

    Returns:
        Arrays `[K]`.

    Raises:
        ConfigError: see `estimates`; no thresholds.
    """
    check_share("confidence", confidence)
    levels = np.atleast_1d(np.asarray(thresholds, np.float64))
    if levels.ndim != 1 or not np.isfinite(levels).all() or not levels.size:
        raise ConfigError(
            f"thresholds must be a list of numbers, got {thresholds!r}. Give for "
            "example numpy.linspace(0, 1, 51)."
        )
    (scores,), missing = resolve(scores, nan=nan)
    scores = resampling.ordered(scores)
    above = (scores.T[:, :, None] > levels).astype(float)

    def shares(counts: resampling.Counts) -> np.ndarray:
        by_task = np.moveaxis(counts, 1, 0)
        return (by_task @ above / by_task.sum(2, keepdims=True)).mean(0)

    return _estimate_of(shares, [scores], missing, confidence, resamples, seed)


def _estimate_of(
    statistic: resampling.Statistic,
    tables: Sequence[np.ndarray],
    missing: int,
    confidence: float,
    resamples: int,
    seed: int,
) -> Estimate:
    """Estimate a statistic of the counts of all runs, whose groups stand side by side.

    Args:
        tables: Scores of each group, `[S, M]`, in the order of `resampling.ordered`.
    """
    longest = max(map(len, tables))
    each = [np.isfinite(table) for table in tables]
    each = [np.pad(of, ((0, longest - len(of)), (0, 0))) for of in each]
    known = np.concatenate(each, axis=1)
    value = statistic(known.T[None].astype(float))[0]
    low, high = np.full((2, *np.shape(value)), np.nan)
    kinds, numbers = zip(*map(_kind_of_table, tables), strict=True)
    kind, runs = "none", min(numbers)
    if set(kinds) == {"interval"}:
        kind = "interval"
        draws = resampling.bootstrap(statistic, known, resamples, seed)
        low, high = _percentiles(draws, confidence, runs, known.shape[1])
    return Estimate(value, low, high, missing, kind, runs, confidence)


def curve(
    values: Any,
    statistic: str = "iqm",
    *,
    nan: Missing = "drop",
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Estimate IQM or mean over runs at every point of a curve, with intervals.

    Args:
        values: Curves, `[S, T]`, a row per run, or `[S, M, T]` with runs of M tasks (or
            configurations), which are resampled each by itself.
        statistic: Name of the statistic, iqm or mean.
        nan: The policy for missing points. Here the default drops them, as unfinished
            and shorter runs have gaps that say nothing bad of them; points that no run
            has are NaN.
        confidence: Confidence level of the interval at each point.
        resamples: Number of resamples of the bootstrap; all points share them.
        seed: Seed of the resampling.

    Returns:
        Arrays `[T]`. Where a curve has intervals, points of too few known runs have no
        ends; a curve of few runs has their range.

    Raises:
        ConfigError: see `estimates`.
    """
    check_choice("statistic", statistic, CURVES)
    check_share("confidence", confidence)
    raw = as_numbers("values", values)
    raw = raw if raw.ndim == 3 else raw.reshape(len(raw), 1, -1)
    (flat,), _ = resolve(raw.reshape(len(raw), -1), nan=nan, gaps=True)
    table = resampling.ordered(flat.reshape(raw.shape))
    _, tasks, points = table.shape
    missing = (~np.isfinite(raw)).sum((0, 1))
    kinds = [_kind_of_table(table[:, :, t]) for t in range(points)]
    # The kind of a curve's ends is that of the point of which most is known.
    order = ("none", "range", "interval")
    kind, runs = max(kinds, key=lambda of: (order.index(of[0]), of[1]))
    value, low, high = np.full((3, points), np.nan)
    for t in np.flatnonzero(np.isfinite(table).any((0, 1))):
        value[t] = resampling.aggregate(table[:, :, t], statistic)
    if tasks == 1 and (statistic == "mean" or kind != "interval"):
        # The range of few runs is the same for both statistics.
        options = {"confidence": confidence, "resamples": resamples, "seed": seed}
        ends = mean_interval(table[:, 0], **options)[1:3]
        return Estimate(value, *ends, missing, kind, runs, confidence)
    sizes = np.isfinite(table).sum(0)
    has_ends = np.array([of == "interval" for of, _ in kinds])
    for size in np.unique(sizes[:, has_ends], axis=1).T:
        at = np.flatnonzero(has_ends & (sizes == size[:, None]).all(0))
        draw = _curve_statistic(table[:, :, at], statistic)
        known = np.isfinite(table[:, :, at[0]])
        draws = resampling.bootstrap(draw, known, resamples, seed)
        low[at], high[at] = _percentiles(draws, confidence, int(size.min()), tasks)
    return Estimate(value, low, high, missing, kind, runs, confidence)


def _curve_statistic(table: np.ndarray, name: str) -> resampling.Statistic:
    """A statistic of a sorted curve `[S, M, T]` as a function of counts, `[R, T]`."""
    if table.shape[1] == 1:  # One set of weights serves the sorted runs of all points.
        values = np.where(np.isfinite(table[:, 0]), table[:, 0], 0.0)
        return lambda counts: resampling.middle(counts[:, 0]) @ values
    points = range(table.shape[2])
    each = [resampling.statistic_of(table[:, :, t], name) for t in points]
    return lambda counts: np.stack([compute(counts) for compute in each], axis=1)


def _kind_of(runs: int) -> str:
    """The kind of the ends for so many runs of one task."""
    return "none" if runs < 2 else "range" if runs < FEWEST else "interval"


def _kind_of_table(known: np.ndarray) -> tuple[str, int]:
    """The kind of the ends of statistics of `[S, M]`, and the fewest runs of a task."""
    counts = np.isfinite(known).sum(0)
    runs = int(counts.min(initial=len(known)))
    if runs >= FEWEST or (runs >= FEWEST_OF_MANY and counts.sum() >= POOLED):
        return "interval", runs
    return (_kind_of(runs) if known.shape[1] == 1 else "none"), runs


def has_interval(known: np.ndarray) -> bool:
    """Return whether runs are enough for an interval of their mean, `[S, M]`, `[S]`."""
    return _kind_of_table(known.reshape(len(known), -1))[0] == "interval"


def _percentiles(
    draws: np.ndarray, confidence: float, runs: int, samples: int
) -> np.ndarray:
    """The percentile interval over the first axis, `[2, ...]`; see `tail_of`."""
    tail = tail_of(confidence, runs, samples)
    return np.quantile(draws, (tail, 1 - tail), axis=0)


def tail_of(confidence: float, runs: int, samples: int) -> float:
    """Return the share of resamples beyond each end of an interval.

    It is that of a normal distribution beyond the ends of Student's interval, as the
    variance of a sample lacks a share of `1 / runs`, and is itself an estimate.

    Args:
        confidence: Confidence level.
        runs: Number of runs of each sample, at least.
        samples: Number of samples that are resampled by themselves: of each task, and
            of each group that is compared.

    Source: Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section
    4.4, the expanded percentile interval.
    """
    from scipy.special import ndtr, stdtrit

    t = stdtrit(samples * (runs - 1), (1 + confidence) / 2)
    return float(ndtr(-t * math.sqrt(runs / (runs - 1))))
