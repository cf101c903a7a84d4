"""A sweep in the terminal: best configurations, and a heat map of two axes."""

from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from purerl.report import statistics
from purerl.report.plots.axes import cells, two_axes
from purerl.report.sweep_data import SCORE, env_name, label, read_scores, short

if TYPE_CHECKING:
    import xarray as xr

# From low to high; they read in terminals without colours too.
BLOCKS = "▁▂▃▄▅▆▇█"
# Viridis in eight steps, and the colour of text that reads on each.
RAMP = (
    ("#440154", "white"),
    ("#46327e", "white"),
    ("#365c8d", "white"),
    ("#277f8e", "white"),
    ("#1fa187", "black"),
    ("#4ac16d", "black"),
    ("#a0da39", "black"),
    ("#fde725", "black"),
)


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
    for rank, index in enumerate(shown):
        found = statistics.estimate(filled[index])
        lost = int((~np.isfinite(scores.scores[index])).sum())
        table.add_row(
            *(label(scores.points[index][name]) for name in scores.names),
            f"{filled[index].mean():,.1f}",
            f"{found.value:,.1f}",
            found.text(1, heading),
            f"{lost}" if lost else "",
            style="bold" if rank == 0 else "",
        )
    return table


def heat_table(
    dataset: "xr.Dataset",
    y: str | None = None,
    x: str | None = None,
    *,
    others: str = "mean",
    metric: str = SCORE,
) -> Table:
    """Tabulate the mean final score for every pair of values; `*` marks the best.

    Args:
        dataset: Dataset of a grid sweep.
        y: Axis of the rows.
        x: Axis of the columns.
        others: What becomes of further axes: averaged (`"mean"`) or `"best"`.
        metric: Name of the variable.

    Raises:
        ConfigError: see `plots.heat_map`.
    """
    scores = read_scores(dataset, metric)
    y, x = two_axes(scores, y, x)
    rows, columns, grid, best = cells(scores, y, x, others)
    low, high = np.nanmin(grid), np.nanmax(grid)
    table = Table(
        title=f"{env_name(dataset)}: mean final score", padding=0, pad_edge=False
    )
    table.add_column(f"{short(y)} \\ {short(x)} ", justify="right")
    for value in columns:
        table.add_column(label(value), justify="right", no_wrap=True)
    # Highest row on top, as in a picture.
    for r in reversed(range(len(rows))):
        line = [Text(f"{label(rows[r])} ")]
        for c in range(len(columns)):
            line.append(_cell(grid[r, c], low, high, (r, c) == best))
        table.add_row(*line)
    return table


def _cell(value: float, low: float, high: float, is_best: bool) -> Text:
    if not np.isfinite(value):
        return Text(" - ")
    share = (value - low) / (high - low) if high > low else 1.0
    step = min(int(share * len(RAMP)), len(RAMP) - 1)
    background, ink = RAMP[step]
    mark = "*" if is_best else " "
    text = f" {label(float(value))}{mark}{BLOCKS[step]} "
    return Text(text, style=f"{'bold ' if is_best else ''}{ink} on {background}")
