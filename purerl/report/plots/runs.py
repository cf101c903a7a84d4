"""Curves along training: of runs, of compared settings, of evolutions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.execution.format import with_noun
from purerl.report import statistics
from purerl.report.plots import style
from purerl.report.statistics import mean_interval

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_THIN = 64  # Agents of a run that have a thin line each.
DASHES = ("-", "--", "-.", ":")
_COUNTERS = ("env_steps", "update")

Run = Any  # A `purerl.runner.result.RunResult`, or what has the same attributes.


class Series(NamedTuple):
    """A metric along a run.

    Attributes:
        steps: Environment steps, `[U]`.
        values: Values of the agents, `[S, U]`; NaN after an agent has diverged.
        is_evaluation: Whether it is of the evaluations, and not of training.
    """

    steps: np.ndarray
    values: np.ndarray
    is_evaluation: bool


def learning_curve(result: Run, path: str | Path) -> None:
    """Draw training and evaluation returns over environment steps into a file.

    Every seed is a thin line; the mean is thick, with a band of its 95% interval; of
    fewer than ten seeds, of their range, as the title says. The line of an agent that
    diverged ends there, with a cross, and is in no mean.

    Raises:
        OSError: the folder cannot be written to.
        ValueError: a name without a known suffix.
    """
    style.save(run_curve(result), path)


def run_curve(result: Run) -> "Figure":
    """Draw the figure that `learning_curve` writes."""
    names = {"episode_return": "training"}
    if result.evaluation:
        names["evaluation_return"] = "deterministic evaluation"
    figure = style.new_figure()
    axes = figure.subplots()
    title = _draw_series(axes, result, names)
    axes.legend(frameon=False, loc="best")
    style.finish(axes, title, "environment steps per agent", "episode return")
    return figure


def metric_curves(result: Run, names: Sequence[str]) -> "Figure":
    """Draw metrics over environment steps, a panel for each, as `run_curve` draws.

    Args:
        result: The run.
        names: Names of metrics, of `metric_series`.

    Raises:
        ConfigError: no such metric, with those there are, or one without a value.
    """
    figure = style.new_figure(height=3.2 * len(names) + 0.8)
    panels = figure.subplots(len(names), squeeze=False, sharex=True)[:, 0]
    series = metric_series(result)
    for axes, name in zip(panels, names, strict=True):
        if name in series and not np.isfinite(series[name].values).any():
            raise ConfigError(f"metric: {name} has no value in this run yet.")
        title = _draw_series(axes, result, {name: name})
        style.finish(
            axes, title if axes is panels[0] else "", "", name.replace("_", " ")
        )
    style.finish(panels[-1], x="environment steps per agent")
    return figure


def _draw_series(axes: "Axes", result: Run, names: Mapping[str, str]) -> str:
    """Draw metrics with their labels in a panel; return the title."""
    series, words = metric_series(result), []
    for name, label in names.items():
        if name not in series:
            known = ", ".join(series)
            raise ConfigError(f"metric: the run has no {name!r}. It has: {known}.")
        words.append(_draw(axes, series[name], result.diverged_at >= 0, label))
    style.step_axis(axes)
    return _title(result, words[0])


def metric_series(result: Run) -> dict[str, Series]:
    """Return what can be drawn of a run, by name, as sweeps name it.

    Metrics of training have their own names; those of the evaluations, means over the
    episodes, begin with `evaluation_`.
    """
    found = {}
    for rows, is_evaluation in ((result.metrics, False), (result.evaluation, True)):
        for name, values in sorted(rows.items()):
            if name in _COUNTERS or np.ndim(values) != 2 + is_evaluation:
                continue
            values = np.asarray(values, dtype=float)
            if is_evaluation:
                name = f"evaluation_{name.removeprefix('episode_')}"
                values = values.mean(-1)
            steps = np.asarray(rows["env_steps"][0], dtype=float)
            values = _until_diverged(result, rows, values, is_evaluation)
            found[name] = Series(steps, values, is_evaluation)
    return found


def _until_diverged(
    result: Run, rows: Mapping[str, Any], values: np.ndarray, is_evaluation: bool
) -> np.ndarray:
    """Values `[S, U]`, NaN after an agent has diverged, as those of a sweep."""
    diverged_at = result.diverged_at[:, None]
    if (diverged_at < 0).all():
        return values
    seen = np.asarray(rows["update"])
    if not is_evaluation:
        # A row is a segment of updates: the one in which it happened is still shown.
        seen = np.concatenate([np.zeros_like(seen[:, :1]), seen[:, :-1]], 1)
    return np.where((diverged_at >= 0) & (seen > diverged_at), np.nan, values)


def _title(result: Run, words: str) -> str:
    name = serialise.env_name(result.config.env)
    num = len(result.seeds)
    agents = f"{num} agents, mean and {words}" if num > 1 else "1 agent"
    title = f"{name}: {agents}"
    if not result.divergence:
        return title
    is_other = (result.diverged_at < 0).any()
    note = "; the mean is that of the others" if is_other else ""
    return f"{title}\n{result.divergence}{note}"


def _draw(axes: "Axes", series: Series, is_lost: np.ndarray, label: str) -> str:
    """Draw the agents of a run and their mean; return in words what the band is.

    Args:
        axes: The panel.
        series: The metric. Of training every agent has a thin line.
        is_lost: Whether each agent diverged, `[S]`: it is in no mean, unless all did.
        label: The name of the line.
    """
    steps, values, is_evaluation = series
    colour = style.colour_of(int(is_evaluation))
    if not is_evaluation and len(values) > 1:
        thin = {"color": colour, "alpha": style.FAINT, "linewidth": 0.6}
        for line in values[~is_lost][:MAX_THIN]:
            axes.plot(*_known(steps, line), **thin)
    if not is_evaluation:
        for line in values[is_lost][:MAX_THIN]:
            known = _known(steps, line)
            axes.plot(*known, "--", color=colour, alpha=0.6, linewidth=0.8)
            axes.plot(*(x[-1:] for x in known), "x", color=colour, markersize=7)
    values = values if is_lost.all() else values[~is_lost]
    found = mean_interval(values)
    mark = "o-" if is_evaluation else "-"
    style.draw_band(axes, steps, found, colour, mark, label=label, markersize=4)
    if len(steps) == 1:  # One point has no band, so a line goes from end to end.
        axes.vlines(steps, found.low, found.high, color=colour, alpha=0.6)
    return found.words


def _known(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line that are known."""
    is_known = np.isfinite(values)
    return steps[is_known], values[is_known]


def comparison_figure(dataset: "xr.Dataset") -> "Figure":
    """Draw the mean return along training, a line per setting.

    Bands are 95% intervals; of fewer than ten seeds, their range. From its end on a run
    that failed counts as the worst return that is drawn in its environment.

    Args:
        dataset: Dataset of a `Comparison`: `curve` by environment, setting, seed and
            piece, `env_steps` by environment, setting and piece, at its end; both NaN
            after the last piece.
    """
    names, settings = (dataset[k].values.tolist() for k in ("environment", "setting"))
    figure, panels = style.panel_grid(
        len(names),
        columns=2,  # In three a page's width leaves no readable text.
        width=style.PAGE_WIDTH / 2,
        height=3.4,
        head=0.8,
        least=6.0,
    )
    # Many bands over one another hide the lines.
    opacity = 0.15 if len(settings) <= 4 else 0.08
    of_runs = ("environment", "setting", "seed")
    scores = [x.values for x in dataset.data_vars.values() if x.dims == of_runs]
    # A run that failed has no score by some measure, `[E, N, S]`.
    failed, words = np.any(np.isnan(scores), axis=0), set()
    for place, (axes, name) in enumerate(zip(panels, names, strict=True)):
        curves = dataset["curve"].values[place]
        worst = np.nanmin(curves, initial=np.inf)
        for number, setting in enumerate(settings):
            steps = dataset["env_steps"].values[place, number]
            is_piece = np.isfinite(steps)
            values = curves[number][:, is_piece]
            has_ended = failed[place, number][:, None] & ~is_followed(values)
            values = np.where(has_ended & np.isfinite(worst), worst, values)
            found = statistics.curve(values, "mean")
            words.add(found.words)
            style.draw_band(
                axes,
                steps[is_piece],
                found,
                style.colour_of(number),
                DASHES[number // len(style.COLOURS) % len(DASHES)],
                opacity=opacity,
                label=setting,
                linewidth=1.6,
                marker=style.marker_of(number),
                markersize=5,
                marks=8,
                first=number % 8,  # So that the marks of settings do not meet.
            )
        style.step_axis(axes)
        style.finish(axes, name, "environment steps", "return")
    title = f"mean of the seeds, and in the band {' or '.join(sorted(words))}"
    if failed.any():
        runs = with_noun(int(failed.sum()), "run")
        title += f"; {runs} failed, the worst from its end on"
    style.legend_below(figure, panels[0], 4, fontsize=10, title=title, title_fontsize=9)
    return figure


def is_followed(values: np.ndarray) -> np.ndarray:
    """Return whether a point is known or followed by one that is, along the last axis.

    The points of a diverged run for which this is False come after its end.
    """
    known = np.isfinite(values)
    return np.maximum.accumulate(known[..., ::-1], axis=-1)[..., ::-1]


def evolution_curve(
    history: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> "Figure":
    """Draw best and mean fitness over generations, their deviation, and failures.

    Args:
        history: History of an `EvolutionResult`, finished or not.
        settings: Settings of the evolution: what is evolved, by what, and how many
            agents.
    """
    figure = style.new_figure(height=4.2)
    axes = figure.subplots()
    mean, std = history["mean"], history["std"]
    generations = np.arange(1, len(mean) + 1)
    is_short = len(generations) <= 30
    style.draw_band(
        axes,
        generations,
        (mean, mean - std, mean + std),
        style.COLOURS[0],
        label="mean of the members ± their standard deviation",
        linewidth=1.5,
        marker="o" if is_short else "",
        markersize=3.5,
    )
    look = {"marker": "^" if is_short else "", "markersize": 3.5, "linewidth": 1.2}
    axes.plot(
        generations,
        history["best"],
        color=style.COLOURS[1],
        label="best member",
        **look,
    )
    failed = history["failed"]
    if failed.any():
        where = generations[failed > 0]
        low = np.nanmin(mean - std) if np.isfinite(mean).any() else 0.0
        words = f"members failed ({int(failed.sum()):,} in all)"
        look = {"marker": "x", "s": 14, "color": style.INK, "label": words}
        axes.scatter(where, np.full(len(where), low), **look)
    axes.legend(frameon=False, fontsize=9)
    axes.locator_params(axis="x", integer=True)
    kind = settings["fitness"]
    kind = kind if ":" in kind else kind.replace("_", " ")
    count = f"{settings['population']} x {settings['rollouts']} agents a generation"
    evolved = ", ".join(settings["evolve"])
    title = f"{evolved} by {settings['strategy']['name']}, {count}"
    style.finish(axes, title, "generation", f"fitness: {kind}")
    return figure


def evolution_returns(returns: np.ndarray, names: Sequence[str]) -> "Figure":
    """Draw the mean return of members, a panel for each environment.

    Args:
        returns: Mean returns by generation and environment, `[G, E]`.
        names: Names of the environments.
    """
    generations = np.arange(1, len(returns) + 1)
    figure = style.new_figure(min(12.0, 1.0 + 3.6 * len(names)), 3.2)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for number, (axes, name) in enumerate(zip(panels, names, strict=True)):
        colour = style.colour_of(number)
        axes.plot(generations, returns[:, number], color=colour, linewidth=1.6)
        axes.locator_params(axis="x", integer=True)
        style.finish(axes, name, "generation", "return" if number == 0 else "")
    return figure
