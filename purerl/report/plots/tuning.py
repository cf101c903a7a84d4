"""Pictures of a study: history, importance, contour, slices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.report.plots import style
from purerl.report.plots.style import save as save
from purerl.report.sweep_data import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED, GREEN = style.COLOURS[:3]
GREY = style.COLOURS[-1]
TICKS = 4  # A logarithmic axis has few ticks, as three panels lie side by side.
CELLS = 160  # A contour has so many cells along each side.
# The standard deviation of the Gaussian that smooths a contour, as a share of an axis.
BANDWIDTH = 0.15


Trial = Any  # A `purerl.tuning.result.Row`, or what has the same attributes.


class Axis(NamedTuple):
    """The places of an axis's values in a picture.

    Attributes:
        name: Name of the axis.
        log: Whether its scale is logarithmic.
        names: Names of a choice's values, in order; empty where it is a number.
    """

    name: str
    log: bool
    names: list[Any]

    def coordinates(self, rows: Sequence[Trial]) -> np.ndarray:
        """Return the coordinates `[N]` of some trials."""
        values = [row.params[self.name] for row in rows]
        if self.names:
            return np.array([float(self.names.index(value)) for value in values])
        return np.asarray(values, float)

    def set_up(self, axes: "Axes", along: str) -> None:
        """Set the scale and the tick labels of x or y."""
        axis = axes.xaxis if along == "x" else axes.yaxis
        if self.names:
            labels = _choices(self.names)
            axis.set_ticks(range(len(labels)), labels)
            set_limits = axes.set_xlim if along == "x" else axes.set_ylim
            set_limits(-0.5, len(labels) - 0.5)
        elif self.log:
            style.log_axis(axes, along, TICKS)


def figures(
    rows: Sequence[Trial], shares: Mapping[str, float], axes: Mapping[str, Axis]
) -> dict[str, "Figure"]:
    """Draw the pictures that a study has data for, by name.

    Args:
        rows: The trials.
        shares: Shares of the axes in what makes a trial good; empty if not known.
        axes: Axes by name, as they are drawn.
    """
    if not any(row.state == "complete" for row in rows):
        return {}
    found = {"history": history(rows), "slice": slices(rows, axes)}
    if shares:
        found["importance"] = importance(shares)
        if len(shares) > 1:
            names = sorted(shares, key=lambda n: -shares[n])
            found["contour"] = contour(rows, axes, names[:3])
    return found


def history(rows: Sequence[Trial]) -> "Figure":
    """Draw scores in the order of the trials, and the best so far."""
    figure = style.new_figure()
    axes = figure.subplots()
    complete = [row for row in rows if row.state == "complete"]
    numbers = [row.number for row in complete]
    scores = np.array([row.score for row in complete], float)
    axes.plot(numbers, scores, "o", color=BLUE, ms=5, alpha=0.85, label="complete")
    pruned = [row for row in rows if row.state == "pruned" and row.curve]
    if pruned:
        axes.plot(
            [row.number for row in pruned],
            [row.curve[max(row.curve)] for row in pruned],
            "x",
            color=GREY,
            ms=5,
            label="pruned, at its last score",
        )
    low = axes.get_ylim()[0]
    lost = [row.number for row in rows if row.state in ("diverged", "refused")]
    if lost:
        axes.plot(
            lost, [low] * len(lost), "v", color=RED, ms=6, label="diverged or refused"
        )
    best = np.maximum.accumulate(scores)
    end = max(row.number for row in rows)
    axes.step(
        [*numbers, end],
        [*best, best[-1]],
        where="post",
        color=RED,
        lw=1.8,
        label="best so far",
    )
    default = [row for row in complete if row.is_default]
    if default and default[0].score is not None:
        axes.axhline(
            default[0].score, color=style.INK, lw=1, ls=(0, (5, 4)), label="default"
        )
    style.finish(axes, f"{len(rows)} trials", "trial", "score, mean over seeds")
    axes.locator_params(axis="x", integer=True)
    style.legend_below(figure, axes, 4)
    return figure


def importance(shares: Mapping[str, float]) -> "Figure":
    """Draw the share of each axis in what makes a trial good."""
    names = sorted(shares, key=lambda name: shares[name])
    figure = style.new_figure(style.PAGE_WIDTH, 1.2 + 0.42 * len(names))
    axes = figure.subplots()
    values = [shares[name] for name in names]
    axes.barh([short(name) for name in names], values, color=BLUE, height=0.62)
    for height, share in enumerate(values):
        axes.text(
            share + 0.01 * max(values),
            height,
            f"{share:.2f}",
            va="center",
            fontsize=9,
            color=style.INK,
        )
    axes.set_xlim(0, 1.12 * max(values))
    style.finish(axes, "importance (PED-ANOVA)", "share")
    axes.grid(axis="y", visible=False)
    return figure


def slices(rows: Sequence[Trial], drawn: Mapping[str, Axis]) -> "Figure":
    """Draw the score against each axis; later trials are darker, the best is a star."""
    style.load_matplotlib()
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # The palest blues would not be seen.
    shades = ListedColormap(colormaps["Blues"](np.linspace(0.25, 1.0, 256)))
    complete = [row for row in rows if row.state == "complete"]
    scores = np.array([row.score for row in complete], float)
    order = np.array([row.number for row in complete], float)
    best = int(scores.argmax())
    names = list(drawn)
    figure, panels = style.panel_grid(
        len(names), head=0.6, least=style.PAGE_WIDTH, sharey=True
    )
    dots = None
    for number, name in enumerate(names):
        axes, axis = panels[number], drawn[name]
        axis.set_up(axes, "x")
        positions = axis.coordinates(complete)
        if axis.names:
            # Trials with the same value are moved beside one another.
            spread = np.random.default_rng(0).uniform(-0.2, 0.2, len(positions))
            positions = positions + spread
        dots = axes.scatter(
            positions, scores, c=order, cmap=shades, edgecolors=BLUE, lw=0.7, s=28
        )
        style.draw_star(axes, positions[best], scores[best], ms=14)
        style.finish(axes, x=short(name))
        if number % 3 == 0:
            axes.set_ylabel("score", color=style.INK)
    style.colour_bar(figure, dots, panels, "trial", pad=0.015, aspect=30)
    return figure


def contour(
    rows: Sequence[Trial], drawn: Mapping[str, Axis], names: Sequence[str]
) -> "Figure":
    """Draw the smoothed score over pairs of the most important axes, and the trials.

    The surface is the mean of the trials' scores weighted by a Gaussian of their
    distance, faint where no trial is near.

    Args:
        rows: Trials of the study.
        drawn: Axes by name, as they are drawn.
        names: Names of the axes, the most important first.
    """
    pairs = [(x, y) for i, x in enumerate(names) for y in names[i + 1 :]]
    complete = [row for row in rows if row.state == "complete"]
    scores = np.array([row.score for row in complete], float)
    figure = style.new_figure(style.PAGE_WIDTH, 3.7 if len(pairs) > 1 else 4.8)
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    limits = (float(np.quantile(scores, 0.1)), float(scores.max()))
    if limits[0] >= limits[1]:
        limits = (limits[0] - 0.5, limits[0] + 0.5)
    look = {"cmap": style.COLOUR_MAP, "vmin": limits[0], "vmax": limits[1]}
    best = int(scores.argmax())
    dots = None
    for axes, (x, y) in zip(panels, pairs, strict=True):
        first, second = drawn[x].coordinates(complete), drawn[y].coordinates(complete)
        across, up = _line(drawn[x], first), _line(drawn[y], second)
        sides = [_scaled(drawn[x], first, across), _scaled(drawn[y], second, up)]
        surface, near = _smooth(sides, scores)
        opacity: Any = 0.25 + 0.75 * near
        mesh = {"alpha": opacity, "shading": "nearest", "rasterized": True}
        axes.pcolormesh(across, up, surface, **mesh, **look)
        edge = {"edgecolors": "#ffffff", "lw": 0.8}
        dots = axes.scatter(first, second, c=scores, s=30, zorder=3, **edge, **look)
        style.draw_star(axes, first[best], second[best], mew=0.9, zorder=4)
        drawn[x].set_up(axes, "x")
        drawn[y].set_up(axes, "y")
        style.finish(axes, x=short(x), y=short(y))
        axes.grid(visible=False)
        axes.set_xlim(across[0], across[-1])
        axes.set_ylim(up[0], up[-1])
    style.colour_bar(figure, dots, list(panels), "score", pad=0.015, extend="min")
    return figure


def _line(axis: Axis, positions: np.ndarray) -> np.ndarray:
    """Coordinates across a picture."""
    if axis.names:
        return np.linspace(-0.5, len(axis.names) - 0.5, CELLS)
    if axis.log:
        low, high = np.log(positions.min()), np.log(positions.max())
        pad = 0.05 * (high - low) or 0.05
        return np.exp(np.linspace(low - pad, high + pad, CELLS))
    pad = 0.05 * (positions.max() - positions.min()) or 0.05 * (
        abs(positions.max()) or 1.0
    )
    return np.linspace(positions.min() - pad, positions.max() + pad, CELLS)


def _scaled(
    axis: Axis, positions: np.ndarray, line: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Places and line as shares of the picture's width."""
    scale = np.log if axis.log else np.asarray
    low, high = scale(line[0]), scale(line[-1])
    return (scale(positions) - low) / (high - low), (scale(line) - low) / (high - low)


def _smooth(
    sides: list[tuple[np.ndarray, np.ndarray]], scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed scores `[Y, X]`, and how near trials are, in 0 .. 1."""
    (x, across), (y, up) = sides
    weights = _gauss(across[None, :, None] - x) * _gauss(up[:, None, None] - y)
    total = weights.sum(-1)
    surface = (weights * scores).sum(-1) / np.maximum(total, 1e-30)
    return surface, np.clip(weights.max(-1) * 5, 0, 1)


def _gauss(distance: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (distance / BANDWIDTH) ** 2)


def _choices(names: Sequence[Any]) -> list[str]:
    """Labels of a choice: of parts their classes, where these tell them apart."""
    classes = [str(name).partition("(")[0] for name in names]
    return [_text(x) for x in (classes if len(set(classes)) == len(names) else names)]


def _text(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 18 else text[:17] + "…"
