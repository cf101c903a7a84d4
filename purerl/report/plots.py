"""Pictures: the only door to matplotlib, without its global state."""

from pathlib import Path
from typing import Any

import numpy as np

from purerl.report.statistics import bootstrap_mean, nanmean
from purerl.runner.result import RunResult

COLOURS = ("#2b6cb0", "#c05621")
FAINT = 0.25


def learning_curve(result: RunResult, path: str | Path) -> None:
    """Draw training and evaluation returns over environment steps into a PNG.

    Every seed is a thin line; the mean is thick, with a 95% bootstrap band.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    metrics = result.metrics
    steps = np.asarray(metrics["env_steps"][0], dtype=float)
    _band(axes, steps, metrics["episode_return"], "training", COLOURS[0], "-")
    if result.evaluation:
        _band(
            axes,
            np.asarray(result.evaluation["env_steps"][0], dtype=float),
            result.evaluation["episode_return"].mean(-1),
            "deterministic evaluation",
            COLOURS[1],
            "o-",
        )
    _finish(axes, result)
    temporary = Path(path).with_suffix(".tmp.png")
    figure.savefig(temporary)
    temporary.replace(path)


def _band(
    axes: Any, steps: np.ndarray, values: np.ndarray, label: str, colour: str, mark: str
) -> None:
    num = values.shape[0]
    if num > 1 and mark == "-":
        for line in values[:64]:
            axes.plot(steps, line, color=colour, alpha=FAINT, linewidth=0.6)
    if num > 1:
        low, high = bootstrap_mean(values)
        axes.fill_between(steps, low, high, color=colour, alpha=FAINT, linewidth=0)
    axes.plot(
        steps,
        nanmean(values),
        mark,
        color=colour,
        label=label,
        linewidth=1.8,
        markersize=4,
    )


def _finish(axes: Any, result: RunResult) -> None:
    from matplotlib.ticker import EngFormatter

    env = result.config.env
    name = env if isinstance(env, str) else type(env).__name__
    num = len(result.seeds)
    agents = f"{num} agents, mean and 95% interval" if num > 1 else "1 agent"
    axes.set_title(f"{name}: {agents}", fontsize=11)
    axes.set_xlabel("environment steps per agent")
    axes.set_ylabel("episode return")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
