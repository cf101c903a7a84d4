"""Pictures of a sweep: learning curves, and final scores against its axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, check_known
from purerl.execution.format import with_noun
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.plots.runs import is_followed
from purerl.report.sweep_data import (
    ENV,
    RETURNS,
    SCORE,
    Scores,
    curve_metric,
    env_name,
    label,
    metric_name,
    read_scores,
    rows,
    short,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = 8
POINTS = 100  # Points of a line whose runs have rows at different steps.
TITLE_INCHES = 0.085  # The width of a letter of a title, at the most on average.
TICKS = 8  # Values of an axis, at most, that have a tick each.
ANNOTATED = 12  # A map with more columns than this has no numbers in its cells.


class Line(NamedTuple):
    """One line of a picture.

    Attributes:
        name: The name of the line.
        indices: Indices of the configurations that the line is made of.
    """

    name: str
    indices: tuple[int, ...]


class Lines(NamedTuple):
    """Lines, and what tells them apart.

    Attributes:
        heading: The heading of the names: what they are values of.
        common: Values that all lines share, in words; may be empty.
        lines: Lines from best to worst, or in the order of the axis.
    """

    heading: str
    common: str
    lines: list[Line]


def sweep_curves(
    dataset: "xr.Dataset",
    by: str | None = None,
    *,
    metric: str | Sequence[str] | None = None,
    others: str = "best",
    lines: int = MAX_LINES,
    confidence: float = 0.95,
) -> "Figure":
    """Draw the IQM over seeds along training, with bands, a line per value of an axis.

    Bands are bootstrap intervals; of fewer than ten seeds, their range. Members that
    diverged count from then on as the worst return that is drawn of their environment;
    of other metrics they are left out, as unfinished members (the title counts them).

    Args:
        dataset: Dataset of a sweep.
        by: The axis of which each value has a line; without it, the best configurations
            are drawn.
        metric: Name of the variable, or several, which have a panel each; evaluations
            are averaged over episodes. Without it, evaluations, or training returns
            where there are few evaluations.
        others: The treatment of further axes. `"best"`: each value at the best setting
            of the other axes; `"all"`: runs of all settings pooled, each setting
            resampled by itself.
        lines: Number of lines at most; of more values some are left out evenly, the
            best stays.
        confidence: Confidence level of the bands, each point by itself.

    Raises:
        ConfigError: an unknown axis, metric or choice; see `choose_lines`.
    """
    _check_others(others, ("best", "all"))
    asked = metric or curve_metric(dataset)
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    names = tuple(metric_name(dataset, name) for name in names)
    scores = read_scores(dataset)
    chosen = choose_lines(scores, by, others, lines)
    figure = style.new_figure(height=4.4 * len(names) - 0.6 * (len(names) - 1))
    panels = figure.subplots(len(names), squeeze=False)[:, 0]
    ends, bands = [], []
    for axes, name in zip(panels, names, strict=True):
        end, words = _draw_panel(
            axes, rows(dataset, name), scores, chosen.lines, name, confidence
        )
        ends.append(end)
        bands.append(" or ".join(dict.fromkeys(words)))
        style.step_axis(axes)
        style.finish(axes, y=name.replace("_", " "))
    title = _title(dataset, by, others, scores, chosen.common)
    seeds = with_noun(scores.scores.shape[1], "seed")
    missing = f"; {scores.missing}" if scores.missing else ""
    band = f"IQM over {seeds}, bands: {bands[0]}{missing}"
    style.finish(panels[0], f"{title}\n{band}")
    style.finish(panels[-1], x="environment steps per agent")
    figure.canvas.draw()  # Labels are placed by the final size of the axes.
    for axes, end in zip(panels, ends, strict=True):
        axes.set_ylim(*axes.get_ylim())
        style.label_ends(axes, end, chosen.heading)
    return figure


def _draw_panel(
    axes: "Axes",
    curves: tuple[np.ndarray, np.ndarray],
    scores: Scores,
    lines: Sequence[Line],
    name: str,
    confidence: float,
) -> tuple[list[tuple[float, str, str]], list[str]]:
    """Draw the lines of one metric from its values and steps, `[P, S, T]` both.

    Returns:
        Last value, name and colour of each line; what its band is, in words.
    """
    tables = [_on_one_grid(*curves, line.indices) for line in lines]
    if not any(np.isfinite(table).any() for _, table in tables):
        raise ConfigError(f"metric: {name} has no value in the lines that are drawn.")
    lows = [
        np.min(table, initial=np.inf, where=np.isfinite(table)) for _, table in tables
    ]
    # Lines of several environments are one of each; their returns do not compare.
    floors = lows if len(scores.tasks) > 1 else [min(lows)] * len(lows)
    ends, words = [], []
    for number, (line, (grid, table)) in enumerate(zip(lines, tables, strict=True)):
        dead = scores.diverged[list(line.indices)].T[:, :, None]
        floor = floors[number] if name in RETURNS else np.nan
        filled = np.where(dead & ~is_followed(table), floor, table)
        if not np.isfinite(filled).any():
            continue
        found = statistics.curve(filled, confidence=confidence)
        colour = style.colour_of(number)
        look = {"marker": style.marker_of(number), "markersize": 4.5, "marks": 8}
        style.draw_band(axes, grid, found, colour, opacity=0.16, **look)
        last = found.value[np.isfinite(found.value)][-1]
        ends.append((float(last), line.name, colour))
        words.append(found.words)
    return ends, words


def _title(
    dataset: "xr.Dataset", by: str | None, others: str, scores: Scores, common: str
) -> str:
    name = env_name(dataset)
    if by is None:
        return f"{name}: best configurations" + f" ({common})" * bool(common)
    rest = ", ".join(short(name) for name in scores.names if name != by)
    how = "at their best" if others == "best" else "pooled"
    return f"{name} by {short(by)}" + f" ({rest} {how})" * bool(rest)


def choose_lines(
    scores: Scores, by: str | None, others: str = "best", most: int = MAX_LINES
) -> Lines:
    """Choose the lines to draw: all values of an axis, or the best configurations.

    Configurations of which no member has rows are left out.

    Args:
        scores: Scores of a sweep.
        by: Axis whose values are the lines; None for the best configurations.
        others: The treatment of further axes: `"best"`, or all are taken together.
        most: Number of lines at most.

    Raises:
        ConfigError: an unknown axis, or several environments of which the best would
            be chosen.
    """
    if by is None:
        ranking = scores.ranking()[:most].tolist()
        points = [scores.points[p] for p in ranking]
        differ = [n for n in scores.names if len({str(p[n]) for p in points}) > 1]
        differ = differ or list(scores.names)
        names = [", ".join(label(point[name]) for name in differ) for point in points]
        common = [
            f"{short(n)}={label(points[0][n])}" for n in scores.names if n not in differ
        ]
        return Lines(
            ", ".join(map(short, differ)),
            ", ".join(common),
            [Line(name, (p,)) for name, p in zip(names, ranking, strict=True)],
        )
    check_known(by, list(scores.names), "the sweep")
    if by != ENV:
        scores.check_one_task()
    groups = {value: scores.with_value(by, value) for value in scores.values(by)}
    groups = {value: group for value, group in groups.items() if group}
    means = scores.means
    best = [max(group, key=lambda p: means[p]) for group in groups.values()]
    drawn = [
        Line(label(value), (top,) if others == "best" else tuple(group))
        for top, (value, group) in zip(best, groups.items(), strict=True)
    ]
    # An environment may have no score yet.
    winner = int(np.argmax(np.nan_to_num(means[best], nan=-np.inf)))
    shown = [drawn[i] for i in evenly(len(drawn), most, winner)]
    return Lines(short(by), "", shown)


def evenly(count: int, most: int, keep: int) -> list[int]:
    """Choose at most `most` of `count` indices, evenly, with both ends and `keep`."""
    if count <= most:
        return list(range(count))
    chosen = np.linspace(0, count - 1, most).round().astype(int)
    if most > 1 and keep not in chosen:
        inner = slice(1, -1) if most > 2 else slice(1, None)
        nearest = np.abs(chosen[inner] - keep).argmin()
        chosen[inner][nearest] = keep
    return sorted(set(chosen.tolist()))


def _on_one_grid(
    values: np.ndarray, steps: np.ndarray, indices: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Curves of some configurations at common environment steps.

    Args:
        values: Values of the curves, `[P, S, T]`.
        steps: Environment steps of the values, `[P, S, T]`.
        indices: Indices of the configurations.

    Returns:
        Steps `[T']` and values `[S, M, T']`. Rows that already agree stay as they are;
        without any row there are no steps.
    """
    at, values = steps[list(indices)], values[list(indices)]
    rows_at = at.reshape(-1, at.shape[-1])
    first = rows_at[np.isfinite(rows_at).sum(1).argmax()]
    if not np.isfinite(first).any():
        return np.zeros(0), np.zeros((values.shape[1], len(values), 0))
    same = (rows_at == first) | np.isnan(rows_at)
    if same.all() and np.isfinite(first).all():
        return first.astype(float), np.moveaxis(values, 0, 1)
    grid = np.linspace(np.nanmin(at), np.nanmax(at), POINTS)
    found = np.full((*values.shape[:2], POINTS), np.nan)
    for index in np.ndindex(*values.shape[:2]):
        known = np.isfinite(values[index]) & np.isfinite(at[index])
        if known.any():
            found[index] = np.interp(
                grid, at[index][known], values[index][known], np.nan, np.nan
            )
    return grid, np.moveaxis(found, 0, 1)


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
    _check_others(others, ("mean", "best"))
    if scores.grid is None:
        raise ConfigError(
            "a heat map needs a grid; of a zip or random design draw the scatter."
        )
    if ENV not in (x, y):
        scores.check_one_task()
    rows, columns = scores.values(y), scores.values(x)
    table = np.full((len(rows), len(columns)), np.nan)
    means, join = scores.means, np.mean if others == "mean" else np.max
    for cell in np.ndindex(table.shape):
        inside = set(scores.with_value(y, rows[cell[0]]))
        inside &= set(scores.with_value(x, columns[cell[1]]))
        if inside:
            table[cell] = join(means[sorted(inside)])
    best = np.unravel_index(np.nanargmax(table), table.shape)
    return Cells(rows, columns, table, (int(best[0]), int(best[1])))


def _check_others(others: str, known: tuple[str, str]) -> None:
    if others not in known:
        raise ConfigError(f"others must be one of {', '.join(known)}, got {others!r}.")


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
    varying = [name for name in scores.names if len(scores.values(name)) > 1]
    free = [name for name in varying if name not in (x, y)]
    x = x or (free.pop(0) if free else None)
    y = y or (free.pop(0) if free else None)
    if x is None or y is None:
        raise ConfigError(
            "a heat map needs two axes with several values; draw the slices instead."
        )
    rows, columns, table, best = cells(scores, y, x, others)
    style.load_matplotlib()
    from matplotlib.patches import Rectangle

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
    for values, set_ticks in ((columns, axes.set_xticks), (rows, axes.set_yticks)):
        shown = range(0, len(values), -(-len(values) // 20))  # All up to 20.
        set_ticks(shown, [label(values[i]) for i in shown])
    if max(len(label(value)) for value in columns) > 5 and len(columns) > 6:
        axes.tick_params(axis="x", rotation=45)
    if len(columns) <= ANNOTATED and len(rows) <= 2 * ANNOTATED:
        _write_cells(axes, table, image)
    # The best cell is the brightest one: black shows on it.
    place = (best[1] - 0.5, best[0] - 0.5)
    look: dict[str, Any] = {"fill": False, "edgecolor": "#000000", "lw": 3}
    frame = Rectangle(place, 1, 1, clip_on=False, zorder=3, **look)
    axes.add_patch(frame)
    axes.set_xlabel(short(x))
    axes.set_ylabel(short(y))
    axes.set_title(title, fontsize=11, color=style.INK, loc="left")
    style.ink(axes)
    axes.spines[:].set_visible(False)
    style.colour_bar(figure, image, axes, "final score", pad=0.02)
    return figure


def _write_cells(axes: Any, table: np.ndarray, image: Any) -> None:
    """Write every number into its cell, dark on light colours."""
    for (row, column), value in np.ndenumerate(table):
        if not np.isfinite(value):
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        light = 0.299 * red + 0.587 * green + 0.114 * blue
        colour = "#111111" if light > 0.5 else "#ffffff"
        place = {"ha": "center", "va": "center", "fontsize": 9, "color": colour}
        axes.text(column, row, label(float(value)), **place)


def slices(dataset: "xr.Dataset", *, metric: str = SCORE) -> "Figure":
    """Draw the final score against each axis: other axes at all settings, and the best.

    "All" is the IQM of all runs with a value, with a 95% interval (each setting of the
    other axes is resampled by itself); "best" the IQM of the best setting's seeds, with
    its interval, or with the range of fewer than ten seeds.

    Raises:
        ConfigError: no such metric, no axis, no score yet, or several environments.
    """
    scores = read_scores(dataset, metric)
    figure, panels = _axis_panels(scores)
    filled, means = scores.filled, scores.means
    for axes, name in zip(panels, scores.names, strict=True):
        values = scores.values(name)
        axis = style.Axis.of(values)
        axis.set_up(axes, "x", values, TICKS)
        known = [scores.with_value(name, value) for value in values]
        positions = axis.places(values)[list(map(bool, known))]
        groups = [group for group in known if group]
        tops = [max(group, key=lambda p: means[p]) for group in groups]
        kinds = [("others at their best", [[top] for top in tops])]
        if len(scores.names) > 1 and max(map(len, groups)) > 1:
            kinds.append(("all settings of the others", groups))
        for number, (words, members) in enumerate(kinds):
            found = [statistics.estimate(filled[group].T) for group in members]
            ends = " or ".join(dict.fromkeys(e.words for e in found))
            look = {"marker": style.marker_of(number), "markersize": 5}
            style.draw_band(
                axes,
                positions,
                list(zip(*(e[:3] for e in found), strict=True)),
                style.colour_of(number),
                label=f"{words}; {ends}",
                **look,
            )
        style.finish(axes, x=short(name))
    title = f"{env_name(dataset)}: final score, IQM over seeds"
    return _finish_panels(figure, panels, title)


def scatter(dataset: "xr.Dataset", *, metric: str = SCORE) -> "Figure":
    """Draw every configuration against each axis: for random and zip designs.

    A dot is the mean over seeds, its line their range; the best one is a star.

    Raises:
        ConfigError: no such metric, no axis, no score yet, or several environments.
    """
    scores = read_scores(dataset, metric)
    figure, panels = _axis_panels(scores)
    ranking, filled, means = scores.ranking(), scores.filled, scores.means
    best = int(ranking[0])
    for axes, name in zip(panels, scores.names, strict=True):
        values = scores.values(name)
        axis = style.Axis.of(values)
        axis.set_up(axes, "x", values, TICKS)
        positions = axis.places(point[name] for point in scores.points)
        if axis.names:
            # Values that are strings share few positions, so dots are moved beside one
            # another.
            jitter = np.random.default_rng(0).uniform(-0.22, 0.22, len(positions))
            positions = positions + jitter
        dots, ends = positions[ranking], filled[ranking]
        axes.vlines(dots, ends.min(1), ends.max(1), color=style.COLOURS[0], alpha=0.25)
        axes.plot(dots, means[ranking], "o", color=style.COLOURS[0], ms=4.5, alpha=0.9)
        name_of_best = f"best: {scores.name(best)}"
        style.draw_star(axes, positions[best], means[best], label=name_of_best)
        style.finish(axes, x=short(name))
    seeds = with_noun(scores.scores.shape[1], "seed")
    title = (
        f"{env_name(dataset)}: {len(ranking)} configurations, mean and range of {seeds}"
    )
    return _finish_panels(figure, panels, title)


def _axis_panels(scores: Scores) -> tuple["Figure", list["Axes"]]:
    """A panel per axis, with one scale of scores."""
    if not scores.names:
        raise ConfigError(
            "the dataset has no axis left: of each one a value was selected. Draw its "
            "curves, or the scores of its seeds."
        )
    scores.check_one_task()
    return style.panel_grid(len(scores.names), sharey=True)


def _finish_panels(figure: "Figure", panels: list["Axes"], title: str) -> "Figure":
    panels[0].set_ylabel("final score", color=style.INK)
    style.legend_below(figure, panels[0], 2)
    figure.suptitle(title, fontsize=11, color=style.INK, x=0.01, ha="left")
    return figure
