"""What the pictures of experiments and studies share: colours, bands, legends."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from frame import mean_interval

from purerl.report import style as style
from purerl.report.plots import save as save

legend_below = style.legend_below

# What is the same has the same colour in all pictures: by whom an agent is trained,
STACKS: dict[str, str] = dict(
    zip(("purerl", "PyTorch", "Flax", "brax"), style.COLOURS, strict=False)
)
# and the algorithm, where all agents are purerl's or stacks have marks of their own.
ALGORITHMS: dict[str, str] = dict(
    zip(("TD3", "SAC", "MPO", "VPG"), style.COLOURS[:4], strict=True),
)


def band(axes: Any, x: Any, runs: Any, colour: str, label: str, **look: Any) -> None:
    """Draw the mean of runs `[S, T]` with its interval or range.

    Args:
        axes: Axes to draw on.
        x: `[T]` places.
        runs: `[S, T]` values; places with a run that is not known are left out.
        colour: The colour.
        label: Name in the legend.
        **look: Further options of the line.
    """
    runs = np.asarray(runs, float)
    known = np.isfinite(runs).all(0)
    x, runs = np.asarray(x)[known], runs[:, known]
    ends = mean_interval(runs)
    between(axes, x, runs.mean(0), (ends.low, ends.high), colour, label, **look)


def between(
    axes: Any, x: Any, middle: Any, ends: Any, colour: str, label: str, **look: Any
) -> None:
    """Draw a line with a band from `ends[0]` to `ends[1]`."""
    axes.fill_between(x, *ends, color=colour, alpha=style.FAINT, linewidth=0)
    axes.plot(x, middle, color=colour, label=label, **look)


def smooth(values: Any, window: int) -> np.ndarray:
    """Average along the last axis over the last updates.

    Args:
        values: `[..., U]` metric of each update, NaN before an episode has ended.
        window: Updates that are averaged.
    """
    values = np.asarray(values, float)
    found = np.full(values.shape, np.nan)
    for i in range(values.shape[-1]):
        part = values[..., max(0, i - window + 1) : i + 1]
        known = ~np.isnan(part)
        count, total = known.sum(-1), np.where(known, part, 0).sum(-1)
        found[..., i] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return found


def stacked(runs: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Return a number of the rows of all runs, `[runs, rows]`."""
    return np.array([run[name] for run in runs], float)
