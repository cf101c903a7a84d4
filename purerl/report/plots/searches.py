"""Pictures of searches over hyperparameters: scores and values as training goes on."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.report.plots import style
from purerl.report.plots.style import Picture

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

BLUE, RED = style.COLOURS[:2]
FAINT: dict[str, Any] = {"color": BLUE, "alpha": style.FAINT, "lw": 1}
# Up to three panels in a row.
_panels = partial(style.panel_grid, height=2.9, head=0.5, least=5.2, sharey=True)


def population_scores(
    dataset: "xr.Dataset", lineages: Mapping[int, np.ndarray], ax: Any = None
) -> Picture:
    """Draw every member's score after every round, a panel per search.

    Args:
        dataset: Dataset of a `PBTResult`.
        lineages: Members `[R]` whose training led to a search's best member, by the
            seed of the search; they are drawn bold.
        ax: Axes to draw into, one for each search.
    """
    seeds, updates = dataset["seed"].values.tolist(), dataset["updates"].values
    panels = _panels(len(seeds), ax)
    for seed, axes in zip(seeds, panels, strict=True):
        scores = dataset["score"].sel(seed=seed).values
        axes.plot(updates, scores, **FAINT)
        if seed in lineages:
            line = lineages[seed][: len(updates)]
            best = scores[np.arange(len(line)), line]
            axes.plot(updates, best, color=RED, lw=1.8, marker="o", ms=3)
        y = "score" if axes is panels[0] else ""
        style.finish(axes, f"seed {seed}", "updates", y)
    return style.picture(panels, "", ax)


def population_values(
    dataset: "xr.Dataset",
    names: Sequence[str],
    lineages: Mapping[int, np.ndarray],
    ax: Any = None,
) -> Picture:
    """Draw every member's hyperparameters round by round, a panel per axis.

    Args:
        dataset: Dataset of a `PBTResult`.
        names: Names of the axes.
        lineages: Lineages as in `population_scores`; the schedules that they found are
            bold.
        ax: Axes to draw into, one for each name.
    """
    panels, ends = _panels(len(names), ax, sharey=False), dataset["updates"].values
    # A value is kept from a round's start to its end.
    x = np.stack([np.concatenate([[0], ends[:-1]]), ends], 1).ravel()
    for name, axes in zip(names, panels, strict=True):
        values = dataset[name].transpose("seed", "round", "member").values
        axis = style.Axis.of(values.ravel().tolist())
        axis.set_up(axes, "y")
        numbers = axis.places(values.ravel().tolist()).reshape(values.shape)
        for place, seed in enumerate(dataset["seed"].values.tolist()):
            mine = np.repeat(numbers[place], 2, axis=0)
            axes.plot(x, mine, **FAINT)
            if seed in lineages:
                line = np.repeat(lineages[seed][: len(ends)], 2)
                colour = style.colour_of(1 + place % (len(style.COLOURS) - 1))
                axes.plot(x, mine[np.arange(len(line)), line], color=colour, lw=1.8)
        style.finish(axes, name, "updates")
    return style.picture(panels, "", ax)


def halving_scores(dataset: "xr.Dataset", ax: Any = None) -> Picture:
    """Draw the scores of the members that reached each rung, a panel per search.

    Args:
        dataset: Dataset of a `HalvingResult`.
        ax: Axes to draw into, one for each search.
    """
    seeds, updates = dataset["seed"].values.tolist(), dataset["updates"].values
    panels, brackets = _panels(len(seeds), ax), dataset["bracket"].values
    for seed, axes in zip(seeds, panels, strict=True):
        scores = dataset["score"].sel(seed=seed).values
        for bracket in np.unique(brackets):
            look = {"color": style.colour_of(int(bracket)), "alpha": 0.6, "lw": 1}
            mine = scores[brackets == bracket]
            lines = axes.plot(updates, mine.T, marker="o", markersize=3.5, **look)
            lines[0].set_label(f"bracket {bracket}")
        y = "score" if axes is panels[0] else ""
        style.finish(axes, f"seed {seed}", "updates", y)
    panels[0].legend(frameon=False, fontsize="small")
    return style.picture(panels, "", ax)


def halving_values(
    dataset: "xr.Dataset", names: Sequence[str], ax: Any = None
) -> Picture:
    """Draw the last known score over every axis; larger dots were trained longer.

    Args:
        dataset: Dataset of a `HalvingResult`.
        names: Names of the axes.
        ax: Axes to draw into, one for each name.
    """
    panels, score = _panels(len(names), ax), last_known(dataset["score"].values)
    trained = dataset["trained_updates"].values
    sizes = 12 + 60 * trained / max(1, trained.max())
    for name, axes in zip(names, panels, strict=True):
        values = dataset[name].transpose("seed", "point").values.ravel().tolist()
        axis = style.Axis.of(values)
        axis.set_up(axes, "x")
        look = {"s": sizes.ravel(), "alpha": 0.6, "color": BLUE}
        axes.scatter(axis.places(values), score.ravel(), **look)
        style.finish(axes, x=name)
    panels[0].set_ylabel("score at the last rung")
    return style.picture(panels, "", ax)


def last_known(scores: np.ndarray) -> np.ndarray:
    """Return the last number along the last axis that is known, NaN where none is."""
    if not scores.shape[-1]:
        return np.full(scores.shape[:-1], np.nan)
    last = np.isfinite(scores)[..., ::-1].argmax(-1)  # 0, which is NaN, where none is.
    return np.take_along_axis(scores[..., ::-1], last[..., None], -1)[..., 0]


def request_scores(scores: Sequence[np.ndarray], ax: "Axes | None" = None) -> Picture:
    """Draw the scores of every request's members, and the best so far.

    Args:
        scores: Scores `[N]` of the members of each request; NaN where unknown.
        ax: Axes to draw into.
    """
    (axes,) = _panels(1, ax)
    numbers = np.repeat(np.arange(len(scores)), [len(values) for values in scores])
    axes.scatter(numbers, np.concatenate(scores), s=16, alpha=0.5, color=BLUE)
    best = [np.nanmax([*values, -np.inf]) for values in scores]
    axes.plot(np.maximum.accumulate(best), color=RED, drawstyle="steps-post")
    axes.locator_params(axis="x", integer=True)
    style.finish(axes, "", "request", "score")
    return style.picture([axes], "", ax)
