"""A sweep in the terminal: its best configurations."""

from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from purerl.execution.format import with_noun
from purerl.metrics import decimals
from purerl.report import statistics
from purerl.report.statistics import aggregates
from purerl.report.sweep_data import SCORE, env_name, label, read_scores, short

if TYPE_CHECKING:
    import xarray as xr


def best_table(dataset: "xr.Dataset", top: int = 10, *, metric: str = SCORE) -> Table:
    """Tabulate the best configurations: mean, its interval or range, IQM, lost members.

    A member that diverged or is missing counts as the worst score of the sweep, or as
    a lower return that one which did not diverge has had on its way; a configuration
    without any rows is left out.

    Args:
        dataset: Dataset of a sweep.
        top: Number of configurations at most.
        metric: Name of the variable.

    Raises:
        ConfigError: no such metric, or no score yet.
    """
    scores = read_scores(dataset, metric)
    filled = scores.filled
    num, seeds = scores.scores.shape
    shown = scores.ranking()[:top]
    missing = f"; {scores.missing}" if scores.missing else ""
    table = Table(
        title=f"{env_name(dataset)}: best {len(shown)} of "
        f"{with_noun(num, 'configuration')}, {with_noun(seeds, 'seed')} each{missing}"
    )
    for name in scores.names:
        # On a narrow terminal values are folded, and no number is cut off.
        table.add_column(short(name), justify="right", overflow="fold")
    heading = statistics.heading_of(seeds)
    for header in ("mean", heading, "IQM", "lost"):
        is_wide = header == heading
        table.add_column(header, justify="right", no_wrap=not is_wide, overflow="fold")
    places = decimals(filled[shown])
    for rank, index in enumerate(shown):
        mean = statistics.mean_interval(filled[index])
        lost = int((~np.isfinite(scores.scores[index])).sum())
        table.add_row(
            *(label(scores.points[index][name]) for name in scores.names),
            f"{filled[index].mean():,.{places}f}",
            mean.text(places, heading),
            f"{aggregates.iqm(filled[index]):,.{places}f}",
            f"{lost}" if lost else "",
            style="bold" if rank == 0 else "",
        )
    return table
