"""The pictures of the study "doors"."""

from typing import Any

import numpy as np
from doors_speed import CLAIMED, KINDS

# isort: split
from pictures import STACKS, between, legend_below, smooth, stacked, style

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
        found: What was measured, by kind and size.
        cpu: Name of the CPU on which it was measured.
    """
    figure = style.new_figure(width=8.6, height=4.8)
    axes = figure.subplots()
    hollow = {"markerfacecolor": "none", "markersize": 10, "linestyle": "none"}
    for i, (kind, name) in enumerate(KINDS.items()):
        look = {"color": KIND_COLOURS[kind], "marker": style.MARKERS[i]}
        sizes = sorted(found[kind])
        seconds = [found[kind][size]["seconds"] for size in sizes]
        axes.plot(sizes, seconds, label=name, **look)
        axes.plot([481], [CLAIMED[kind]], markeredgewidth=1.6, **look, **hollow)
    label = "the source, at 481, on\nan RTX 5060 Ti and a\nRyzen 5 7600X"
    axes.plot([], [], color=style.INK, marker="o", label=label, **hollow)
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
        agents: Runs by the name of their stack.
    """
    figure = style.new_figure(height=3.9)
    left, middle, right = figure.subplots(1, 3)
    for colour, (name, runs) in zip(STACK_COLOURS, agents.items(), strict=False):
        returns = smooth(stacked(runs, "episode_return"), WINDOW)
        lengths = smooth(stacked(runs, "episode_length"), WINDOW)
        steps = np.asarray(runs[0]["env_steps"], float)
        seconds = stacked(runs, "seconds").mean(0)
        for axes, x, y in (
            (left, steps, returns),
            (middle, steps, returns / lengths),
            (right, seconds, returns),
        ):
            between(axes, x, y.mean(0), (y.min(0), y.max(0)), colour, name)
    shortest = {"color": style.INK, "linestyle": "--", "linewidth": 0.9}
    for axes, best in ((left, 15.21), (middle, 0.776), (right, 15.21)):
        axes.axhline(best, label="shortest path", **shortest)
    style.log_axis(right, "x")
    legend_below(figure, left, 4)
    style.finish(left, "Return", "environment steps", "episode return")
    style.finish(middle, "Step-wise reward", "environment steps", "return / length")
    style.finish(right, "Return over time", "seconds of one agent", "episode return")
    style.step_axis(left)
    style.step_axis(middle)
    return figure
