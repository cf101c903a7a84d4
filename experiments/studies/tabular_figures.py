"""The pictures of the tabular study: grids with arrows, curves, and step sizes."""

from typing import Any

import numpy as np

# isort: split
from frame import mean_interval
from pictures import band, legend_below, smooth, style

from purerl.envs.gridworld import MOVES


def grid_figure(found: dict[str, dict[str, Any]], env: Any) -> Any:
    """Draw values with greedy actions, and visits below, a column per method.

    Args:
        found: What each method learned, `q` `[S, A]` and `visits` `[S]`.
        env: The grid.
    """
    from matplotlib.colors import LogNorm

    shape, done = env.size, _ends(env)
    height = 2 * (2.9 * shape[0] / shape[1] + 0.2) + 0.3
    figure = style.new_figure(width=3.0 * len(found) + 0.9, height=height)
    panels = figure.subplots(2, len(found), squeeze=False)
    tables = {name: np.asarray(one["q"]) for name, one in found.items()}
    values = {
        name: np.where(done, np.nan, q.max(1)).reshape(shape)
        for name, q in tables.items()
    }
    low = min(np.nanmin(v) for v in values.values())
    high = max(np.nanmax(v) for v in values.values())
    visits = {
        n: np.where(done, np.nan, one["visits"]).reshape(shape)
        for n, one in found.items()
    }
    most = max(np.nanmax(v) for v in visits.values())
    image: Any = None
    image_visits: Any = None
    for (above, below), name in zip(panels.T, found, strict=True):
        image = above.imshow(values[name], style.COLOUR_MAP, vmin=low, vmax=high)
        _arrows(above, tables[name].reshape(*shape, -1), done.reshape(shape))
        seen = np.maximum(visits[name], 1)
        image_visits = below.imshow(seen, "magma", norm=LogNorm(1, most))
        above.set_title(name, fontsize=11, color=style.INK, loc="left")
        for axes in (above, below):
            axes.set_facecolor("#d0d7de")  # What no agent acts in.
            row, column = env.goal
            centred = {"ha": "center", "va": "center", "weight": "bold"}
            axes.text(column, row, "G", fontsize=9, color="black", **centred)
            # The start has an arrow of its own, so its letter stands beside the grid.
            row, column = env.start
            outside = -0.85 if column == 0 else shape[1] - 0.15
            axes.text(outside, row, "S", fontsize=10, color=style.INK, **centred)
            axes.set_xticks([])
            axes.set_yticks([])
            style.ink(axes)
    for row, drawn, words in (
        (0, image, "largest action value"),
        (1, image_visits, "visits per agent"),
    ):
        bar = figure.colorbar(drawn, ax=list(panels[row]), shrink=0.85, pad=0.01)
        bar.set_label(words, color=style.INK)
        bar.ax.tick_params(colors=style.INK, labelsize=9)
    return figure


def _ends(env: Any) -> np.ndarray:
    """Cells in which no agent ever acts: the goal and the cliff, bool `[S]`."""
    height, width = env.size
    cells = [np.array(divmod(s, width)) for s in range(height * width)]
    return np.array([bool(env.is_cliff(c)) or tuple(c) == env.goal for c in cells])


def _arrows(axes: Any, q: np.ndarray, done: np.ndarray) -> None:
    """An arrow for the greedy action of every cell that has one best action."""
    values = q.max(-1)[~done]
    light = float(values.min() + 0.7 * np.ptp(values))
    for row, column in np.argwhere(~done):
        best = np.flatnonzero(q[row, column] == q[row, column].max())
        if len(best) > 1:
            continue
        down, right = MOVES[best[0]]
        start = (column - 0.3 * right, row - 0.3 * down)
        end = (column + 0.35 * right, row + 0.35 * down)
        # White is not seen on the palest cells of the map.
        best_value = float(q[row, column].max())
        colour = "white" if best_value < light else style.INK
        arrow = {"arrowstyle": "->", "color": colour, "linewidth": 0.9}
        axes.annotate("", end, start, arrowprops=arrow)


def learning_figure(found: dict[str, list[dict[str, Any]]], steps: int) -> Any:
    """Draw episodes in training: lengths on the grid world, returns on the cliff.

    Args:
        found: By method, what was measured on both tasks.
        steps: Environment steps of an agent.
    """
    figure = style.new_figure(height=4.2)
    left, right = figure.subplots(1, 2)
    for (name, (grid, cliff)), colour in zip(
        found.items(), style.COLOURS, strict=False
    ):
        for axes, one, key in (
            (left, grid, "episode_length"),
            (right, cliff, "episode_return"),
        ):
            y = smooth(one[key], 20)
            every = max(1, y.shape[1] // 100)
            x = np.linspace(0, steps, y.shape[1])[::every]
            band(axes, x, y[:, ::every], colour, name, linewidth=1.3)
    style.log_axis(left, "y")
    shortest = {"color": style.INK, "linewidth": 0.8, "linestyle": ":"}
    left.axhline(18, label="shortest path", **shortest)
    left.legend(frameon=False)
    style.finish(left, "GridWorld-v0", "environment steps", "steps of an episode")
    style.finish(right, "CliffWalking-v0", "environment steps", "return of an episode")
    for axes in (left, right):
        style.step_axis(axes)
    return figure


def curve_figure(found: dict[str, Any]) -> Any:
    """Draw the return of each episode of the book's cliff."""
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    for (name, curves), colour in zip(found.items(), style.COLOURS, strict=False):
        y = smooth(curves, 10)
        x = np.arange(1, y.shape[1] + 1)
        band(axes, x, y, colour, name, linewidth=1.3)
    axes.set_ylim(-100, -10)
    axes.legend(frameon=False, loc="lower right")
    style.finish(axes, "", "episode", "return of the episode")
    return figure


def rate_figure(found: dict[str, dict[str, Any]], rates: tuple[float, ...]) -> Any:
    """Draw returns against the step size, of the first and of the last episodes."""
    figure = style.new_figure(width=7.5, height=4.8)
    axes = figure.subplots()
    kinds = (("interim", "-", "first 100"), ("asymptotic", "--", "last 100"))
    for i, (name, one) in enumerate(found.items()):
        look = {"color": style.COLOURS[i], "marker": style.MARKERS[i]}
        look |= {"markersize": 4, "linewidth": 1.2}
        for key, line, words in kinds:
            runs = np.asarray(one[key], float).T
            ends, mean = mean_interval(runs), runs.mean(0)
            bars = [mean - ends.low, ends.high - mean]
            label = f"{name}, {words}"
            axes.errorbar(rates, mean, bars, linestyle=line, label=label, **look)
    axes.set_ylim(-150, -10)
    axes.set_xticks(rates)
    style.finish(axes, "", "step size", "return of an episode")
    legend_below(figure, axes)
    return figure
