"""The pictures of the study "doors"."""

from typing import Any

import numpy as np
from doors_speed import CLAIMED, KINDS
from measure import smooth
from palette import STACKS

from purerl.report.plots import style

WINDOW = 3  # Rows that a curve averages: episodes of one row are few at first.
# PyTorch, Flax, all JAX.
STACK_COLOURS = (STACKS["PyTorch"], STACKS["Flax"], STACKS["purerl"])
# JAX is blue as in other pictures, and Gymnasium has a colour of no stack.
KIND_COLOURS = {
    "sync": style.COLOURS[7],
    "async": style.COLOURS[3],
    "jax-step": style.COLOURS[5],
    "jax-scan": STACKS["purerl"],
}


def speed_figure(found: dict[str, dict[int, dict[str, float]]], cpu: str) -> Any:
    """Draw seconds against environments, on logarithmic axes.

    Args:
        found: Measurements by kind and size.
        cpu: Name of the CPU.
    """
    figure = style.new_figure(width=8.6, height=4.8)
    axes = figure.subplots()
    for i, kind in enumerate(KINDS):
        times = found[kind]
        sizes = sorted(times)
        axes.plot(
            sizes,
            [times[size]["seconds"] for size in sizes],
            color=KIND_COLOURS[kind],
            marker=style.MARKERS[i],
            label=KINDS[kind],
        )
        axes.plot(
            [481],
            [CLAIMED[kind]],
            color=KIND_COLOURS[kind],
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
        label="the source, at 481, on\nan RTX 5060 Ti and a\nRyzen 5 7600X",
    )
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    ticks = (1, 2, 4, 8, 16, 32, 64, 128, 256, 481)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    style.finish(axes, f"Doors-v0 on {cpu}", "environments", "seconds for 512 steps")
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
            colour = STACK_COLOURS[i]
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
    style.finish(right, "Return over time", "seconds of one agent", "episode return")
    style.step_axis(left)
    style.step_axis(middle)
    return figure


def _stacked(runs: list[dict[str, Any]], name: str) -> np.ndarray:
    """A number of the rows of all runs, `[runs, rows]`."""
    return np.array([run[name] for run in runs], float)
