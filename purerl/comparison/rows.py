"""The statistics of a comparison: a row per setting, environment and measure."""

from collections.abc import Mapping, Sequence

import numpy as np

from purerl.report import statistics
from purerl.report.comparison import ALL, Row
from purerl.report.statistics.missing import resolve


def make_rows(
    scores: Mapping[str, np.ndarray],
    environments: Sequence[str],
    settings: Sequence[str],
    baseline: str,
) -> tuple[Row, ...]:
    """Return all rows, by measure and environment; see `Row`.

    Args:
        scores: Scores by measure, `[E, N, S]`, NaN where a run failed.
        environments: Names of the environments, E of them.
        settings: Names of the settings, N of them.
        baseline: The setting that others are compared with.
    """
    rows: list[Row] = []
    for measure, values in scores.items():
        # [N, S, E]: one group of runs per setting, one task per environment.
        raw = np.moveaxis(values, 0, -1).astype(float)
        for index, environment in enumerate(environments):
            part = raw[..., index : index + 1]
            rows += _rows(part, measure, environment, settings, baseline)
        if len(environments) > 1:
            rows += _rows(raw, measure, ALL, settings, baseline)
    return tuple(rows)


def _rows(
    raw: np.ndarray,
    measure: str,
    environment: str,
    settings: Sequence[str],
    baseline: str,
) -> list[Row]:
    filled = _filled(raw)
    is_one_task = filled.shape[-1] == 1
    base = filled[settings.index(baseline)]
    unit = np.ones(1) if is_one_task else _units(filled, base)
    rows = []
    for number, name in enumerate(settings):
        scores, nothing = filled[number], statistics.Estimate(np.nan, np.nan, np.nan)
        mean, iqm, gap, better = [nothing] * 4
        known = np.isfinite(scores).all()
        if known and is_one_task:
            both = statistics.estimates(scores, ("mean", "iqm"))
            mean, iqm = both["mean"], both["iqm"]
        if known and name != baseline and (unit > 0).all():
            gap = statistics.estimate((scores - base) / unit, "mean")
            better = statistics.probability_of_improvement(scores, base)
        numbers = [x for e in (mean, iqm, gap, better) for x in e[:3]]
        failed = int((~np.isfinite(raw[number])).sum())
        rows.append(
            Row(environment, measure, name, scores.size, failed, *map(float, numbers))
        )
    return rows


def _units(filled: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return the divisors of differences in each environment, `[E]`.

    A mean return near zero says nothing of the scale of an environment's returns, so it
    is at least the spread of all scores `[N, S, E]`: a baseline of 0.02 on the way from
    -1 to 1 would else outweigh all other environments.
    """
    return np.maximum(np.abs(base.mean(0)), filled.std((0, 1)))


def _filled(raw: np.ndarray) -> np.ndarray:
    """Scores `[N, S, E]` with the worst of their environment where a run failed.

    All NaN in an environment in which every run failed.
    """
    if np.isnan(raw).all((0, 1)).any():
        return np.full_like(raw, np.nan)
    groups, _ = resolve(*raw, nan="worst")
    return np.stack(groups)
