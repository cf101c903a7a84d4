"""The IQM or the mean over runs along training, with intervals at every point."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from purerl.report.statistics import aggregates
from purerl.report.statistics.host import mean_interval
from purerl.report.statistics.intervals import (
    Estimate,
    key,
    kind_of_table,
    percentiles,
    standardise,
)
from purerl.report.statistics.missing import (
    Missing,
    check_choice,
    check_numbers,
    resolve,
)

CURVES = ("iqm", "mean")


def curve(
    values: Any,
    statistic: str = "iqm",
    *,
    nan: Missing = "drop",
    confidence: float = 0.95,
    resamples: int = 2_000,
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
    check_numbers(confidence, resamples, seed)
    raw = np.asarray(values)
    shape = raw.shape if raw.ndim == 3 else (len(raw), 1, -1)
    (flat,), _ = resolve(raw.reshape(len(raw), -1), nan=nan, gaps=True)
    table = flat.reshape(shape)
    missing = (~np.isfinite(raw.reshape(table.shape))).sum((0, 1))
    points = [kind_of_table(table[:, :, t]) for t in range(table.shape[2])]
    kind, runs = _kind_of_curve(points)
    value, low, high = (np.full(table.shape[2], np.nan) for _ in range(3))
    some = np.flatnonzero(np.isfinite(table).any((0, 1)))
    value[some] = [aggregates.aggregate(table[:, :, t], statistic) for t in some]
    if table.shape[1] == 1 and (statistic == "mean" or kind != "interval"):
        # The range of few runs is the same for both statistics.
        low, high = mean_interval(
            table[:, 0], confidence=confidence, resamples=resamples, seed=seed
        )[:2]
        return Estimate(value, low, high, missing, kind, runs, confidence)
    for at, known in _groups(table, points):
        draws, centre, scale = _curve_draws(
            table[:, :, at], known, statistic, resamples, seed
        )
        fewest = min(points[t][1] for t in at)
        ends = percentiles(draws, confidence, fewest, table.shape[1])
        low[at], high[at] = (centre + scale * end for end in ends)
    return Estimate(value, low, high, missing, kind, runs, confidence)


def _groups(
    table: np.ndarray, points: list[tuple[str, int]]
) -> Iterator[tuple[np.ndarray, int | None]]:
    """Points that share their resamples; of one task also how many runs are known."""
    ready = np.array([kind == "interval" for kind, _ in points])
    if table.shape[1] > 1:
        if ready.any():
            yield np.flatnonzero(ready), None
        return
    counts = np.isfinite(table).sum((0, 1))
    for known in np.unique(counts[ready]):
        yield np.flatnonzero(ready & (counts == known)), known


def _kind_of_curve(points: list[tuple[str, int]]) -> tuple[str, int]:
    """Return the kind of a curve's ends: that of the point of which most is known."""
    order = ("none", "range", "interval")
    return max(points, key=lambda point: (order.index(point[0]), point[1]))


def _curve_draws(
    table: np.ndarray, known: int | None, statistic: str, resamples: int, seed: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Resampled statistics of standardised curves, their centres and scales `[T]`."""
    from purerl.report.statistics import resampling

    runs, tasks, points = table.shape
    centred, centre, scale = standardise(table.reshape(runs * tasks, points), axis=0)
    # The next power of two, so that few programs are compiled.
    width = 1 << (points - 1).bit_length()
    centred = np.pad(centred, ((0, 0), (0, width - points)))
    if known is None:
        strata = centred.reshape(runs, tasks, width)
        draws = resampling.stratified_curve_resamples(
            key(seed), strata, statistic, resamples
        )
    else:
        ordered = np.sort(centred, axis=0)
        draws = resampling.curve_resamples(
            key(seed), ordered, known, statistic, resamples
        )
    return draws[:, :points], centre, scale
