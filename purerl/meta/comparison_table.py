"""A comparison of losses as one table for the terminal."""

import math
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from purerl.meta.comparison import ALL, WORDS, Row
from purerl.report.statistics import INTERVAL, heading_of, text_of

SHORT = {
    "training_curve": "area",
    "final_return": "final return",
    "evaluation": "evaluation",
}

if TYPE_CHECKING:
    from purerl.meta.comparison import LossComparison


def make_table(result: "LossComparison") -> Table:
    """See `LossComparison.table`."""
    words = [f"{SHORT[name]}: {WORDS[name]}" for name in result.measures]
    if len(result.environments) > 1:
        words.append(
            f"{ALL}: differences in units of the baseline's mean, or "
            "of the spread of all losses where that is larger"
        )
    table = Table(
        title=f"{result.field} on {len(result.seeds)} held-out seeds, in brackets "
        f"{heading_of(len(result.seeds))}; differences from {result.baseline}",
        caption="\n".join(words),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("loss", no_wrap=True)
    any_failed = any(row.failed for row in result.rows)
    headers = ("mean", "IQM", "difference", "P(better)")
    for header in (*headers, *(["failed"] if any_failed else [])):
        table.add_column(header, justify="right", no_wrap=True)
    before = None
    for row in result.rows:
        if (row.environment, row.measure) != before:
            before = row.environment, row.measure
            table.add_section()
            heading = escape(f"{row.environment}, {SHORT[row.measure]}")
            table.add_row(f"[bold]{heading}[/bold]")
        table.add_row(*cells(row), *([str(row.failed or "")] if any_failed else []))
    return table


def cells(row: Row) -> list[str]:
    """A row's cells, loss first."""
    gap = _interval(row, "difference", sign="+")
    is_clear = row.difference_low > 0 or row.difference_high < 0
    if is_clear and heading_of(row.seeds) == INTERVAL:
        gap = f"[bold]{gap}[/bold]"
    return [
        f"  {escape(row.loss)}",
        _interval(row, "mean"),
        _interval(row, "iqm"),
        gap,
        _interval(row, "better", digits=2),
    ]


def _interval(row: Row, name: str, sign: str = "", digits: int | None = None) -> str:
    """A number and its interval, or the range of few runs; a dash without a number."""
    value, low, high = (getattr(row, name + end) for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "-"
    if digits is None:
        size = max(abs(x) for x in (value, low, high) if math.isfinite(x))
        digits = 1 if size >= 10 else 2 if size >= 1 else 3
    text = f"{value:{sign},.{digits}f}"
    if not math.isfinite(low):
        return text
    ends = text_of(low, high, row.seeds, digits, heading_of(row.seeds), sign)
    return f"{text} ({ends})"
