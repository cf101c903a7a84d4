"""Estimates with intervals over thousands of runs: the statistics people call.

Scores are `[S, M]`: S runs (seeds) on each of M tasks, or `[S]` for one task. Intervals
are percentile intervals of the stratified bootstrap (runs are drawn with replacement,
each task by itself), as recommended by Agarwal et al. 2021.

What a run without a score is worth is said by `nan`, see `missing`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.report.statistics import aggregates
from purerl.report.statistics.missing import Missing, as_table, check_choice, resolve

CURVES = ("iqm", "mean")


class Estimate(NamedTuple):
    """A statistic, its interval, and what it was computed from.

    Attributes:
        value: the point estimate: a number, or one per threshold or point of a curve.
        low: lower end of the interval, shaped like `value`.
        high: upper end.
        missing: how many runs had no score, whatever then became of them; for a curve
            one number per point.
    """

    value: Any
    low: Any
    high: Any
    missing: Any = 0


def estimate(scores: Any, statistic: str = "iqm", **options: Any) -> Estimate:
    """One statistic of scores `[S, M]` or `[S]`; `options` are those of `estimates`."""
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
    """Statistics with bootstrap intervals, all from the same resamples.

    Args:
        scores: `[S, M]` or `[S]`.
        statistics: any of iqm, mean, median (of task means), optimality_gap.
        nan: what a run without a score is worth; see `missing`.
        target: of the optimality gap.
        confidence: of the intervals.
        resamples: of the bootstrap.
        seed: of the resampling.

    Returns:
        An `Estimate` by name.

    Raises:
        ConfigError: an unknown statistic or policy, scores of another shape or kind,
            or NaN with `nan="raise"`.
    """
    from purerl.report.statistics import resampling

    for name in statistics:
        check_choice("statistics", name, aggregates.STATISTICS)
    _check_numbers(confidence, resamples)
    (known,), missing = resolve(scores, nan=nan)
    centred, centre, scale = _centre(known)
    draws = resampling.aggregate_resamples(
        _key(seed), centred, tuple(statistics), (target - centre) / scale, resamples
    )
    low, high = _interval(draws, confidence)
    found = {}
    for i, name in enumerate(statistics):
        # A gap is a difference of scores: it has a scale and no centre.
        shift = 0.0 if name == "optimality_gap" else centre
        ends = [float(shift + scale * end[i]) for end in (low, high)]
        value = float(aggregates.aggregate(known, name, target))
        found[name] = Estimate(value, ends[0], ends[1], missing)
    return found


def probability_of_improvement(
    x: Any,
    y: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """Probability that a run of X scores higher than a run of Y, ties half.

    Args:
        x: `[S, M]` or `[S]`.
        y: `[R, M]` or `[R]`: the same tasks, any number of runs.
        nan: what a run without a score is worth; the worst is that of both.
        confidence: of the interval.
        resamples: of the bootstrap, which draws runs of X and of Y.
        seed: of the resampling.

    Raises:
        ConfigError: see `estimates`; different numbers of tasks.
    """
    from purerl.report.statistics import resampling

    _check_numbers(confidence, resamples)
    (x, y), missing = resolve(x, y, nan=nan)
    value = aggregates.improvement(x, y)
    # Ranks are exact in single precision; scores that differ little are not.
    ranks = _ranks(np.concatenate([x, y]))
    draws = resampling.improvement_resamples(
        _key(seed), ranks[: len(x)], ranks[len(x) :], resamples
    )
    low, high = _interval(draws, confidence)
    return Estimate(float(value), float(low), float(high), missing)


def performance_profile(
    scores: Any,
    thresholds: Any,
    *,
    nan: Missing = "raise",
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """Share of runs above each threshold (the run-score distribution).

    Args:
        scores: `[S, M]` or `[S]`.
        thresholds: `[K]`.
        nan: what a run without a score is worth.
        confidence: of the intervals, each threshold by itself.
        resamples: of the bootstrap.
        seed: of the resampling.

    Returns:
        Arrays `[K]`.

    Raises:
        ConfigError: see `estimates`; no thresholds.
    """
    from purerl.report.statistics import resampling

    _check_numbers(confidence, resamples)
    levels = np.atleast_1d(np.asarray(thresholds, np.float64))
    if levels.ndim != 1 or not np.isfinite(levels).all() or not levels.size:
        raise ConfigError(
            f"thresholds must be a list of numbers, got {thresholds!r}. Give for "
            "example numpy.linspace(0, 1, 51)."
        )
    (known,), missing = resolve(scores, nan=nan)
    both = np.concatenate([known.ravel(), levels])
    ranks = _ranks(both[:, None])[:, 0]  # Exact comparisons, as above.
    draws = resampling.profile_resamples(
        _key(seed),
        ranks[: known.size].reshape(known.shape),
        ranks[known.size :],
        resamples,
    )
    value = aggregates.profile(known, levels)
    low, high = _interval(draws, confidence)
    return Estimate(value, low, high, missing)


def curve(
    values: Any,
    statistic: str = "iqm",
    *,
    nan: Missing = "drop",
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """IQM or mean over runs at every point of a curve, with pointwise intervals.

    Args:
        values: `[S, T]`, a row per run, or `[S, M, T]` with runs of M tasks (or
            configurations), which are resampled each by itself.
        statistic: iqm or mean.
        nan: what a missing point is worth. Here the default drops it, as unfinished and
            shorter runs have gaps that say nothing bad of them; points that no run
            has are NaN.
        confidence: of the interval at each point.
        resamples: of the bootstrap; all points share them.
        seed: of the resampling.

    Returns:
        Arrays `[T]`.

    Raises:
        ConfigError: see `estimates`.
    """
    check_choice("statistic", statistic, CURVES)
    _check_numbers(confidence, resamples)
    raw = np.asarray(values)
    shape = raw.shape if raw.ndim == 3 else (len(raw), 1, -1)
    (flat,), _ = resolve(raw.reshape(len(raw), -1), nan=nan, gaps=True)
    table = flat.reshape(shape)
    missing = (~np.isfinite(raw.reshape(table.shape))).sum((0, 1))
    counts = np.isfinite(table).sum((0, 1))
    value, low, high = (np.full(table.shape[2], np.nan) for _ in range(3))
    single = table.shape[1] == 1
    # Runs of one task share their resamples where equally many are known.
    groups = np.unique(counts[counts > 0]) if single else [None]
    for known in groups:
        at = np.flatnonzero(counts == known if single else counts > 0)
        draws, centre, scale = _curve_draws(
            table[:, :, at], known, statistic, resamples, seed
        )
        ends = _interval(draws[:, : len(at)], confidence)
        low[at], high[at] = (centre + scale * end for end in ends)
        value[at] = [aggregates.aggregate(table[:, :, t], statistic) for t in at]
    return Estimate(value, low, high, missing)


def _curve_draws(
    table: np.ndarray, known: int | None, statistic: str, resamples: int, seed: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Resampled statistics of standardised curves, their centres and scales `[T]`."""
    from purerl.report.statistics import resampling

    runs, tasks, points = table.shape
    centred, centre, scale = _centre(table.reshape(runs * tasks, points), axis=0)
    # The next power of two, so that few programs are compiled.
    width = 1 << (points - 1).bit_length()
    centred = np.pad(centred, ((0, 0), (0, width - points)))
    if known is None:
        strata = centred.reshape(runs, tasks, width)
        draws = resampling.stratified_curve_resamples(
            _key(seed), strata, statistic, resamples
        )
    else:
        ordered = np.sort(centred, axis=0)
        draws = resampling.curve_resamples(
            _key(seed), ordered, known, statistic, resamples
        )
    return draws, centre, scale


def compare(scores: Mapping[str, Any], **options: Any) -> dict[str, Estimate]:
    """The IQM of several groups by name, with one worst score for all (`nan`)."""
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


def _key(seed: int) -> Any:
    import jax

    return jax.random.key(seed)


def _interval(draws: Any, confidence: float) -> np.ndarray:
    """Percentile interval over the first axis, `[2, ...]`."""
    tail = (1 - confidence) / 2
    numbers = np.asarray(draws, np.float64)
    return np.quantile(numbers, (tail, 1 - tail), axis=0)


def _centre(
    scores: np.ndarray, axis: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised scores: the device computes in single precision."""
    centre = np.nanmean(scores, axis=axis)
    scale = np.nanstd(scores, axis=axis)
    scale = np.where(scale > 0, scale, 1.0)
    return ((scores - centre) / scale).astype(np.float32), centre, scale


def _ranks(columns: np.ndarray) -> np.ndarray:
    """Dense ranks of each column, NaN where there is NaN."""
    ranks = np.full(columns.shape, np.nan, np.float32)
    for place, column in enumerate(columns.T):
        known = np.isfinite(column)
        ranks[known, place] = np.unique(column[known], return_inverse=True)[1]
    return ranks


def _check_numbers(confidence: float, resamples: int) -> None:
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be between 0 and 1, got {confidence!r}.")
    if resamples < 1:
        raise ConfigError(f"resamples must be at least 1, got {resamples!r}.")
