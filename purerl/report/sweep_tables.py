"""A sweep in the terminal: its best configurations."""

from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from purerl.metrics import decimals
from purerl.report import statistics
from purerl.report.sweep_data import SCORE, env_name, label, read_scores, short

if TYPE_CHECKING:
    import xarray as xr


def best_table(dataset: "xr.Dataset", top: int = 10, *, metric: str = SCORE) -> Table:
    """Tabulate the best configurations: mean, IQM, its interval or range, lost members.

    A member that diverged or is missing counts as the worst score of the sweep.

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
    table = Table(
        title=f"{env_name(dataset)}: best {len(shown)} of {num} configurations, "
        f"{seeds} seeds each"
    )
    for name in scores.names:
        table.add_column(short(name), justify="right")
    heading = statistics.heading_of(seeds)
    for header in ("mean", "IQM", heading, "lost"):
        table.add_column(header, justify="right", no_wrap=True)
    places = decimals(filled[shown])
    for rank, index in enumerate(shown):
        found = statistics.estimate(filled[index])
        lost = int((~np.isfinite(scores.scores[index])).sum())
        table.add_row(
            *(label(scores.points[index][name]) for name in scores.names),
            f"{filled[index].mean():,.{places}f}",
            f"{found.value:,.{places}f}",
            found.text(places, heading),
            f"{lost}" if lost else "",
            style="bold" if rank == 0 else "",
        )
    return table
