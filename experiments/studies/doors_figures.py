"""The pictures of the study "doors"."""

from typing import Any

import numpy as np
from doors_speed import CLAIMED, KINDS
from measure import smooth

from purerl.report.plots import style

WINDOW = 3  # Rows that a curve averages: episodes of one row are few at first.
# PyTorch, Flax, all JAX: purerl is blue and PyTorch orange in every study.
STACK_COLOURS = (1, 2, 0)


def speed_figure(found: dict[str, dict[int, dict[str, float]]]) -> Any:
    """Draw seconds against environments, on logarithmic axes.

    Args:
        found: Measurements by kind and size.
    """
    figure = style.new_figure(width=8.6, height=4.8)
    axes = figure.subplots()
    for i, (kind, times) in enumerate(found.items()):
        sizes = sorted(times)
        axes.plot(
            sizes,
            [times[size]["seconds"] for size in sizes],
            color=style.COLOURS[i],
            marker=style.MARKERS[i],
            label=KINDS[kind],
        )
        axes.plot(
            [481],
            [CLAIMED[kind]],
            color=style.COLOURS[i],
            marker=style.MARKERS[i],
            markerfacecolor="none",
            markersize=10,
            markeredgewidth=1.6,
            linestyle="none",
        )
    axes.plot(
        [],
        [],
        color=style.INK,
        marker="o",
        markerfacecolor="none",
        markersize=10,
        linestyle="none",
        label="the source, at 481",
    )
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    ticks = (1, 2, 4, 8, 16, 32, 64, 128, 256, 481)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    style.finish(axes, "Doors-v0, 512 steps", "environments", "seconds")
    return figure


def curves_figure(agents: dict[str, list[dict[str, Any]]]) -> Any:
    """Draw return and step-wise reward over steps, and the return over seconds.

    Args:
        agents: Runs of each stack by its name.
    """
    figure = style.new_figure(height=3.9)
    left, middle, right = figure.subplots(1, 3)
    for i, (name, runs) in enumerate(agents.items()):
        returns = smooth(_stacked(runs, "episode_return"), WINDOW)
        lengths = smooth(_stacked(runs, "episode_length"), WINDOW)
        steps = np.asarray(runs[0]["env_steps"], float)
        seconds = _stacked(runs, "seconds").mean(0)
        for axes, x, y in (
            (left, steps, returns),
            (middle, steps, returns / lengths),
            (right, seconds, returns),
        ):
            colour = style.COLOURS[STACK_COLOURS[i]]
            axes.plot(x, y.mean(0), color=colour, label=name)
            axes.fill_between(
                x, y.min(0), y.max(0), color=colour, alpha=style.FAINT, linewidth=0
            )
    for axes, best in ((left, 15.21), (middle, 0.776), (right, 15.21)):
        axes.axhline(
            best, color=style.INK, linestyle="--", linewidth=0.9, label="shortest path"
        )
    style.log_axis(right, "x")
    lines, names = left.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, frameon=False)
    style.finish(left, "Return", "environment steps", "episode return")
    style.finish(middle, "Step-wise reward", "environment steps", "return / length")
    style.finish(right, "Return over time", "seconds, one agent", "episode return")
    style.step_axis(left)
    style.step_axis(middle)
    return figure


def _stacked(runs: list[dict[str, Any]], name: str) -> np.ndarray:
    """A number of the rows of all runs, `[runs, rows]`."""
    return np.array([run[name] for run in runs], float)
