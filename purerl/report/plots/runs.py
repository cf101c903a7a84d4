"""Curves along training: of runs, of compared settings, of evolutions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.plots.style import Picture
from purerl.report.statistics import lowest_of
from purerl.report.sweep_data import FEW, RETURNS, SCORE

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
    for rows, start in ((result.metrics, ""), (result.evaluation, _EVALUATION)):
        for name, values in sorted(rows.items()):
            if name in _COUNTERS or np.ndim(values) != (3 if start else 2):
                continue
            values = np.asarray(values, float)
            values = values.mean(-1) if start else values
            if (diverged_at >= 0).any():
                seen = np.asarray(rows["update"])
                if not start:  # The segment in which it happened is still shown.
                    seen = np.pad(seen[:, :-1], ((0, 0), (1, 0)))
                is_over = (diverged_at >= 0) & (seen > diverged_at)
                values = np.where(is_over, np.nan, values)
            name = start + name.removeprefix("episode_") if start else name
            steps = np.asarray(rows["env_steps"][0], float)
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
    return curves_figure(lines, statistic, y=metric.replace("_", " "), ax=ax)


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
    y: str = "return",
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
