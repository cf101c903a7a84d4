"""Learning curves of a sweep: a line per value of an axis, or per configuration."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from purerl.config import ConfigError, check_known
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.sweep_data import (
    ENV,
    RETURNS,
    Scores,
    curve_metric,
    env_name,
    label,
    metric_name,
    read_scores,
    rows,
    seeds_in_words,
    short,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = 8
POINTS = 100
OTHERS = ("best", "all")


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
    if others not in OTHERS:
        raise ConfigError(f"others must be one of {', '.join(OTHERS)}, got {others!r}.")
    asked = metric or curve_metric(dataset)
    names = (asked,) if isinstance(asked, str) else tuple(asked)
    names = tuple(metric_name(dataset, name) for name in names)
    scores = read_scores(dataset)
    chosen = choose_lines(scores, by, others, lines)
    figure = style.new_figure(height=4.4 * len(names) - 0.6 * (len(names) - 1))
    panels = figure.subplots(len(names), squeeze=False)[:, 0]
    drawn = [
        _draw_panel(axes, rows(dataset, name), scores, chosen.lines, name, confidence)
        for axes, name in zip(panels, names, strict=True)
    ]
    for number, (axes, name) in enumerate(zip(panels, names, strict=True)):
        words = drawn[number][1]
        title = _title(dataset, by, others, scores, words, chosen.common)
        style.step_axis(axes)
        style.finish(
            axes,
            title if number == 0 else "",
            "environment steps per agent" if number == len(names) - 1 else "",
            name.replace("_", " "),
        )
    figure.canvas.draw()  # Labels are placed by the final size of the axes.
    for axes, (ends, _) in zip(panels, drawn, strict=True):
        axes.set_ylim(*axes.get_ylim())
        style.label_ends(axes, ends, chosen.heading)
    return figure


def _draw_panel(
    axes: "Axes",
    curves: tuple[np.ndarray, np.ndarray],
    scores: Scores,
    lines: Sequence[Line],
    name: str,
    confidence: float,
) -> tuple[list[tuple[float, str, str]], list[str]]:
    """Draw the lines of one metric.

    Args:
        axes: The panel.
        curves: Values and environment steps, `[P, S, T]` both.
        scores: Scores of the sweep, which say who diverged.
        lines: The lines.
        name: Name of the metric.
        confidence: Confidence level of the bands.

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
        last, colour = _draw_band(axes, grid, found, number)
        ends.append((last, line.name, colour))
        words.append(found.words)
    return ends, words


def _draw_band(
    axes: "Axes", grid: np.ndarray, found: statistics.Estimate, number: int
) -> tuple[float, str]:
    """Draw one line and its band; return its last value and its colour."""
    colour = style.COLOURS[number % len(style.COLOURS)]
    known = np.isfinite(found.value)
    axes.fill_between(
        grid[known],
        found.low[known],
        found.high[known],
        color=colour,
        alpha=0.16,
        linewidth=0,
    )
    axes.plot(
        grid[known],
        found.value[known],
        color=colour,
        linewidth=1.8,
        marker=style.MARKERS[number % len(style.MARKERS)],
        markevery=max(1, int(known.sum()) // 8),
        markersize=4.5,
    )
    return float(found.value[known][-1]), colour


def is_followed(values: np.ndarray) -> np.ndarray:
    """Return whether a point is known or followed by one that is, along the last axis.

    The points of a diverged run for which this is False come after its end.

    Args:
        values: Curves `[..., T]`.
    """
    known = np.isfinite(values)
    return np.maximum.accumulate(known[..., ::-1], axis=-1)[..., ::-1]


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
    """Choose at most `most` of `count` indices, evenly, with both ends and `keep`.

    Args:
        count: Number of indices to choose from.
        most: Number of indices to choose.
        keep: Index that is always chosen.
    """
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


def _title(
    dataset: "xr.Dataset",
    by: str | None,
    others: str,
    scores: Scores,
    words: Sequence[str],
    common: str,
) -> str:
    band = f"IQM over {seeds_in_words(scores.scores.shape[1])}, bands: "
    band += " or ".join(dict.fromkeys(words))
    if scores.missing:
        band += f"; {scores.missing}"
    if by is None:
        where = f" ({common})" if common else ""
        return f"{env_name(dataset)}: best configurations{where}\n{band}"
    rest = ", ".join(short(name) for name in scores.names if name != by)
    how = "at their best" if others == "best" else "pooled"
    where = f" ({rest} {how})" if rest else ""
    return f"{env_name(dataset)} by {short(by)}{where}\n{band}"
