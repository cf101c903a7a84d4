"""Pictures: the only door to matplotlib, without its global state.

Every function takes data and options and returns a `Picture`, which is a pair of figure
and axes; `save` writes one, `paper` gives it the size of a paper's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.config import ConfigError, check_known
from purerl.execution.format import with_noun
from purerl.report import statistics, style
from purerl.report.search_plots import drift_figure as drift_figure
from purerl.report.search_plots import halving_scores as halving_scores
from purerl.report.search_plots import halving_values as halving_values
from purerl.report.search_plots import loss_figure as loss_figure
from purerl.report.search_plots import optimiser_figure as optimiser_figure
from purerl.report.search_plots import population_scores as population_scores
from purerl.report.search_plots import population_values as population_values
from purerl.report.search_plots import request_scores as request_scores
from purerl.report.search_plots import study_figures as study_figures
from purerl.report.search_plots import study_history as study_history
from purerl.report.search_plots import value_loss_figure as value_loss_figure
from purerl.report.statistics import lowest_of
from purerl.report.style import Axis as Axis
from purerl.report.style import Picture as Picture
from purerl.report.style import paper as paper
from purerl.report.style import save as save
from purerl.report.sweep_data import (
    ENV,
    FEW,
    RETURNS,
    SCORE,
    Scores,
    by_environment,
    curve_metric,
    env_name,
    label,
    labels,
    metric_name,
    read_scores,
    rows,
    short,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


MAX_THIN = 64  # Agents of a run that have a thin line each.
DASHES = ("-", "--", "-.", ":")
STATISTICS = {"iqm": "interquartile mean", "mean": "mean"}
_COUNTERS = ("env_steps", "update")
_EVALUATION = "evaluation_"  # With this begin the names of metrics of evaluations.

Run = Any  # A `purerl.runner.result.RunResult`, or what has the same attributes.


class Line(NamedTuple):
    """Runs of one setting in one environment, drawn as one line with a band.

    Attributes:
        name: Name of the setting, or of the metric of a run.
        steps: Environment steps, `[T]`; NaN after the last point.
        values: Values of the runs, `[S, T]`; NaN where nothing is known.
        is_lost: Whether each run failed, `[S]`.
        floor: What a run that failed is worth after its end; NaN where it is left out.
    """

    name: str
    steps: np.ndarray
    values: np.ndarray
    is_lost: np.ndarray
    floor: float = np.nan


def env_of(result: Run) -> str:
    """Return the name of a run's environment."""
    return serialise.env_name(result.config.env)


def metric_lines(result: Run) -> dict[str, Line]:
    """Return what can be drawn of a run, by name, as sweeps name it.

    Metrics of training have their own names; those of the evaluations, means over the
    episodes, begin with `evaluation_`. Values are NaN after an agent has diverged.
    """
    found, diverged_at = {}, result.diverged_at[:, None]
    for records, start in ((result.metrics, ""), (result.evaluation, _EVALUATION)):
        for name, values in sorted(records.items()):
            if name in _COUNTERS or np.ndim(values) != (3 if start else 2):
                continue
            values = np.asarray(values, float)
            values = values.mean(-1) if start else values
            if (diverged_at >= 0).any():
                seen = np.asarray(records["update"])
                if not start:  # The segment in which it happened is still shown.
                    seen = np.pad(seen[:, :-1], ((0, 0), (1, 0)))
                is_over = (diverged_at >= 0) & (seen > diverged_at)
                values = np.where(is_over, np.nan, values)
            name = start + name.removeprefix("episode_") if start else name
            steps = np.asarray(records["env_steps"][0], float)
            found[name] = Line(name, steps, values, result.diverged_at >= 0)
    return found


def metric_line(result: Run, name: str) -> Line:
    """Return one of `metric_lines`.

    Raises:
        ConfigError: no such metric, with those there are.
    """
    known = metric_lines(result)
    if name not in known:
        names = ", ".join(known)
        raise ConfigError(f"metric: the run has no {name!r}. It has: {names}.")
    return known[name]


def run_lines(result: Run, metric: str) -> dict[str, list[Line]]:
    """Return the agents of a run as a line of its environment, see `metric_line`."""
    return {env_of(result): [metric_line(result, metric)._replace(name="")]}


def learning_curve(result: Run, ax: "Axes | None" = None) -> Picture:
    """Draw training and evaluation returns over environment steps.

    Every seed is a thin line; the mean is thick, with a band of its 95% interval; of
    fewer than ten seeds, of their range, as the title says. The line of an agent that
    diverged ends there, with a cross, and is in no mean.

    Args:
        result: The run.
        ax: Axes to draw into.
    """
    shown = {"training": metric_line(result, "episode_return")}
    if result.evaluation:
        shown["deterministic evaluation"] = metric_line(result, SCORE)
    return _agents_figure(result, {"episode return": shown}, ax, 4.8)


def metric_curves(result: Run, names: Sequence[str], ax: Any = None) -> Picture:
    """Draw metrics over environment steps, a panel for each, as `learning_curve` draws.

    Args:
        result: The run.
        names: Names of metrics, of `metric_lines`.
        ax: Axes to draw into, one for each name.

    Raises:
        ConfigError: no such metric, with those there are, or one without a value.
    """
    lines = {name: metric_line(result, name) for name in names}
    for name, line in lines.items():
        if not np.isfinite(line.values).any():
            raise ConfigError(f"metric: {name} has no value in this run yet.")
    shown = {name.replace("_", " "): {name: line} for name, line in lines.items()}
    return _agents_figure(result, shown, ax, 3.2)


def _agents_figure(
    result: Run, shown: Mapping[str, Mapping[str, Line]], ax: Any, height: float
) -> Picture:
    """Draw agents and their means: a panel for each label of y, its lines by name."""
    size = {"columns": 1, "width": style.PAGE_WIDTH, "height": height, "head": 0.2}
    panels, words = style.panel_grid(len(shown), ax, sharex=True, **size), ""
    for axes, (y, lines) in zip(panels, shown.items(), strict=True):
        for name, line in lines.items():
            words = _draw_agents(axes, line, name)
        if len(panels) == 1:
            axes.legend(frameon=False, loc="best", fontsize="small")
        style.step_axis(axes)
        style.finish(axes, y=y)
    style.finish(panels[-1], x="environment steps per agent")
    num = len(result.seeds)
    agents = f"{num} agents, mean and {words}" if num > 1 else "1 agent"
    title = f"{env_of(result)}: {agents}"
    if result.divergence:
        is_other = (result.diverged_at < 0).any()
        note = "; the mean is that of the others" if is_other else ""
        title = f"{title}\n{result.divergence}{note}"
    return style.picture(panels, title, ax)


def _draw_agents(axes: "Axes", line: Line, label: str) -> str:
    """Draw the agents of a run and their mean; return in words what the band is.

    Of training every agent has a thin line. One that diverged has a dashed one, and is
    in no mean, unless all did.
    """
    steps, values, is_lost = line.steps, line.values, line.is_lost
    is_evaluation = line.name.startswith(_EVALUATION)
    colour = style.colour_of(int(is_evaluation))
    faint: Any = {"color": colour, "alpha": style.FAINT, "linewidth": 0.6}
    lost: Any = {"color": colour, "alpha": 0.6, "linewidth": 0.8, "linestyle": "--"}
    kept, gone = (np.flatnonzero(of)[:MAX_THIN] for of in (~is_lost, is_lost))
    kept = kept if len(values) > 1 else kept[:0]
    thin = () if is_evaluation else (*kept, *gone)
    for agent, of in ((values[i], is_lost[i]) for i in thin):
        known = np.isfinite(agent)
        axes.plot(steps[known], agent[known], **(lost if of else faint))
        if of:
            end = known.nonzero()[0][-1:]
            axes.plot(steps[end], agent[end], "x", color=colour, markersize=7)
    found = statistics.mean_interval(values if is_lost.all() else values[~is_lost])
    mark = "o-" if is_evaluation else "-"
    style.draw_band(axes, steps, found, colour, mark, label=label, markersize=4)
    if len(steps) == 1:  # One point has no band, so a line goes from end to end.
        axes.vlines(steps, found.low, found.high, color=colour, alpha=0.6)
    return found.words


def comparison_figure(dataset: "xr.Dataset", ax: Any = None) -> Picture:
    """Draw the mean return along training, a line per setting, see `curves_figure`.

    Args:
        dataset: Dataset of a `Comparison`: `curve` by environment, setting, seed and
            piece, `env_steps` by environment, setting and piece, at its end; both NaN
            after the last piece.
        ax: Axes to draw into, one for each environment.
    """
    return curves_figure(comparison_lines(dataset), "mean", ax=ax)


def comparison_lines(dataset: "xr.Dataset") -> dict[str, list[Line]]:
    """Return the settings of a comparison as lines, by environment."""
    names, settings = (dataset[k].values.tolist() for k in ("environment", "setting"))
    of_runs = ("environment", "setting", "seed")
    scores = [x.values for x in dataset.data_vars.values() if x.dims == of_runs]
    # A run that failed has no score by some measure, `[E, N, S]`.
    failed = np.any(np.isnan(scores), axis=0)
    steps, curves = dataset["env_steps"].values, dataset["curve"].values
    columns = zip(steps, curves, failed, strict=True)
    return {
        name: [Line(*line) for line in zip(settings, *of_env, strict=True)]
        for name, of_env in zip(names, columns, strict=True)
    }


def curves(
    results: Mapping[str, Any] | Iterable[tuple[str, Any]],
    statistic: str = "iqm",
    *,
    metric: str | None = None,
    ax: Any = None,
) -> Picture:
    """Draw several results into one picture, a panel per environment, with intervals.

    Args:
        results: Runs, sweeps (of which the best point is drawn) and comparisons, by
            their names in the legend; or pairs of name and result, where a name stands
            for one result of each environment.
        statistic: Name of the statistic, iqm or mean.
        metric: Name of a metric of runs and sweeps; if not given, the evaluations
            where all have them, else returns in training.
        ax: Axes to draw into, one for each environment.

    Raises:
        ConfigError: two curves of one name in one environment, or a result without
            curves of returns.
    """
    pairs = list(results.items() if isinstance(results, Mapping) else results)
    metric = metric or _common_metric([result for _, result in pairs])
    lines = dict[str, list[Line]]()
    for name, result in pairs:
        for env, own in result.lines(metric).items():
            for line in own:
                words = ": ".join(str(part) for part in (name, line.name) if part)
                if words in [drawn.name for drawn in lines.setdefault(env, [])]:
                    why = f"two curves of {env} are called {words!r}"
                    raise ConfigError(f"{why}: give other names, NAME=FOLDER.")
                # Of other metrics than returns nobody knows what is the worst.
                is_lost = line.is_lost & (metric in RETURNS)
                lines[env].append(line._replace(name=words, is_lost=is_lost))
    return curves_figure(lines, statistic, y=in_words(metric), ax=ax)


def _common_metric(results: Sequence[Any]) -> str:
    """The evaluations where all have enough of them, else the returns in training."""
    try:
        found = [
            line for x in results for own in x.lines(SCORE).values() for line in own
        ]
    except ConfigError:
        return "episode_return"
    return SCORE if all(len(line.steps) >= FEW for line in found) else "episode_return"


def curves_figure(
    lines: Mapping[str, Sequence[Line]],
    statistic: str = "iqm",
    *,
    y: str = "training return",
    ax: Any = None,
) -> Picture:
    """Draw a statistic of runs along training, a panel per environment.

    Bands are 95% intervals; of fewer than ten seeds, their range. From its end on a run
    that failed counts as the worst return that is drawn in its environment. A setting
    has the same colour in all panels.

    Args:
        lines: Lines by environment, such as `result.lines("episode_return")`.
        statistic: Name of the statistic, iqm or mean.
        y: What the values are.
        ax: Axes to draw into, one for each environment.
    """
    # In three columns a page's width leaves no readable text.
    size = {"columns": 2, "width": style.PAGE_WIDTH / 2, "height": 3.4, "head": 0.8}
    panels, bands = style.panel_grid(len(lines), ax, least=6.0, **size), []
    names = list(dict.fromkeys(line.name for own in lines.values() for line in own))
    for axes, (env, own) in zip(panels, lines.items(), strict=True):
        places = [names.index(line.name) for line in own]
        bands += draw_lines(axes, with_floor(own), statistic, places)
        style.finish(axes, env if len(lines) > 1 else "", "environment steps", y)
    if len(names) > 1:
        style.legend_below(panels[0].figure, panels, 4, ax=ax)
    env = f"{next(iter(lines))}: " if len(lines) == 1 else ""
    bands = " or ".join(dict.fromkeys(bands))
    title = f"{env}{STATISTICS[statistic]} of the seeds\nbands: {bands}"
    lost = sum(int(line.is_lost.sum()) for own in lines.values() for line in own)
    if lost:
        title += f"; {with_noun(lost, 'run')} failed, the worst from its end on"
    return style.picture(panels, title, ax)


def in_words(metric: str) -> str:
    """Return a metric's name for people: `episode_return` is that in training."""
    return "training return" if metric == "episode_return" else metric.replace("_", " ")


def with_floor(lines: Sequence[Line]) -> list[Line]:
    """Return lines whose runs that failed are worth the worst of all of them."""
    worst = lowest_of(np.concatenate([line.values.ravel() for line in lines]))
    return [line._replace(floor=worst) for line in lines]


def draw_lines(
    axes: "Axes", lines: Sequence[Line], statistic: str, places: Sequence[int]
) -> list[str]:
    """Draw lines with their bands; return in words what the bands are.

    Args:
        axes: The panel.
        lines: The lines.
        statistic: Name of the statistic, iqm or mean.
        places: Number of each line's colour, marker and dash.
    """
    # Many bands over one another hide the lines.
    opacity, words = 0.16 if len(lines) <= 4 else 0.08, []
    for line, number in zip(lines, places, strict=True):
        is_point = np.isfinite(line.steps)
        is_over = line.is_lost[:, None] & ~is_followed(line.values)
        values = np.where(is_over, line.floor, line.values)[:, is_point]
        if not np.isfinite(values).any():
            continue
        found = statistics.curve(values, statistic)
        words.append(found.words)
        dash = DASHES[number // len(style.COLOURS) % len(DASHES)]
        look = {"linewidth": 1.6, "marker": style.marker_of(number), "markersize": 4.5}
        # The first mark is another one, so that the marks of settings do not meet.
        look |= {"marks": 8, "first": number % 8, "opacity": opacity}
        steps, colour = line.steps[is_point], style.colour_of(number)
        style.draw_band(axes, steps, found, colour, dash, label=line.name, **look)
    style.step_axis(axes)
    return words


def is_followed(values: np.ndarray) -> np.ndarray:
    """Return whether a point is known or followed by one that is, along the last axis.

    The points of a diverged run for which this is False come after its end.
    """
    known = np.isfinite(values)
    return np.maximum.accumulate(known[..., ::-1], axis=-1)[..., ::-1]


def evolution_curve(
    history: Mapping[str, np.ndarray],
    settings: Mapping[str, Any],
    ax: "Axes | None" = None,
) -> Picture:
    """Draw best and mean fitness over generations, their deviation, and failures.

    Args:
        history: History of an `EvolutionResult`, finished or not.
        settings: Settings of the evolution: what is evolved, by what, and how many
            agents.
        ax: Axes to draw into.
    """
    (axes,) = style.panel_grid(1, ax, width=style.PAGE_WIDTH, height=4.2, head=0)
    mean, std, failed = (history[name] for name in ("mean", "std", "failed"))
    generations = np.arange(1, len(mean) + 1)
    look: dict[str, Any] = {"markersize": 3.5 if len(mean) <= 30 else 0}
    ends, words = (mean, mean - std, mean + std), "mean of the members ± their spread"
    blue, red = style.COLOURS[:2]
    style.draw_band(axes, generations, ends, blue, "o-", label=words, **look)
    axes.plot(generations, history["best"], "^-", color=red, label="best", **look)
    if failed.any():
        where = generations[failed > 0]
        low = np.nanmin(mean - std) if np.isfinite(mean).any() else 0.0
        words = f"members failed ({int(failed.sum()):,} in all)"
        axes.plot(where, np.full(len(where), low), "x", color=style.INK, label=words)
    axes.legend(frameon=False, fontsize="small")
    axes.locator_params(axis="x", integer=True)
    agents = f"{settings['population']} x {settings['rollouts']} agents a generation"
    title = (
        f"{', '.join(settings['evolve'])} by {settings['strategy']['name']}, {agents}"
    )
    style.finish(axes, "", "generation", f"fitness: {settings['fitness']}")
    return style.picture([axes], title, ax)


def evolution_returns(
    returns: np.ndarray, names: Sequence[str], ax: Any = None
) -> Picture:
    """Draw the mean return of members, a panel for each environment.

    Args:
        returns: Mean returns by generation and environment, `[G, E]`.
        names: Names of the environments.
        ax: Axes to draw into, one for each environment.
    """
    generations = np.arange(1, len(returns) + 1)
    panels = style.panel_grid(len(names), ax, height=3.2, head=0)
    for number, (axes, name) in enumerate(zip(panels, names, strict=True)):
        axes.plot(generations, returns[:, number], color=style.colour_of(number))
        axes.locator_params(axis="x", integer=True)
        style.finish(axes, name, "generation", "return" if number == 0 else "")
    return style.picture(panels, "", ax)


# Sweeps: learning curves, final scores against the axes, seeds.

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
        columns = [labels(point[name] for point in points) for name in differ]
        lines = [
            (", ".join(column[place] for column in columns), p)
            for place, p in enumerate(ranking)
        ]
        return ", ".join(map(short, differ)), ", ".join(common), lines
    check_known(by, list(scores.names), "the sweep")
    if by != ENV:
        scores.check_one_task()
    means = scores.means
    groups = scores.by_value(by)
    tops = [max(group, key=lambda p: means[p]) for group in groups.values()]
    lines = list(zip(labels(groups), tops, strict=True))
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
        style.finish(axes, y=in_words(name))
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
    final = _final(metric)
    title = f"{env_name(dataset)}: {final}, mean over seeds{how}"
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
    style.colour_bar(image, [axes], final, pad=0.02)
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
    of_cells: Any = pd.Series(means).groupby(places).mean()
    return of_cells.unstack().to_numpy()


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
    panels, final = style.panel_grid(len(scores.names), ax, sharey=True), _final(metric)
    for axes, name in zip(panels, scores.names, strict=True):
        axis = Axis.of(point[name] for point in scores.points)
        (_draw_dots if scores.grid is None else _draw_slice)(axes, axis, scores, name)
        style.finish(axes, x=short(name), y=final if axes is panels[0] else "")
    what = f"{final}, IQM over seeds"
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
    final = _final(metric)
    title = f"{env_name(dataset)}: {final} of every seed"
    title += f" ({common})" * bool(common)
    return score_groups(groups, title=title, heading=heading, score=final, ax=ax)


def _final(metric: str) -> str:
    """What a picture calls the last value of a metric."""
    return f"final {'score' if metric in RETURNS else metric.replace('_', ' ')}"


def score_groups(
    groups: Mapping[str, np.ndarray],
    *,
    title: str = "",
    heading: str = "",
    score: str = "final score",
    ax: "Axes | None" = None,
) -> Picture:
    """Draw scores of named groups, over their means with intervals or ranges.

    The label of a group counts what is NaN (diverged, missing), which is in no mean.

    Args:
        groups: Scores `[S]` by the name of the group.
        title: Title of the picture.
        heading: The heading of the names: what they are values of.
        score: What the scores are.
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
    style.finish(axes, "", score, heading)
    axes.grid(visible=False, axis="y")
    return style.picture([axes], title, ax)
