"""The statistics of a comparison: a row per setting, environment and measure."""

from collections.abc import Mapping, Sequence

import numpy as np

from purerl.report import statistics
from purerl.report.comparison import ALL, ERRORS, Row
from purerl.report.statistics.missing import worst_of

RESAMPLES = 2_000  # Of each difference, so that as many lie beyond an interval's end.


def make_rows(
    scores: Mapping[str, np.ndarray],
    environments: Sequence[str],
    settings: Sequence[str],
    baseline: str,
    lowest: Sequence[float],
) -> tuple[Row, ...]:
    """Return all rows, by measure and environment; see `Row`.

    Args:
        scores: Scores by measure, `[E, N, S]`, NaN where a run failed.
        environments: Names of the environments, E of them.
        settings: Names of the settings, N of them.
        baseline: The setting that others are compared with.
        lowest: The lowest return on the way, by environment, see `lowest_of`.
    """
    rows: list[Row] = []
    floors = np.asarray(lowest, float)
    for measure, values in scores.items():
        # [N, S, E]: one group of runs per setting, one task per environment.
        raw = np.moveaxis(values, 0, -1).astype(float)
        for index, environment in enumerate(environments):
            part = raw[..., index : index + 1]
            floor = floors[index : index + 1]
            rows += _rows(part, floor, measure, environment, settings, baseline)
        if len(environments) > 1:
            rows += _rows(raw, floors, measure, ALL, settings, baseline)
    return tuple(rows)


def _rows(
    raw: np.ndarray,
    floors: np.ndarray,
    measure: str,
    environment: str,
    settings: Sequence[str],
    baseline: str,
) -> list[Row]:
    filled = filled_scores(raw, floors)
    is_one_task = filled.shape[-1] == 1
    base = filled[settings.index(baseline)]
    unit = np.ones(1) if is_one_task else _units(filled, base)
    has_unit = bool((unit > 0).all())
    gaps = {
        name: (filled[number] - base) / unit
        for number, name in enumerate(settings)
        if name != baseline and has_unit and np.isfinite(filled[number]).all()
    }
    clear = clear_of_zero(gaps)
    rows = []
    for number, name in enumerate(settings):
        scores, nothing = filled[number], statistics.Estimate(np.nan, np.nan, np.nan)
        mean, iqm, gap, better = [nothing] * 4
        known = np.isfinite(scores).all()
        if known and is_one_task:
            both = statistics.estimates(scores, ("mean", "iqm"))
            mean, iqm = both["mean"], both["iqm"]
        if name in gaps:
            gap = statistics.estimate(gaps[name], "mean")
            better = statistics.probability_of_improvement(scores, base)
        numbers = [x for e in (mean, iqm, gap, better) for x in e[:3]]
        about = environment, measure, name, scores.size
        failed = int((~np.isfinite(raw[number])).sum())
        ends = map(float, numbers)
        rows.append(Row(*about, failed, *ends, is_clear=name in clear))
    return rows


def clear_of_zero(gaps: Mapping[str, np.ndarray]) -> set[str]:
    """Return the settings whose mean difference is not zero (Holm 1979).

    Of k differences that are left, those are clear whose interval of the confidence
    `1 - ERRORS / k` lies on one side of zero, and of which Student's t is as unlikely;
    then fewer are left, and so on. So no setting at all is called clear by chance in
    95% of comparisons, however many there are. The intervals alone would not do: they
    end at the range of ten differences, however high their confidence.

    Args:
        gaps: Differences from the baseline by setting, `[S, E]`.
    """
    # All have the same runs: ten that are all equal are enough, too.
    if not gaps or not all(map(statistics.has_interval, gaps.values())):
        return set()
    chances = {name: chance_of(values) for name, values in gaps.items()}
    left, clear = set(gaps), set[str]()
    while left:
        # Asked first: it costs nothing, and few of many settings pass it.
        rare = [name for name in gaps if chances[name] < ERRORS / len(left)]
        found = _off_zero(gaps, [name for name in rare if name in left], len(left))
        if not found:
            break
        clear |= found
        left -= found
    return clear


def _off_zero(
    gaps: Mapping[str, np.ndarray], names: Sequence[str], left: int
) -> set[str]:
    """Those of some settings whose interval, one of `left`, lies on one side of zero.

    What a setting is resampled with does not depend on the others, so that the fewer
    resamples of later rounds are the first ones of the first round.
    """
    if not names:
        return set()
    options = {"confidence": 1 - ERRORS / left, "resamples": RESAMPLES * left}
    tables = [gaps[name].reshape(len(gaps[name]), -1) for name in names]
    if tables[0].shape[1] == 1:
        # One column per setting: they all share the weights of the resamples.
        found = statistics.mean_interval(np.concatenate(tables, 1), **options)
        off = (found.low > 0) | (found.high < 0)
    else:
        ends = [statistics.estimate(table, "mean", **options) for table in tables]
        off = [end.low > 0 or end.high < 0 for end in ends]
    return {name for name, is_off in zip(names, off, strict=True) if is_off}


def chance_of(differences: np.ndarray) -> float:
    """Return how likely a mean as far from zero is by chance (Student 1908).

    Args:
        differences: Differences `[S, E]` or `[S]`; those of a seed are averaged first.
    """
    from scipy.special import stdtr

    by_seed = differences.reshape(len(differences), -1).mean(1)
    mean, spread = abs(by_seed.mean()), by_seed.std(ddof=1)
    if spread == 0:
        return float(mean == 0)
    t = mean / spread * np.sqrt(len(by_seed))
    return float(2 * stdtr(len(by_seed) - 1, -t))


def _units(filled: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return the divisors of differences in each environment, `[E]`.

    A mean return near zero says nothing of the scale of an environment's returns, so it
    is at least the spread of all scores `[N, S, E]`: a baseline of 0.02 on the way from
    -1 to 1 would else outweigh all other environments.
    """
    return np.maximum(np.abs(base.mean(0)), filled.std((0, 1)))


def filled_scores(raw: np.ndarray, floors: np.ndarray) -> np.ndarray:
    """Return scores with the worst of their environment where a run failed.

    Args:
        raw: Scores `[N, S, E]`, NaN where a run failed.
        floors: The lowest return on the way, `[E]`, see `lowest_of`.

    Returns:
        Scores `[N, S, E]`; all NaN in an environment in which every run failed.
    """
    return np.where(np.isnan(raw), worst_of(raw, floors), raw)
