"""The curve of an evolution: what members were worth, generation by generation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.report.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def evolution_curve(
    history: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> "Figure":
    """Draw best and mean fitness over generations, their deviation, and failures.

    Args:
        history: History of an `EvolutionResult`, finished or not.
        settings: Settings of the evolution: what is evolved, by what, and how many
            agents.
    """
    from matplotlib.ticker import MaxNLocator

    generations = np.arange(1, len(history["mean"]) + 1)
    figure = style.new_figure(height=4.2)
    axes = figure.subplots()
    mean, std = history["mean"], history["std"]
    line, other = style.COLOURS[0], style.COLOURS[1]
    axes.fill_between(
        generations, mean - std, mean + std, color=line, alpha=style.FAINT, linewidth=0
    )
    few = len(generations) <= 30
    marks = {"markersize": 3.5, "markevery": 1}
    axes.plot(
        generations,
        mean,
        color=line,
        label="mean of the members ± their standard deviation",
        marker="o" if few else "",
        **marks,
    )
    axes.plot(
        generations,
        history["best"],
        color=other,
        label="best member",
        linewidth=1.2,
        marker="^" if few else "",
        **marks,
    )
    failed = history["failed"]
    if failed.any():
        where = failed > 0
        low = np.nanmin(mean - std) if np.isfinite(mean).any() else 0.0
        axes.scatter(
            generations[where],
            np.full(where.sum(), low),
            marker="x",
            s=14,
            color=style.INK,
            label=f"members failed ({int(failed.sum()):,} in all)",
        )
    axes.legend(frameon=False, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    kind = settings["fitness"].replace("_", " ")
    count = f"{settings['population']} x {settings['rollouts']} agents a generation"
    title = (
        f"{', '.join(settings['evolve'])} by {settings['strategy']['name']}, {count}"
    )
    style.finish(axes, title, "generation", f"fitness: {kind}")
    return figure


def evolution_returns(returns: np.ndarray, names: Sequence[str]) -> "Figure":
    """Draw the mean return of members, a panel for each environment.

    Args:
        returns: Mean returns by generation and environment, `[G, E]`.
        names: Names of the environments.
    """
    from matplotlib.ticker import MaxNLocator

    generations = np.arange(1, len(returns) + 1)
    figure = style.new_figure(min(12.0, 1.0 + 3.6 * len(names)), 3.2)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for number, (axes, name) in enumerate(zip(panels, names, strict=True)):
        colour = style.COLOURS[number % len(style.COLOURS)]
        axes.plot(generations, returns[:, number], color=colour, linewidth=1.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        style.finish(axes, name, "generation", "return" if number == 0 else "")
    return figure
