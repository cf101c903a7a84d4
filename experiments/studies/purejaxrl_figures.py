"""The results of the study of PureJaxRL, and its figures."""

import statistics
from typing import Any, NamedTuple

import numpy as np
from measure import smooth
from palette import STACKS

from purerl.report.plots import style
from purerl.report.statistics import mean_interval

STEPS = 500_000
WHOLE = 16  # Up to so many agents train for all steps; more of them for a part.
ENTROPIES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
GREY = "#c8ccd0"  # Of lines that are there only to compare with.


class Found(NamedTuple):
    """The results of the parts of the study."""

    ours: dict[str, Any]
    theirs: list[dict[str, Any]]
    times: dict[int, dict[str, float]]
    predicted: dict[int, float]
    on_gpu: dict[int, float]
    sweep: dict[str, Any]
    large: dict[str, float]

    def torch_runs(self) -> list[float]:
        """Return the seconds of every PyTorch agent."""
        return [run["seconds"] for run in self.theirs]


def learning_figure(found: Found, steps: int) -> Any:
    """Draw returns over steps and over seconds."""
    ours, theirs = found.ours, found.theirs
    our_seconds = found.times[1]["train"]
    torch_seconds = statistics.mean(found.torch_runs())
    figure = style.new_figure(height=4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    torch_returns = np.array([run["episode_return"] for run in theirs], float)
    for name, x, returns, seconds in (
        ("purerl", ours["env_steps"], ours["episode_return"], our_seconds),
        ("PyTorch", theirs[0]["env_steps"], torch_returns, torch_seconds),
    ):
        y = smooth(np.array(returns, float), 10)
        every = max(1, y.shape[1] // 100)
        y, x = y[:, ::every], np.asarray(x, float)[::every]
        for axes, scale in ((left, 1.0), (right, seconds / steps)):
            _band(axes, x * scale, y, STACKS[name], name)
    left.legend(frameon=False)
    style.log_axis(right, "x")
    style.finish(left, "Over environment steps", "environment steps", "episode return")
    style.step_axis(left)
    style.finish(
        right, "Over wall-clock time, one agent", "seconds, without compilation"
    )
    return figure


def _band(axes: Any, x: np.ndarray, y: np.ndarray, colour: str, name: str) -> None:
    """Draw the mean of runs and the 95% interval of the mean.

    Args:
        axes: Axes to draw on.
        x: Places of the values, `[U]`.
        y: Values of every run, `[runs, U]`.
        colour: Colour of the line and, paler, of the interval.
        name: Name of the line in a legend.
    """
    intervals = [mean_interval(column) for column in y.T]
    low, high = ([getattr(v, end) for v in intervals] for end in ("low", "high"))
    axes.plot(x, y.mean(0), color=colour, label=name)
    axes.fill_between(x, low, high, color=colour, alpha=style.FAINT, linewidth=0)


def width_figure(found: Found, cpu: str) -> Any:
    """Draw seconds against agents, with the one PyTorch agent as a line.

    Args:
        found: The results of the study's parts.
        cpu: Name of the CPU.
    """
    times, predicted, on_gpu = found.times, found.predicted, found.on_gpu
    figure = style.new_figure(width=7.5, height=4.6)
    axes = figure.subplots()
    agents = list(times)
    colour = STACKS["purerl"]
    axes.plot(agents, [times[n]["train"] for n in agents], color=colour)
    for chosen, face, words in (
        ([n for n in agents if n <= WHOLE], colour, "measured"),
        ([n for n in agents if n > WHOLE], "white", "from a part of the run"),
    ):
        axes.plot(
            chosen,
            [times[n]["train"] for n in chosen],
            color=colour,
            linestyle="none",
            marker="o",
            markerfacecolor=face,
            label=f"purerl on {cpu}, {words}",
        )
    axes.plot(
        agents,
        [predicted[n] for n in agents],
        color=style.COLOURS[7],
        marker="^",
        linestyle="--",
        label="purerl on an H200, predicted",
    )
    shown = [n for n in on_gpu if n in times]
    axes.plot(
        shown,
        [on_gpu[n] for n in shown],
        color=style.COLOURS[6],
        marker="s",
        label="purerl on an H200, measured",
    )
    axes.axhline(
        statistics.mean(found.torch_runs()),
        color=STACKS["PyTorch"],
        label=f"one PyTorch agent on {cpu}",
    )
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    axes.set_xticks(agents, [f"{n:,}" for n in agents], rotation=45)
    axes.legend(frameon=False)
    style.finish(
        axes,
        f"PPO, CartPole-v1, {STEPS:,} steps per agent",
        "agents in one call",
        "seconds of training, without compilation",
    )
    return figure


def entropy_figure(sweep: dict, steps: int) -> Any:
    """Draw a panel per entropy coefficient, and the mean of training in the last."""
    figure = style.new_figure(height=5.2)
    grid = figure.subplots(2, 4, sharey=True)
    panels = list(grid.flat)
    returns = np.array(sweep["episode_return"], float)
    every = max(1, returns.shape[-1] // 120)
    x = np.linspace(0, steps, returns.shape[-1])[::every]
    curves = smooth(returns, 20)[..., ::every]
    colour = STACKS["purerl"]
    last = panels[len(ENTROPIES)]
    for number, value in enumerate(ENTROPIES):
        axes = panels[number]
        for other in np.delete(curves.mean(1), number, axis=0):
            axes.plot(x, other, color=GREY, linewidth=0.7)
        _band(axes, x, curves[number], colour, f"{value:g}")
        title = f"coefficient {value:g}"
        style.finish(axes, title, "environment steps" if number > 3 else "")
        style.step_axis(axes)
        whole = np.nanmean(returns[number], axis=-1)
        found = mean_interval(whole)
        mean = whole.mean()
        below_above = [[mean - found.low], [found.high - mean]]
        last.errorbar(number, mean, below_above, color=colour, marker="o", capsize=4)
    last.set_xticks(
        range(len(ENTROPIES)), [f"{x:g}" for x in ENTROPIES], rotation=style.TURNED
    )
    style.finish(last, "mean of all training", "entropy coefficient")
    for axes in grid[:, 0]:
        axes.set_ylabel("episode return", color=style.INK)
    figure.suptitle(
        f"PPO on CartPole-v1, {len(ENTROPIES)} entropy coefficients by "
        f"{returns.shape[1]} seeds",
        color=style.INK,
        fontsize=12,
        x=0.01,
        ha="left",
    )
    return figure
