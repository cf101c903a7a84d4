"""A comparison of settings: its rows of statistics, as one table for the terminal."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from purerl.execution.format import with_noun
from purerl.metrics import decimals
from purerl.report.statistics import heading_of, text_of

ALL = "all environments"
# The share of comparisons without any difference in which a setting is called clear.
ERRORS = 0.05
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
