"""The results of the study of PureJaxRL, and its figures."""

import statistics
from typing import Any, NamedTuple

import numpy as np

# isort: split
from frame import mean_interval
from pictures import STACKS, band, smooth, stacked, style

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
    figure = style.new_figure(height=4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    torch = stacked(theirs, "episode_return"), statistics.mean(found.torch_runs())
    for name, x, returns, seconds in (
        ("purerl", ours["env_steps"], ours["episode_return"], found.times[1]["train"]),
        ("PyTorch", theirs[0]["env_steps"], *torch),
    ):
        y = smooth(returns, 10)
        every = max(1, y.shape[1] // 100)
        y, x = y[:, ::every], np.asarray(x, float)[::every]
        for axes, scale in ((left, 1.0), (right, seconds / steps)):
            band(axes, x * scale, y, STACKS[name], name)
    left.legend(frameon=False)
    style.log_axis(right, "x")
    style.finish(left, "Over environment steps", "environment steps", "episode return")
    style.step_axis(left)
    title = "Over wall-clock time, one agent"
    style.finish(right, title, "seconds, without compilation")
    return figure


def width_figure(found: Found, cpu: str) -> Any:
    """Draw seconds against agents, with the one PyTorch agent as a line."""
    figure = style.new_figure(width=7.5, height=4.6)
    axes, colour = figure.subplots(), STACKS["purerl"]
    agents = list(found.times)
    seconds = {n: times["train"] for n, times in found.times.items()}
    axes.plot(agents, list(seconds.values()), color=colour)
    few = {n: x for n, x in seconds.items() if n <= WHOLE}
    many = {n: x for n, x in seconds.items() if n > WHOLE}
    here = {"color": colour, "linestyle": "none", "marker": "o"}
    predicted = {"color": style.COLOURS[7], "linestyle": "--", "marker": "^"}
    measured = {"color": style.COLOURS[6], "marker": "s"}
    on_gpu = {n: x for n, x in found.on_gpu.items() if n in seconds}
    for numbers, words, look in (
        (few, f"purerl on {cpu}, measured", here),
        (many, f"purerl on {cpu}, from a part of the run", here | {"mfc": "white"}),
        (found.predicted, "purerl on an H200, predicted", predicted),
        (on_gpu, "purerl on an H200, measured", measured),
    ):
        axes.plot(list(numbers), list(numbers.values()), label=words, **look)
    torch, label = statistics.mean(found.torch_runs()), f"one PyTorch agent on {cpu}"
    axes.axhline(torch, color=STACKS["PyTorch"], label=label)
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    axes.set_xticks(agents, [f"{n:,}" for n in agents], rotation=45)
    axes.legend(frameon=False)
    title = f"PPO, CartPole-v1, {STEPS:,} steps per agent"
    words = "seconds of training, without compilation"
    style.finish(axes, title, "agents in one call", words)
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
        band(axes, x, curves[number], colour, f"{value:g}")
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
    words = f"{len(ENTROPIES)} entropy coefficients by {returns.shape[1]} seeds"
    place = {"fontsize": 12, "x": 0.01, "ha": "left"}
    figure.suptitle(f"PPO on CartPole-v1, {words}", color=style.INK, **place)
    return figure
