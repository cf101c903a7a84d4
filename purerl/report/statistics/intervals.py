"""Estimates with intervals over thousands of runs: the statistics people call.

Scores are `[S, M]`: S runs (seeds) on each of M tasks, or `[S]` for one task. Intervals
are percentile intervals of the stratified bootstrap (runs are drawn with replacement,
each task by itself), as recommended by Agarwal et al. 2021, whose percentiles lie
further out where runs are few (Hesterberg 2015): resamples of n runs spread less than
samples do. That of the mean of one task is `mean_interval`'s.

There are intervals from ten runs of each task, or from five where there are at least
forty of all tasks together. Of fewer runs of one task the ends are their range; of
fewer runs of several tasks, or of two groups that are compared, there are no ends
(NaN). `Estimate.kind` says which.

What a run without a score is worth is said by `nan`, see `missing`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.report.statistics import aggregates
from purerl.report.statistics.host import (
    FEWEST,
    INTERVAL,
    kind_of,
    mean_interval,
    name_of,
    text_of,
)
from purerl.report.statistics.missing import (
    Missing,
    as_table,
    check_choice,
    check_numbers,
    resolve,
)

# With so many runs of each of several tasks, and so many of all of them together, the
# interval of a pooled statistic holds its level (`experiments/pooled_coverage.py`).
FEWEST_OF_MANY, POOLED = 5, 40


class Estimate(NamedTuple):
    """A statistic, its interval, and what it was computed from.

    Attributes:
        value: The point estimate: a number, or one per threshold or point of a curve.
        low: Lower end of the interval, shaped like `value`.
        high: Upper end of the interval, shaped like `value`.
        missing: The number of runs that had no score, whatever then became of them; for
            a curve one number per point.
        kind: The kind of the ends: `"interval"`, `"range"` of the runs, or `"none"`.
        runs: Number of runs of each task, at least.
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
    statistics: Sequence[str] = aggregates.STATISTICS,
    *,
    nan: Missing = "raise",
    target: float = 1.0,
    confidence: float = 0.95,
    resamples: int = 2_000,
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
    from purerl.report.statistics import resampling

    for name in statistics:
        check_choice("statistics", name, aggregates.STATISTICS)
    check_numbers(confidence, resamples, seed)
    (known,), missing = resolve(scores, nan=nan)
    kind, runs = kind_of_table(known)
    values = [float(aggregates.aggregate(known, name, target)) for name in statistics]
    if kind != "interval":
        pairs = [_range(known, name, target, kind) for name in statistics]
    else:
        centred, centre, scale = standardise(known)
        draws = resampling.aggregate_resamples(
            key(seed), centred, tuple(statistics), (target - centre) / scale, resamples
        )
        # A gap is a difference of scores: it has a scale and no centre.
        shifts = [0.0 if name == "optimality_gap" else centre for name in statistics]
        ends = percentiles(draws, confidence, runs, known.shape[1])
        pairs = (shifts + scale * ends).T
    found = {}
    for name, value, (low, high) in zip(statistics, values, pairs, strict=True):
        ends, its_kind = (low, high), kind
        if name == "mean" and known.shape[1] == 1:
            options = {"confidence": confidence, "resamples": resamples, "seed": seed}
            of_mean = mean_interval(known[:, 0], **options)
            ends, its_kind = of_mean[:2], of_mean.kind
        low, high = map(float, ends)
        found[name] = Estimate(value, low, high, missing, its_kind, runs, confidence)
    return found


def ends_of_mean(
    scores: np.ndarray, most: int, seed: int = 0
) -> Callable[[float, int], np.ndarray]:
    """Resample the mean over several tasks once, for intervals of several confidences.

    Args:
        scores: Scores of S runs of M tasks, `[S, M]`, all of them known.
        most: The highest number of resamples that an interval is to be of.
        seed: Seed of the resampling.

    Returns:
        A function of a confidence and of a number of resamples, up to `most`, that
        returns the two ends that `estimate` finds with these two.
    """
    from purerl.report.statistics import resampling

    runs, tasks = scores.shape
    centred, centre, scale = standardise(scores)
    draws = np.asarray(
        resampling.aggregate_resamples(key(seed), centred, ("mean",), 0.0, most)
    )[:, 0]

    def ends(confidence: float, resamples: int) -> np.ndarray:
        # A resample has a key of its own: the first ones are those of a shorter draw.
        return centre + scale * percentiles(draws[:resamples], confidence, runs, tasks)

    return ends


def _range(
    known: np.ndarray, statistic: str, target: float, kind: str
) -> tuple[float, float]:
    """The range of the runs of one task, in the units of a statistic; NaN of others."""
    if kind == "none":
        return float("nan"), float("nan")
    if statistic == "optimality_gap":
        known = np.maximum(target - known, 0.0)
    return float(np.nanmin(known)), float(np.nanmax(known))


def probability_of_improvement(
    x: Any,
    y: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """Estimate the probability that a run of X scores higher than one of Y, ties half.

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
    from purerl.report.statistics import resampling

    check_numbers(confidence, resamples, seed)
    (x, y), missing = resolve(x, y, nan=nan)
    value = aggregates.improvement(x, y)
    kinds = [kind_of_table(group) for group in (x, y)]
    runs = min(number for _, number in kinds)
    if any(kind != "interval" for kind, _ in kinds):
        return Estimate(float(value), np.nan, np.nan, missing, "none", runs)
    # Ranks are exact in single precision; scores that differ little are not.
    ranks = _ranks(np.concatenate([x, y]))
    draws = resampling.improvement_resamples(
        key(seed), ranks[: len(x)], ranks[len(x) :], resamples
    )
    ends = percentiles(draws, confidence, runs, 2 * x.shape[1])
    # A share in 32 bits may be beside 1, where every run of the one is better.
    low, high = np.clip(np.round(ends, 6), 0.0, 1.0)
    ends = float(low), float(high)
    return Estimate(float(value), *ends, missing, "interval", runs, confidence)


def performance_profile(
    scores: Any,
    thresholds: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = 2_000,
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
    from purerl.report.statistics import resampling

    check_numbers(confidence, resamples, seed)
    levels = np.atleast_1d(np.asarray(thresholds, np.float64))
    if levels.ndim != 1 or not np.isfinite(levels).all() or not levels.size:
        raise ConfigError(
            f"thresholds must be a list of numbers, got {thresholds!r}. Give for "
            "example numpy.linspace(0, 1, 51)."
        )
    (known,), missing = resolve(scores, nan=nan)
    value = aggregates.profile(known, levels)
    kind, runs = kind_of_table(known)
    if kind != "interval":
        nothing = np.full(levels.shape, np.nan)
        return Estimate(value, nothing, nothing, missing, "none", runs)
    both = np.concatenate([known.ravel(), levels])
    ranks = _ranks(both[:, None])[:, 0]  # Exact comparisons, as above.
    draws = resampling.profile_resamples(
        key(seed),
        ranks[: known.size].reshape(known.shape),
        ranks[known.size :],
        resamples,
    )
    # A share in 32 bits may round to just below 0.
    ends = percentiles(draws, confidence, runs, known.shape[1])
    low, high = np.clip(ends, 0.0, 1.0)
    return Estimate(value, low, high, missing, kind, runs, confidence)


def compare(scores: Mapping[str, Any], **options: Any) -> dict[str, Estimate]:
    """Estimate the IQM of groups by name, with one worst score for all (`nan`)."""
    if not scores:
        raise ConfigError(
            "scores must have a group by name at least, got none; give for example "
            '{"own": returns}.'
        )
    options = {"nan": "worst", **options}
    groups, _ = resolve(*scores.values(), nan=options.pop("nan"))
    found = {}
    for (name, raw), group in zip(scores.items(), groups, strict=True):
        missing = int((~np.isfinite(as_table("scores", raw))).sum())
        statistic = options.get("statistic", "iqm")
        rest = {k: v for k, v in options.items() if k != "statistic"}
        result = estimate(group, statistic, nan="drop", **rest)
        found[name] = result._replace(missing=missing)
    return found


def kind_of_table(known: np.ndarray) -> tuple[str, int]:
    """Return the kind of the ends of a statistic, and the fewest runs of a task."""
    counts = np.isfinite(known).sum(0)
    runs = int(counts.min(initial=len(known)))
    if runs >= FEWEST or (runs >= FEWEST_OF_MANY and counts.sum() >= POOLED):
        return "interval", runs
    return (kind_of(runs) if known.shape[1] == 1 else "none"), runs


def has_interval(known: np.ndarray) -> bool:
    """Return whether runs are enough for an interval of their mean, `[S, M]`, `[S]`."""
    return kind_of_table(known.reshape(len(known), -1))[0] == "interval"


def key(seed: int) -> Any:
    """Return the key that the resamples are drawn with."""
    import jax

    return jax.random.key(seed)


def percentiles(draws: Any, confidence: float, runs: int, samples: int) -> np.ndarray:
    """Return the percentile interval over the first axis, `[2, ...]`.

    Args:
        draws: Statistics of resamples, `[R, ...]`.
        confidence: Confidence level.
        runs: Number of runs of each sample, at least.
        samples: Number of samples that are resampled by themselves: of each task, and
            of each group that is compared.
    """
    tail = tail_of(confidence, runs, samples)
    numbers = np.asarray(draws, np.float64)
    return np.quantile(numbers, (tail, 1 - tail), axis=0)


def tail_of(confidence: float, runs: int, samples: int) -> float:
    """Return the share of resamples beyond each end of an interval.

    It is that of a normal distribution beyond the ends of Student's interval, as the
    variance of a sample lacks a share of `1 / runs`, and is itself an estimate.

    Args:
        confidence: Confidence level.
        runs: Number of runs of each sample, at least.
        samples: Number of samples.

    Source: Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section
    4.4, the expanded percentile interval.
    """
    from scipy.special import ndtr, stdtrit

    t = stdtrit(samples * (runs - 1), (1 + confidence) / 2)
    return float(ndtr(-t * math.sqrt(runs / (runs - 1))))


def standardise(
    scores: np.ndarray, axis: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardise scores: the device computes in single precision."""
    centre = np.nanmean(scores, axis=axis)
    scale = np.nanstd(scores, axis=axis)
    scale = np.where(scale > 0, scale, 1.0)
    return ((scores - centre) / scale).astype(np.float32), centre, scale


def _ranks(columns: np.ndarray) -> np.ndarray:
    """Dense ranks of each column, NaN where there is NaN."""
    ranks = np.full(columns.shape, np.nan, np.float32)
    for task, column in enumerate(columns.T):
        known = np.isfinite(column)
        ranks[known, task] = np.unique(column[known], return_inverse=True)[1]
    return ranks
