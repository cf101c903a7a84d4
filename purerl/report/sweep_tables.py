"""The best configurations of a sweep, as a table of the terminal and of a page."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.table import Table

from purerl.execution.format import with_noun
from purerl.metrics import decimals
from purerl.report import statistics
from purerl.report.sweep_data import (
    SCORE,
    Scores,
    env_name,
    label,
    read_scores,
    short,
)

if TYPE_CHECKING:
    import xarray as xr


# Configurations that the terminal shows, and whose scores say how all are rounded.
TOP = 10


class BestRow(NamedTuple):
    """A configuration in a table of the best.

    Attributes:
        values: Values of the axes.
        numbers: Mean, its interval or range, and IQM, in words.
        lost: Number of members that have no score.
    """

    values: tuple[Any, ...]
    numbers: tuple[str, str, str]
    lost: int


def best_rows(
    scores: Scores, most: int | None = None
) -> tuple[list[str], list[BestRow]]:
    """Return headings and rows of the configurations, the best first.

    A member that diverged or is missing counts as the worst score of the sweep, or as
    a lower return that one which did not diverge has had on its way; a configuration
    without any rows is left out.

    Args:
        scores: The scores of a sweep.
        most: Number of rows at most; all if not given.
    """
    heading = statistics.heading_of(scores.scores.shape[1])
    ranking, filled = scores.ranking(), scores.filled
    places = decimals(filled[ranking[:TOP]])
    rows = []
    for place in ranking[:most]:
        interval = statistics.mean_interval(filled[place])
        numbers = (
            f"{filled[place].mean():,.{places}f}",
            interval.text(places, heading),
            f"{statistics.aggregate(filled[place], 'iqm'):,.{places}f}",
        )
        values = tuple(scores.points[place][name] for name in scores.names)
        lost = int((~np.isfinite(scores.scores[place])).sum())
        rows.append(BestRow(values, numbers, lost))
    return [*map(short, scores.names), "mean", heading, "IQM", "lost"], rows


def best_table(dataset: "xr.Dataset", top: int = TOP, *, metric: str = SCORE) -> Table:
    """Tabulate the best configurations: mean, its interval or range, IQM, lost members.

    What counts for a lost member, and which are left out, is that of `best_rows`.

    Args:
        dataset: Dataset of a sweep.
        top: Number of configurations at most.
        metric: Name of the variable.

    Raises:
        ConfigError: no such metric, or no score yet.
    """
    scores = read_scores(dataset, metric)
    num, seeds = scores.scores.shape
    headings, shown = best_rows(scores, top)
    missing = f"; {scores.missing}" if scores.missing else ""
    table = Table(
        title=f"{env_name(dataset)}: best {len(shown)} of "
        f"{with_noun(num, 'configuration')}, {with_noun(seeds, 'seed')} each{missing}"
    )
    for place, header in enumerate(headings):
        # On a narrow terminal values and ends are folded, and no number is cut off.
        is_number = place - len(scores.names) in (0, 2, 3)
        table.add_column(header, justify="right", no_wrap=is_number, overflow="fold")
    for rank, (values, numbers, lost) in enumerate(shown):
        cells = [*map(label, values), *numbers, f"{lost}" if lost else ""]
        table.add_row(*cells, style="bold" if rank == 0 else "")
    return table
