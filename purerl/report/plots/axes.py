"""Final scores against the axes of a sweep: heat map, slices, scatter."""

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, check_known
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.sweep_data import (
    ENV,
    SCORE,
    Scores,
    env_name,
    is_log,
    label,
    read_scores,
    seeds_in_words,
    short,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OTHERS = ("mean", "best")
TITLE_INCHES = 0.085  # The width of a letter of a title, at the most on average.
ANNOTATED = 12  # A map with more columns than this has no numbers in its cells.


class Cells(NamedTuple):
    """Mean scores over two axes.

    Attributes:
        rows: Values of the first axis.
        columns: Values of the second axis.
        table: The mean score of each pair of values, `[R, C]`; NaN where no
            configuration is.
        best: Row and column of the highest score.
    """

    rows: list[Any]
    columns: list[Any]
    table: np.ndarray
    best: tuple[int, int]


def cells(scores: Scores, y: str, x: str, others: str = "mean") -> Cells:
    """Compute the mean score over seeds for each pair of values of two axes.

    Args:
        scores: Scores of a grid.
        y: Axis of the rows.
        x: Axis of the columns.
        others: The treatment of further axes: averaged (`"mean"`) or `"best"`.

    Raises:
        ConfigError: unknown or equal axes, another choice, no grid, or several
            environments in a cell.
    """
    for name in (y, x):
        check_known(name, list(scores.names), "the sweep")
    if x == y:
        raise ConfigError(f"a heat map needs two axes, got {x!r} twice.")
    if others not in OTHERS:
        raise ConfigError(f"others must be one of {', '.join(OTHERS)}, got {others!r}.")
    if scores.grid is None:
        raise ConfigError(
            "a heat map needs a grid; of a zip or random design draw the scatter."
        )
    if ENV not in (x, y):
        scores.check_one_task()
    rows, columns = scores.values(y), scores.values(x)
    means = scores.means
    table = np.full((len(rows), len(columns)), np.nan)
    for r, c in itertools.product(range(len(rows)), range(len(columns))):
        here = [
            means[p]
            for p in scores.with_value(y, rows[r])
            if scores.points[p][x] == columns[c]
        ]
        if here:
            table[r, c] = np.mean(here) if others == "mean" else np.max(here)
    best = np.unravel_index(np.nanargmax(table), table.shape)
    return Cells(rows, columns, table, (int(best[0]), int(best[1])))


def heat_map(
    dataset: "xr.Dataset",
    y: str | None = None,
    x: str | None = None,
    *,
    others: str = "mean",
    metric: str = SCORE,
) -> "Figure":
    """Draw the mean final score over seeds for every pair of values of two axes.

    Args:
        dataset: Dataset of a grid sweep.
        y: Axis of the rows; the second one if not given.
        x: Axis of the columns; the first one if not given.
        others: The treatment of further axes: averaged (`"mean"`) or `"best"`.
        metric: Name of the variable.

    Raises:
        ConfigError: see `cells`; fewer than two axes.
    """
    scores = read_scores(dataset, metric)
    y, x = two_axes(scores, y, x)
    rows, columns, table, best = cells(scores, y, x, others)
    rest = [short(name) for name in scores.names if name not in (x, y)]
    how = f"\n{', '.join(rest)}: {others}" if rest else ""
    title = f"{env_name(dataset)}: final score, mean over seeds{how}"
    # A title is written over the cells and the colour bar, and takes no room itself.
    least = 1.2 + TITLE_INCHES * max(map(len, title.split("\n")))
    figure = style.new_figure(
        min(12.0, max(2.6 + 0.85 * len(columns), least)),
        min(9.0, 1.7 + 0.55 * len(rows)),
    )
    axes = figure.subplots()
    image = axes.imshow(table, cmap=style.COLOUR_MAP, aspect="auto", origin="lower")
    for values, setter in ((columns, axes.set_xticks), (rows, axes.set_yticks)):
        shown = _thinned(len(values))
        setter(shown, [label(values[i]) for i in shown])
    if max(len(label(value)) for value in columns) > 5 and len(columns) > 6:
        axes.tick_params(axis="x", rotation=45)
    if len(columns) <= ANNOTATED and len(rows) <= 2 * ANNOTATED:
        _write_cells(axes, table, image)
    _frame_cell(axes, *best)
    axes.set_xlabel(short(x))
    axes.set_ylabel(short(y))
    axes.set_title(title, fontsize=11, color=style.INK, loc="left")
    style.ink(axes)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label("final score")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    style.ink(bar.ax)
    return figure


def _frame_cell(axes: "Axes", row: int, column: int) -> None:
    """Draw a frame around a cell."""
    from matplotlib.patches import Rectangle

    # White within black shows on every colour of the map.
    for colour, width in (("#000000", 4.5), ("#ffffff", 2.2)):
        square = Rectangle(
            (column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=colour, lw=width
        )
        square.set_clip_on(False)
        square.set_zorder(3)
        axes.add_patch(square)


def two_axes(scores: Scores, y: str | None, x: str | None) -> tuple[str, str]:
    """Choose the axes of a heat map: those asked for, else the first ones that vary.

    Args:
        scores: Scores of a grid.
        y: Axis of the rows, if one is asked for.
        x: Axis of the columns, if one is asked for.

    Raises:
        ConfigError: there are not two.
    """
    varying = [name for name in scores.names if len(scores.values(name)) > 1]
    free = [name for name in varying if name not in (x, y)]
    x = x or (free.pop(0) if free else None)
    y = y or (free.pop(0) if free else None)
    if x is None or y is None:
        raise ConfigError(
            "a heat map needs two axes with several values; draw the slices instead."
        )
    return y, x


def _check_axes(scores: Scores) -> None:
    """Refuse a picture along the axes of what has none."""
    if not scores.names:
        raise ConfigError(
            "the dataset has no axis left: of each one a value was selected. Draw its "
            "curves, or the scores of its seeds."
        )


def slices(dataset: "xr.Dataset", *, metric: str = SCORE) -> "Figure":
    """Draw the final score against each axis: other axes at all settings, and the best.

    "All" is the IQM of all runs with a value, with a 95% interval (each setting of the
    other axes is resampled by itself); "best" the IQM of the best setting's seeds, with
    its interval, or with the range of fewer than ten seeds.

    Raises:
        ConfigError: no such metric, no axis, no score yet, or several environments.
    """
    scores = read_scores(dataset, metric)
    _check_axes(scores)
    scores.check_one_task()
    filled, means = scores.filled, scores.means
    figure, panels = make_panels(len(scores.names))
    for axes, name in zip(panels, scores.names, strict=True):
        values = scores.values(name)
        positions = style.scale_axis(axes, values, log=is_log(values))
        known = [scores.with_value(name, value) for value in values]
        positions = positions[list(map(bool, known))]
        groups = [group for group in known if group]
        tops = [max(group, key=lambda p: means[p]) for group in groups]
        kinds = [("others at their best", [[top] for top in tops])]
        if len(scores.names) > 1 and max(map(len, groups)) > 1:
            kinds.append(("all settings of the others", groups))
        for number, (words, members) in enumerate(kinds):
            found = [statistics.estimate(filled[group].T) for group in members]
            value, low, high = np.array([e[:3] for e in found]).T
            colour = style.COLOURS[number]
            axes.fill_between(
                positions, low, high, color=colour, alpha=style.FAINT, lw=0
            )
            axes.plot(
                positions,
                value,
                color=colour,
                marker=style.MARKERS[number],
                ms=5,
                lw=1.8,
                label=f"{words}; {' or '.join(dict.fromkeys(e.words for e in found))}",
            )
        style.finish(axes, x=short(name))
    panels[0].set_ylabel("final score", color=style.INK)
    _shared_legend(figure, panels[0])
    _head(figure, f"{env_name(dataset)}: final score, IQM over seeds")
    return figure


def scatter(dataset: "xr.Dataset", *, metric: str = SCORE) -> "Figure":
    """Draw every configuration against each axis: for random and zip designs.

    A dot is the mean over seeds, its line their range; the best one is a star.

    Raises:
        ConfigError: no such metric, no axis, no score yet, or several environments.
    """
    scores = read_scores(dataset, metric)
    _check_axes(scores)
    ranking = scores.ranking()
    filled, means = scores.filled, scores.means
    best = int(ranking[0])
    figure, panels = make_panels(len(scores.names))
    for axes, name in zip(panels, scores.names, strict=True):
        values = scores.values(name)
        axis = style.scale_axis(axes, values, log=is_log(values))
        where = dict(zip(values, axis, strict=True))
        positions = np.array([where[point[name]] for point in scores.points])
        if not all(style.is_number(value) for value in values):
            # Values that are strings share few positions, so dots are moved beside one
            # another.
            jitter = np.random.default_rng(0).uniform(-0.22, 0.22, len(positions))
            positions = positions + jitter
        dots, ends = positions[ranking], filled[ranking]
        axes.vlines(dots, ends.min(1), ends.max(1), color=style.COLOURS[0], alpha=0.25)
        axes.plot(dots, means[ranking], "o", color=style.COLOURS[0], ms=4.5, alpha=0.9)
        axes.plot(
            positions[best],
            means[best],
            "*",
            color=style.COLOURS[1],
            ms=15,
            mec="#ffffff",
            mew=0.8,
            label=f"best: {scores.name(best)}",
        )
        style.finish(axes, x=short(name))
    panels[0].set_ylabel("final score", color=style.INK)
    _shared_legend(figure, panels[0])
    seeds = scores.scores.shape[1]
    _head(
        figure,
        f"{env_name(dataset)}: {len(ranking)} configurations, mean and range of "
        f"{seeds_in_words(seeds)}",
    )
    return figure


def make_panels(count: int) -> tuple["Figure", list[Any]]:
    """Make a panel per axis, at most three in a row, one scale of scores."""
    columns = min(count, 3)
    height = -(-count // columns)
    figure = style.new_figure(max(5.0, 3.4 * columns), 0.7 + 3.0 * height)
    panels = figure.subplots(height, columns, sharey=True, squeeze=False).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, list(panels[:count])


def _shared_legend(figure: "Figure", axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )
    for text in legend.get_texts():
        text.set_color(style.INK)


def _head(figure: "Figure", text: str) -> None:
    figure.suptitle(text, fontsize=11, color=style.INK, x=0.01, ha="left")


def _thinned(count: int) -> list[int]:
    """Places of tick labels: all up to 20, then evenly."""
    return list(range(0, count, -(-count // 20)))


def _write_cells(axes: Any, table: np.ndarray, image: Any) -> None:
    for (row, column), value in np.ndenumerate(table):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        light = 0.299 * red + 0.587 * green + 0.114 * blue
        axes.text(
            column,
            row,
            label(float(value)),
            ha="center",
            va="center",
            fontsize=9,
            color="#111111" if light > 0.5 else "#ffffff",
        )
