"""Pictures of a sweep: learning curves, final scores against its axes, seeds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl.config import ConfigError, check_known
from purerl.execution.format import with_noun
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.plots.runs import STATISTICS, Line, draw_lines, with_floor
from purerl.report.plots.style import Axis, Picture
from purerl.report.sweep_data import (
    ENV,
    RETURNS,
    SCORE,
    Scores,
    by_environment,
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

MAX_LINES = 8
ANNOTATED = 12  # A map with more columns than this has no numbers in its cells.
BLUE = style.COLOURS[0]


# Name and index of each configuration that has a line.
Chosen = list[tuple[str, int]]


def choose_lines(
    scores: Scores, by: str | None, most: int = MAX_LINES
) -> tuple[str, str, Chosen]:
    """Choose the best configurations, or each value of an axis at the best others.

    Configurations of which no member has rows are left out. Of more values than `most`
    some are left out evenly; the best stays.

    Returns:
        What the names are values of, what all lines share, in words, and the lines from
        best to worst or in the order of the axis.

    Raises:
        ConfigError: an unknown axis, or several environments of which the best would
            be chosen.
    """
    if by is None:
        ranking = scores.ranking()[:most].tolist()
        points = [scores.points[p] for p in ranking]
        differ = [n for n in scores.names if len({str(p[n]) for p in points}) > 1]
        differ = differ or list(scores.names)
        common = [
            f"{short(n)}={label(points[0][n])}" for n in scores.names if n not in differ
        ]
        lines = [
            (", ".join(label(scores.points[p][name]) for name in differ), p)
            for p in ranking
        ]
        return ", ".join(map(short, differ)), ", ".join(common), lines
    check_known(by, list(scores.names), "the sweep")
    if by != ENV:
        scores.check_one_task()
    means = scores.means
    groups = scores.by_value(by).items()
    lines = [(label(v), max(group, key=lambda p: means[p])) for v, group in groups]
    if len(lines) > most:
        # An environment may have no score yet.
        winner = np.nanargmax([means[p] for _, p in lines])
        evenly = np.linspace(0, len(lines) - 1, most - 1).round().astype(int)
        lines = [lines[i] for i in sorted({*evenly.tolist(), int(winner)})]
    return short(by), "", lines


def sweep_curves(
    dataset: "xr.Dataset",
    by: str | None = None,
    *,
    metric: str | Sequence[str] | None = None,
    statistic: str = "iqm",
    ax: Any = None,
) -> Picture:
    """Draw the IQM over seeds along training, with bands, a line per value of an axis.

    Bands are bootstrap intervals; of fewer than ten seeds, their range. Members that
    diverged count from then on as the worst return that is drawn of their environment;
    of other metrics they are left out, as unfinished members (the title counts them).

    Args:
        dataset: Dataset of a sweep.
        by: The axis of which each value has a line, at the best setting of the other
            axes; without it, the best configurations are drawn.
        metric: Name of the variable, or several, which have a panel each; evaluations
            are averaged over episodes. Without it, evaluations, or training returns
            where there are few evaluations.
        statistic: Name of the statistic, iqm or mean.
        ax: Axes to draw into, one for each metric.

    Raises:
        ConfigError: an unknown axis or metric; see `choose_lines`.
    """
    asked = metric or curve_metric(dataset)
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    names = tuple(metric_name(dataset, name) for name in names)
    scores = read_scores(dataset)
    heading, common, chosen = choose_lines(scores, by)
    size = {"columns": 1, "width": style.PAGE_WIDTH, "height": 3.8, "head": 0.6}
    panels, bands = style.panel_grid(len(names), ax, **size), []
    for axes, name in zip(panels, names, strict=True):
        lines = lines_of(dataset, scores, chosen, name)
        if not any(np.isfinite(line.values).any() for line in lines):
            raise ConfigError(f"metric: {name} has no value in these lines.")
        if name in RETURNS:
            # Lines of several environments are one of each; their returns do not
            # compare.
            groups = [[line] for line in lines] if len(scores.tasks) > 1 else [lines]
            lines = [line for group in groups for line in with_floor(group)]
        bands += draw_lines(axes, lines, statistic, range(len(lines)))
        style.finish(axes, y=name.replace("_", " "))
    style.finish(panels[-1], x="environment steps per agent")
    title = f"{env_name(dataset)}: best configurations"
    title += f" ({common})" * bool(common)
    if by is not None:
        rest = ", ".join(short(name) for name in scores.names if name != by)
        title = f"{env_name(dataset)} by {short(by)}"
        title += f" ({rest} at their best)" * bool(rest)
    seeds = with_noun(scores.scores.shape[1], "seed")
    missing = f"; {scores.missing}" if scores.missing else ""
    words = " or ".join(dict.fromkeys(bands))
    title += f"\n{STATISTICS[statistic]} over {seeds}, bands: {words}{missing}"
    if heading:
        most = max(panels, key=lambda axes: len(axes.lines))
        look = {"loc": "outside right upper", "title": heading, "ax": ax}
        style.legend_below(panels[0].figure, most, 1, alignment="left", **look)
    return style.picture(panels, title, ax)


def lines_of(
    dataset: "xr.Dataset", scores: Scores, chosen: Chosen, metric: str
) -> list[Line]:
    """Return configurations of a sweep as lines.

    Args:
        dataset: Dataset of a sweep.
        scores: Its scores.
        chosen: Name and index of each configuration.
        metric: Name of the variable.
    """
    values, steps = rows(dataset, metric)
    # Members that are not finished lack the last steps.
    return [
        Line(name, np.fmax.reduce(steps[p], axis=0), values[p], scores.diverged[p])
        for name, p in chosen
    ]


def sweep_lines(dataset: "xr.Dataset", metric: str) -> dict[str, list[Line]]:
    """Return the best configuration of each environment of a sweep as a line.

    Raises:
        ConfigError: no such metric; no score yet.
    """
    if metric_name(dataset, metric) != metric:
        raise ConfigError(f"metric: the sweep has no {metric}.")
    found = {}
    for env, part in by_environment(dataset).items():
        scores = read_scores(part)
        best = int(scores.ranking()[0])
        found[env] = lines_of(part, scores, [(scores.name(best), best)], metric)
    return found


def heat_map(
    dataset: "xr.Dataset",
    y: str | None = None,
    x: str | None = None,
    *,
    metric: str = SCORE,
    ax: "Axes | None" = None,
) -> Picture:
    """Draw the mean final score for every pair of values of two axes.

    It is the mean over seeds and over all settings of further axes.

    Args:
        dataset: Dataset of a grid sweep.
        y: Axis of the rows; the second one if not given.
        x: Axis of the columns; the first one if not given.
        metric: Name of the variable.
        ax: Axes to draw into.

    Raises:
        ConfigError: unknown or equal axes, fewer than two, no grid, or several
            environments in a cell.
    """
    scores = read_scores(dataset, metric)
    varying = [name for name in scores.names if len(scores.values(name)) > 1]
    free = [name for name in varying if name not in (x, y)]
    x = x or (free.pop(0) if free else None)
    y = y or (free.pop(0) if free else None)
    if x is None or y is None:
        raise ConfigError("a heat map needs two axes with several values.")
    from matplotlib.patches import Rectangle

    table = mean_table(scores, y, x)
    rest = [short(name) for name in scores.names if name not in (x, y)]
    how = f"\nand over {', '.join(rest)}" if rest else ""
    title = f"{env_name(dataset)}: final score, mean over seeds{how}"
    # A title is written over the cells and the colour bar, and takes no room itself.
    least = 1.2 + 0.085 * max(map(len, title.split("\n")))
    width = min(12.0, max(2.6 + 0.85 * table.shape[1], least))
    height = min(9.0, 1.7 + 0.55 * len(table))
    (axes,) = style.panel_grid(1, ax, width=width, height=height, head=0)
    image = axes.imshow(table, cmap=style.COLOUR_MAP, aspect="auto", origin="lower")
    for along, name in (("x", x), ("y", y)):
        Axis(names=scores.values(name)).set_up(axes, along)
    if max(table.shape) <= ANNOTATED:
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):  # Light colours of the map are those of its end.
                colour = "#111111" if np.asarray(image.norm(value)) > 0.6 else "#ffffff"
                place: Any = {"ha": "center", "va": "center", "fontsize": "small"}
                axes.text(column, row, label(float(value)), color=colour, **place)
    # The best cell is the brightest one: black shows on it.
    row, column = np.unravel_index(np.nanargmax(table), table.shape)
    look: dict[str, Any] = {"fill": False, "lw": 3, "clip_on": False, "zorder": 3}
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look))
    style.finish(axes, "", short(x), short(y))
    axes.grid(visible=False)
    style.colour_bar(image, [axes], "final score", pad=0.02)
    return style.picture([axes], title, ax)


def mean_table(scores: Scores, y: str, x: str) -> np.ndarray:
    """Return the mean score `[Y, X]` of each pair of values; NaN without members.

    Raises:
        ConfigError: see `heat_map`.
    """
    for name in (y, x):
        check_known(name, list(scores.names), "the sweep")
    if x == y:
        raise ConfigError(f"a heat map needs two axes, got {x!r} twice.")
    if scores.grid is None:
        raise ConfigError("a heat map needs a grid; draw the slices of others.")
    if ENV not in (x, y):
        scores.check_one_task()
    import pandas as pd

    orders = [(name, scores.values(name)) for name in (y, x)]
    places = [[order.index(p[n]) for p in scores.points] for n, order in orders]
    means = np.where(scores.is_begun, scores.means, np.nan)
    return pd.Series(means).groupby(places).mean().unstack().to_numpy()


def slices(dataset: "xr.Dataset", *, metric: str = SCORE, ax: Any = None) -> Picture:
    """Draw the final score against each axis.

    Of a grid, other axes are at their best, "all settings" beside it: the IQM of the
    best setting's seeds, and of all runs with a value (each setting of the other axes
    is resampled by itself), with 95% intervals, or the range of fewer than ten seeds.
    Of a random or zip design, a dot per configuration: the mean over seeds, with a line
    for their range, and a star on the best.

    Args:
        dataset: Dataset of a sweep.
        metric: Name of the variable.
        ax: Axes to draw into, one for each axis.

    Raises:
        ConfigError: no such metric, no axis, no score yet, or several environments.
    """
    scores = read_scores(dataset, metric)
    if not scores.names:
        raise ConfigError("the dataset has no axis left; draw its curves or seeds.")
    scores.check_one_task()
    panels = style.panel_grid(len(scores.names), ax, sharey=True)
    for axes, name in zip(panels, scores.names, strict=True):
        axis = Axis.of(point[name] for point in scores.points)
        (_draw_dots if scores.grid is None else _draw_slice)(axes, axis, scores, name)
        style.finish(axes, x=short(name), y="final score" if axes is panels[0] else "")
    what = "final score, IQM over seeds"
    if scores.grid is None:
        what = f"{with_noun(int(scores.is_begun.sum()), 'configuration')}, mean and "
        what += f"range of {with_noun(scores.scores.shape[1], 'seed')}\nbest: "
        what += scores.name(int(scores.ranking()[0]))
    else:
        style.legend_below(panels[0].figure, panels[0], 2, ax=ax)
    return style.picture(panels, f"{env_name(dataset)}: {what}", ax)


def _draw_slice(axes: "Axes", axis: Axis, scores: Scores, name: str) -> None:
    axis.set_up(axes, "x")
    filled, means, groups = scores.filled, scores.means, scores.by_value(name)
    tops = [[max(group, key=lambda p: means[p])] for group in groups.values()]
    kinds = {"others at their best": tops}
    if len(scores.names) > 1 and max(map(len, groups.values())) > 1:
        kinds["all settings of the others"] = list(groups.values())
    for number, (words, members) in enumerate(kinds.items()):
        found = [statistics.estimate(filled[group].T) for group in members]
        ends = " or ".join(dict.fromkeys(e.words for e in found))
        points = list(zip(*(e[:3] for e in found), strict=True))
        look = {"marker": style.marker_of(number), "markersize": 5}
        places, colour = axis.places(groups), style.colour_of(number)
        style.draw_band(axes, places, points, colour, label=f"{words}; {ends}", **look)


def _draw_dots(axes: "Axes", axis: Axis, scores: Scores, name: str) -> None:
    ranking = scores.ranking()
    filled, values = scores.filled[ranking], [scores.points[p][name] for p in ranking]
    look = {"color": BLUE, "s": 20, "alpha": 0.9}
    places, _ = style.draw_points(axes, axis, values, filled.mean(1), **look)
    axes.vlines(places, filled.min(1), filled.max(1), color=BLUE, alpha=0.25)


def seed_scores(
    dataset: "xr.Dataset",
    by: str | None = None,
    *,
    metric: str = SCORE,
    ax: "Axes | None" = None,
) -> Picture:
    """Draw a dot per seed over the mean and its interval: of the best, or by an axis.

    Args:
        dataset: Dataset of a sweep.
        by: The axis of which each value is drawn, at the best of the others.
        metric: Name of the variable.
        ax: Axes to draw into.

    Raises:
        ConfigError: an unknown axis or metric; several environments, unless `by`
            is their axis.
    """
    scores = read_scores(dataset, metric)
    heading, common, lines = choose_lines(scores, by)
    groups = {name: scores.scores[place] for name, place in lines}
    title = f"{env_name(dataset)}: final score of every seed"
    title += f" ({common})" * bool(common)
    return score_groups(groups, title=title, heading=heading, ax=ax)


def score_groups(
    groups: Mapping[str, np.ndarray],
    *,
    title: str = "",
    heading: str = "",
    ax: "Axes | None" = None,
) -> Picture:
    """Draw scores of named groups, over their means with intervals or ranges.

    The label of a group counts what is NaN (diverged, missing), which is in no mean.

    Args:
        groups: Scores `[S]` by the name of the group.
        title: Title of the picture.
        heading: The heading of the names: what they are values of.
        ax: Axes to draw into.
    """
    names = []
    for name, values in groups.items():
        lost = int((~np.isfinite(values)).sum())
        names.append(f"{name}  ({lost} of {len(values)} lost)" if lost else name)
    height = 1.3 + 0.42 * len(names)
    (axes,) = style.panel_grid(1, ax, width=7.5, height=height, head=0)
    rng = np.random.default_rng(0)
    for place, values in enumerate(groups.values()):
        known, colour = values[np.isfinite(values)], style.colour_of(place)
        found = statistics.mean_interval(values)
        axes.plot(found[1:3], [place] * 2, color=colour, lw=12, alpha=0.22)
        axes.plot(found.value, place, "|", color=colour, ms=14, mew=2)
        places = place + rng.uniform(-0.16, 0.16, len(known))
        alpha = max(0.15, min(0.85, 40 / max(len(known), 1)))
        axes.plot(known, places, "o", ms=4, color=colour, alpha=alpha, mew=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    style.finish(axes, "", "final score", heading)
    axes.grid(visible=False, axis="y")
    return style.picture([axes], title, ax)
