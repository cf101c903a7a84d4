"""A comparison of settings: its rows of statistics, as one table for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table

from purerl.execution.format import with_noun
from purerl.metrics import decimals
from purerl.report import statistics
from purerl.report.statistics import heading_of, text_of

ALL = "all environments"
# The share of comparisons without any difference in which a setting is called clear.
ERRORS = 0.05
RESAMPLES = 2_000  # Of each difference, so that as many lie beyond an interval's end.
BOLD = (
    "bold: clear of zero at 5%, for all settings of an environment and measure together"
)
# What a heading calls a measure, and what it is taken over.
WORDS = {
    "training_curve": ("area", "under the training curve, by its length"),
    "final_return": ("final return", "over the last tenth of training"),
    "evaluation": ("evaluation", "of the deterministic policy, after training"),
}


def short(measure: str) -> str:
    """Return what a heading calls a measure: its own name for an own metric."""
    return WORDS.get(measure, (measure,))[0]


def words_for(measure: str) -> str:
    """Return what a measure is taken over."""
    return WORDS.get(measure, ("", "an own metric, its mean over training"))[1]


class Row(NamedTuple):
    """One setting in one environment, by one measure; intervals are of 95%.

    Of fewer than ten runs there are no intervals: the ends of a mean, an interquartile
    mean and a difference are then the range of the runs, and `better` has none.

    Attributes:
        environment: Name of the environment; `all environments` takes them together.
        measure: The name of the measure in `purerl.meta.fitness.KINDS`.
        setting: Name of the setting.
        seeds: Number of runs.
        failed: Number of these runs that met a number that was not finite. They count
            as the worst score of any setting there, or as a lower return that a run
            which did not fail has had on its way.
        mean: Mean over runs, with its interval; NaN over all environments, whose
            returns have no common unit.
        iqm: Interquartile mean over runs, with its interval; NaN over all environments.
        difference: Mean over seeds of the score minus the baseline's with the same key;
            over all environments in units of the baseline's mean return in each, or of
            the spread (standard deviation) of all settings' scores there, where the
            mean is nearer to zero than that. NaN for the baseline itself.
        better: Probability that a run scores higher than one of the baseline's, ties
            half; over all environments their mean.
        is_clear: Whether the difference is clear of zero, at 5% for all settings of
            this environment and measure together (Holm 1979); never of fewer than ten
            runs.
    """

    environment: str
    measure: str
    setting: str
    seeds: int
    failed: int
    mean: float
    mean_low: float
    mean_high: float
    iqm: float
    iqm_low: float
    iqm_high: float
    difference: float
    difference_low: float
    difference_high: float
    better: float
    better_low: float
    better_high: float
    is_clear: bool


def rows_of(
    raw: np.ndarray, floors: np.ndarray, settings: Sequence[str], baseline: int
) -> list[tuple[Any, ...]]:
    """Return the fields of `Row` from `setting` on, for every setting.

    Args:
        raw: Scores `[N, S, E]`, NaN where a run failed.
        floors: The lowest return on the way in each environment, see `lowest_of`.
        settings: Names of the settings, N of them.
        baseline: The number of the setting that others are compared with.
    """
    # All NaN in an environment in which every run failed.
    filled = np.where(np.isnan(raw), statistics.worst_of(raw, floors), raw)
    is_one_task = filled.shape[-1] == 1
    base = filled[baseline]
    # A mean return near zero says nothing of the scale of an environment's returns, so
    # a unit is at least the spread of all scores: a baseline of 0.02 on the way from -1
    # to 1 would else outweigh all other environments.
    scale = np.maximum(np.abs(base.mean(0)), filled.std((0, 1)))
    unit = np.ones(1) if is_one_task else scale
    has_unit = bool((unit > 0).all())
    gaps = {
        name: (filled[number] - base) / unit
        for number, name in enumerate(settings)
        if number != baseline and has_unit and np.isfinite(filled[number]).all()
    }
    clear = clear_of_zero(gaps)
    rows = []
    for number, name in enumerate(settings):
        scores, nothing = filled[number], statistics.Estimate(np.nan, np.nan, np.nan)
        mean, iqm, gap, better = [nothing] * 4
        if is_one_task and np.isfinite(scores).all():
            both = statistics.estimates(scores, ("mean", "iqm"))
            mean, iqm = both["mean"], both["iqm"]
        if name in gaps:
            gap = statistics.estimate(gaps[name], "mean")
            better = statistics.probability_of_improvement(scores, base)
        failed = int((~np.isfinite(raw[number])).sum())
        ends = [float(x) for e in (mean, iqm, gap, better) for x in e[:3]]
        rows.append((name, scores.size, failed, *ends, name in clear))
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


def make_table(rows: Sequence[Row], *, subject: str, baseline: str) -> Table:
    """Tabulate all rows of a comparison; see `Comparison.table`.

    Args:
        rows: Rows of one measure together, those of an environment before those of all
            together.
        subject: The subject of the comparison: a field of the config, or `settings`.
        baseline: Name of the setting that the others are compared with.
    """
    seeds, words = rows[0].seeds, [*notes(rows)]
    if any(row.is_clear for row in rows):
        words.append(BOLD)
    table = Table(
        title=f"{subject} on {with_noun(seeds, 'held-out seed')}, in brackets "
        f"{heading_of(seeds)}; differences from {baseline}",
        caption="\n".join(words),
        title_justify="left",
        caption_justify="left",
    )
    # On a narrow terminal names are folded, and ends go to a second line.
    for header in headings(rows):
        side = "left" if header == "setting" else "right"
        table.add_column(header, justify=side, overflow="fold")
    before = None
    for row in rows:
        if (row.environment, row.measure) != before:
            before = row.environment, row.measure
            table.add_section()
            heading = escape(f"{row.environment}, {short(row.measure)}")
            table.add_row(f"[bold]{heading}[/bold]")
        setting, *numbers = map(escape, cells(row, heading_of(seeds)))
        if row.is_clear:
            numbers[2] = f"[bold]{numbers[2]}[/bold]"
        table.add_row(f"  {setting}", *numbers[: len(table.columns) - 1])
    return table


def notes(rows: Sequence[Row]) -> list[str]:
    """Return sentences on what the numbers of the rows mean."""
    measures = dict.fromkeys(row.measure for row in rows)
    words = [f"{short(name)}: {words_for(name)}" for name in measures]
    if any(row.environment == ALL for row in rows):
        words.append(
            f"{ALL}: differences in units of the baseline's mean, or "
            "of the spread of all settings where that is larger"
        )
    return words


def headings(rows: Sequence[Row]) -> list[str]:
    """Return the headings of `cells`, of which the last counts runs that failed."""
    any_failed = any(row.failed for row in rows)
    named = ["setting", "mean", "IQM", "difference", "P(better)"]
    return [*named, "failed"] if any_failed else named


def cells(row: Row, heading: str) -> list[str]:
    """Return a row's cells, setting first, with the ends of intervals in brackets.

    Args:
        row: The row.
        heading: What the reader has been told that the ends in brackets are.
    """
    return [
        row.setting,
        _interval(row, "mean", heading),
        _interval(row, "iqm", heading),
        _interval(row, "difference", heading, sign="+"),
        _interval(row, "better", heading, digits=2),
        str(row.failed or ""),
    ]


def _interval(
    row: Row, name: str, heading: str, sign: str = "", digits: int | None = None
) -> str:
    """A number and its interval, or the range of few runs; a dash without a number."""
    value, low, high = (getattr(row, name + end) for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "-"
    digits = decimals(value, low, high) if digits is None else digits
    ends = text_of(low, high, heading_of(row.seeds), digits, heading, sign)
    text = f"{value:{sign},.{digits}f}"
    return text if ends == "-" else f"{text} ({ends})"
