"""Learning curves of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from purerl.config import ConfigError
from purerl.report.plots import style
from purerl.report.statistics import mean_interval, nanmean
from purerl.types import HostMetrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_THIN = 64
_COUNTERS = ("env_steps", "update")


class Run(Protocol):
    """The part of a `purerl.runner.result.RunResult` that a picture reads."""

    @property
    def config(self) -> Any:
        """A config, whose `env` is named in the title."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the agents, S of them."""
        ...

    @property
    def metrics(self) -> HostMetrics:
        """Metrics of training by name, `[S, U]` each."""
        ...

    @property
    def evaluation(self) -> HostMetrics:
        """Metrics of the evaluations by name, `[S, T, E]`; empty without any."""
        ...

    @property
    def diverged_at(self) -> np.ndarray:
        """The first update `[S]` with a number that is not finite, or -1."""
        ...

    @property
    def divergence(self) -> str:
        """Words that say who diverged, and when; empty where nobody did."""
        ...


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
    figure = style.new_figure()
    axes = figure.subplots()
    metrics = result.metrics
    steps = np.asarray(metrics["env_steps"][0], dtype=float)
    words = _band(
        axes,
        steps,
        _until_diverged(result, metrics, metrics["episode_return"]),
        "training",
        style.COLOURS[0],
        "-",
        result.diverged_at >= 0,
    )
    if result.evaluation:
        returns = result.evaluation["episode_return"].mean(-1)
        _band(
            axes,
            np.asarray(result.evaluation["env_steps"][0], dtype=float),
            _until_diverged(result, result.evaluation, returns),
            "deterministic evaluation",
            style.COLOURS[1],
            "o-",
            result.diverged_at >= 0,
        )
    axes.legend(frameon=False, loc="best")
    style.step_axis(axes)
    title = _title(result, words)
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
    series = metric_series(result)
    unknown = [name for name in names if name not in series]
    if unknown:
        raise ConfigError(
            f"metric: the run has no {unknown[0]!r}. It has: {', '.join(series)}."
        )
    figure = style.new_figure(height=3.2 * len(names) + 0.8)
    panels = figure.subplots(len(names), squeeze=False, sharex=True)[:, 0]
    words = ""
    for axes, name in zip(panels, names, strict=True):
        steps, values, mark = series[name]
        if not np.isfinite(values).any():
            raise ConfigError(f"metric: {name} has no value in this run yet.")
        colour = style.COLOURS[0 if mark == "-" else 1]
        rows = result.metrics if mark == "-" else result.evaluation
        values = _until_diverged(result, rows, values)
        lost = result.diverged_at >= 0
        words = _band(axes, steps, values, name, colour, mark, lost)
        if len(steps) == 1:  # One point has no band, so a line goes from end to end.
            found = mean_interval(values if lost.all() else values[~lost])
            axes.vlines(steps, found.low, found.high, color=colour, alpha=0.6)
        style.step_axis(axes)
        is_last = axes is panels[-1]
        label = "environment steps per agent" if is_last else ""
        style.finish(axes, "", label, name.replace("_", " "))
    style.finish(panels[0], _title(result, words))
    return figure


def metric_series(result: Run) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
    """Return what can be drawn of a run, by name, as sweeps name it.

    Metrics of training have their own names; those of the evaluations, means over the
    episodes, begin with `evaluation_`.

    Args:
        result: The run.

    Returns:
        Environment steps `[U]`, values `[S, U]`, and the mark of the line, by name.
    """
    found = {}
    for name, values in sorted(result.metrics.items()):
        if name not in _COUNTERS and np.ndim(values) == 2:
            steps = np.asarray(result.metrics["env_steps"][0], dtype=float)
            found[name] = (steps, np.asarray(values, dtype=float), "-")
    for name, values in sorted(result.evaluation.items()):
        if name not in _COUNTERS and np.ndim(values) == 3:
            steps = np.asarray(result.evaluation["env_steps"][0], dtype=float)
            known = f"evaluation_{name.removeprefix('episode_')}"
            found[known] = (steps, np.asarray(values, dtype=float).mean(-1), "o-")
    return found


def _title(result: Run, words: str) -> str:
    env = result.config.env
    name = env if isinstance(env, str) else type(env).__name__
    num = len(result.seeds)
    agents = f"{num} agents, mean and {words}" if num > 1 else "1 agent"
    title = f"{name}: {agents}"
    if not result.divergence:
        return title
    is_other = (result.diverged_at < 0).any()
    note = "; the mean is that of the others" if is_other else ""
    return f"{title}\n{result.divergence}{note}"


def _until_diverged(result: Run, rows: HostMetrics, values: np.ndarray) -> np.ndarray:
    """Values `[S, U]` of rows, NaN after an agent has diverged, as those of a sweep.

    Args:
        result: The run.
        rows: The metrics or the evaluations of the run, which say where a row ends.
        values: The values.
    """
    diverged_at = result.diverged_at[:, None]
    if (diverged_at < 0).all():
        return values
    seen = np.asarray(rows["update"])
    if rows is result.metrics:
        # A row is a segment of updates: the one in which it happened is still shown.
        seen = np.concatenate([np.zeros_like(seen[:, :1]), seen[:, :-1]], 1)
    return np.where((diverged_at >= 0) & (seen > diverged_at), np.nan, values)


def _band(
    axes: "Axes",
    steps: np.ndarray,
    values: np.ndarray,
    label: str,
    colour: str,
    mark: str,
    is_lost: np.ndarray,
) -> str:
    """Draw the mean and its band; what the band is, in words.

    Args:
        axes: The axes.
        steps: Environment steps of the values, `[U]`.
        values: Values of the agents, `[S, U]`.
        label: The name of the line.
        colour: The colour of all that is drawn.
        mark: The mark of the line; with `-` every agent has a thin one.
        is_lost: Whether each agent diverged, `[S]`: it is in no mean, unless all did.
    """
    num = values.shape[0]
    if num > 1 and mark == "-":
        for line in values[~is_lost][:MAX_THIN]:
            axes.plot(
                *_known(steps, line), color=colour, alpha=style.FAINT, linewidth=0.6
            )
    if mark == "-":
        for line in values[is_lost][:MAX_THIN]:
            known = _known(steps, line)
            axes.plot(*known, "--", color=colour, alpha=0.6, linewidth=0.8)
            axes.plot(*(x[-1:] for x in known), "x", color=colour, markersize=7)
    values = values if is_lost.all() else values[~is_lost]
    found = mean_interval(values)
    mean = nanmean(values)
    is_known = np.isfinite(mean)
    axes.fill_between(
        steps[is_known],
        np.broadcast_to(found.low, mean.shape)[is_known],
        np.broadcast_to(found.high, mean.shape)[is_known],
        color=colour,
        alpha=style.FAINT,
        linewidth=0,
    )
    axes.plot(
        *_known(steps, mean),
        mark,
        color=colour,
        label=label,
        linewidth=1.8,
        markersize=4,
    )
    return found.words


def _known(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line that are known."""
    is_known = np.isfinite(values)
    return steps[is_known], values[is_known]
