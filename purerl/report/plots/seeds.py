"""Scores of seeds: strips, performance profiles, power."""

from typing import TYPE_CHECKING

import numpy as np

from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.plots.sweeps import MAX_LINES, choose_lines
from purerl.report.statistics.power import PowerCurve
from purerl.report.sweep_data import SCORE, env_name, read_scores

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

THRESHOLDS = 101
PERCENT = "{x:.0%}"


def seed_scores(
    dataset: "xr.Dataset",
    by: str | None = None,
    *,
    configurations: int = MAX_LINES,
    metric: str = SCORE,
) -> "Figure":
    """Draw a dot per seed over a box of quartiles: of the best, or by an axis.

    Args:
        dataset: Dataset of a sweep.
        by: The axis of which each value is drawn, at the best of the others.
        configurations: Number of configurations at most.
        metric: Name of the variable.

    Raises:
        ConfigError: an unknown axis or metric; several environments, unless `by`
            is their axis.
    """
    scores = read_scores(dataset, metric)
    heading, common, lines = choose_lines(scores, by, most=configurations)
    groups = {line.name: scores.scores[line.indices[0]] for line in lines}
    title = f"{env_name(dataset)}: final score of every seed"
    title += f" ({common})" if common else ""
    return score_groups(groups, title=title, heading=heading)


def score_groups(
    groups: dict[str, np.ndarray],
    *,
    title: str = "",
    heading: str = "",
) -> "Figure":
    """Draw scores of named groups; the label counts what is NaN (diverged, missing).

    Args:
        groups: Scores `[S]` by the name of the group.
        title: Title of the picture.
        heading: The heading of the names: what they are values of.
    """
    names = []
    for name, values in groups.items():
        lost = int((~np.isfinite(values)).sum())
        names.append(f"{name}  ({lost} of {len(values)} lost)" if lost else name)
    known = [values[np.isfinite(values)] for values in groups.values()]
    figure = style.new_figure(7.5, 1.3 + 0.42 * len(names))
    axes = figure.subplots()
    rng = np.random.default_rng(0)
    for height, values in enumerate(known):
        colour = style.colour_of(height)
        if len(values) > 3:
            axes.boxplot(
                values,
                positions=[height],
                orientation="horizontal",
                widths=0.55,
                showfliers=False,
                patch_artist=True,
                boxprops={"facecolor": colour, "alpha": 0.22, "lw": 0},
                medianprops={"color": colour, "lw": 2},
                whiskerprops={"color": colour, "lw": 1},
                capprops={"lw": 0},
            )
        jitter = rng.uniform(-0.16, 0.16, len(values))
        alpha = max(0.15, min(0.85, 40 / max(len(values), 1)))
        axes.plot(values, height + jitter, "o", ms=4, color=colour, alpha=alpha, mew=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    style.finish(axes, title, "final score", heading)
    axes.grid(visible=False, axis="y")
    return figure


def profile(
    dataset: "xr.Dataset",
    by: str | None = None,
    *,
    configurations: int = 6,
    metric: str = SCORE,
) -> "Figure":
    """Draw performance profiles: the share of seeds that score above each threshold.

    Lines that do not cross rank their configurations at every threshold (stochastic
    dominance); the bands are 95% intervals (Agarwal et al. 2021), from ten seeds.

    Args:
        dataset: Dataset of a sweep.
        by: The axis of which each value is drawn, at the best of the others; without it
            the best configurations.
        configurations: Number of configurations at most.
        metric: Name of the variable.

    Raises:
        ConfigError: an unknown axis or metric; several environments, unless `by` is
            their axis.
    """
    scores = read_scores(dataset, metric)
    filled = scores.filled
    heading, common, lines = choose_lines(scores, by, most=configurations)
    lines = [line for line in lines if np.isfinite(filled[line.indices[0]]).all()]
    chosen = filled[[line.indices[0] for line in lines]]
    margin = 0.03 * (chosen.max() - chosen.min() or 1.0)
    levels = np.linspace(chosen.min() - margin, chosen.max() + margin, THRESHOLDS)
    figure = style.new_figure(7.5, 4.4)
    axes = figure.subplots()
    for number, (line, values) in enumerate(zip(lines, chosen, strict=True)):
        found = statistics.performance_profile(values, levels)
        look = {"opacity": 0.12, "drawstyle": "steps-post", "label": line.name}
        style.draw_band(axes, levels, found, style.colour_of(number), **look)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(levels[0], levels[-1])
    axes.yaxis.set_major_formatter(PERCENT)
    if axes.get_legend_handles_labels()[1]:  # One without a name needs none.
        legend = axes.legend(frameon=False, fontsize=8.5, loc="best", title=heading)
        legend.get_title().set(color=style.INK, fontsize=8.5)
    where = f" ({common})" if common else ""
    bands = ", 95% intervals" if found.kind == "interval" else ""
    title = f"{env_name(dataset)}: performance profile{bands}{where}"
    style.finish(axes, title, "score", "seeds that score higher")
    return figure


def power(curve: PowerCurve) -> "Figure":
    """Draw how likely a comparison detects the difference, by number of seeds."""
    figure = style.new_figure(6.5, 3.8)
    axes = figure.subplots()
    axes.axhline(0.8, color=style.COLOURS[7], lw=1, ls="--")
    half = 1.96 * curve.error
    ends = np.clip([curve.power - half, curve.power + half], 0, 1)
    style.draw_band(
        axes, curve.seeds, (curve.power, *ends), style.COLOURS[0], "o-", markersize=4
    )
    numbers = curve.seeds.tolist()
    style.Axis(log=len(numbers) > 3).set_up(axes, "x", numbers, most=12)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PERCENT)
    spread = " and ".join(f"{s:.3g}" for s in dict.fromkeys(curve.std))
    title = f"Difference {curve.difference:.3g}, standard deviation {spread}"
    style.finish(axes, title, "seeds of each configuration", "chance to detect it")
    return figure
