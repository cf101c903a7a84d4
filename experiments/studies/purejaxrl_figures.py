"""The results of the study of PureJaxRL, and its figures."""

from typing import Any, NamedTuple

import numpy as np
from measure import smooth

from purerl.report.plots import style
from purerl.report.statistics import mean_interval

STEPS = 500_000
WHOLE = 16  # Up to so many agents train for all steps; more of them for a part.
ENTROPIES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


class Found(NamedTuple):
    """The results of the parts of the study."""

    ours: dict[str, Any]
    theirs: list[dict[str, Any]]
    times: dict[int, dict[str, float]]
    predicted: dict[int, float]
    on_gpu: dict[int, float]
    torch_seconds: float
    sweep: dict[str, Any]
    large: dict[str, float]


def learning_figure(found: Found, steps: int) -> Any:
    """Draw returns over steps and over seconds."""
    ours, theirs = found.ours, found.theirs
    our_seconds, torch_seconds = found.times[1]["train"], found.torch_seconds
    figure = style.new_figure(height=4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    torch_returns = np.array([run["episode_return"] for run in theirs], float)
    for i, (name, x, returns, seconds) in enumerate(
        (
            ("purerl", ours["env_steps"], ours["episode_return"], our_seconds),
            ("PyTorch", theirs[0]["env_steps"], torch_returns, torch_seconds),
        )
    ):
        y = smooth(np.array(returns, float), 10)
        every = max(1, y.shape[1] // 100)
        y, x = y[:, ::every], np.asarray(x, float)[::every]
        intervals = [mean_interval(column) for column in y.T]
        low, high = ([getattr(v, end) for v in intervals] for end in ("low", "high"))
        for axes, scale in ((left, 1.0), (right, seconds / steps)):
            colour = style.COLOURS[i]
            axes.plot(x * scale, y.mean(0), color=colour, label=name)
            axes.fill_between(x * scale, low, high, color=colour, alpha=style.FAINT)
    left.legend(frameon=False)
    right.set_xscale("log")
    style.finish(left, "Over environment steps", "environment steps", "episode return")
    style.step_axis(left)
    style.finish(right, "Over wall-clock time, one agent", "seconds, without compiling")
    return figure


def width_figure(found: Found) -> Any:
    """Draw seconds against agents, with the one PyTorch agent as a line."""
    times, predicted, on_gpu = found.times, found.predicted, found.on_gpu
    figure = style.new_figure(width=7.5, height=4.6)
    axes = figure.subplots()
    agents = list(times)
    colour = style.COLOURS[0]
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
            label=f"purerl on this CPU, {words}",
        )
    axes.plot(
        agents,
        [predicted[n] for n in agents],
        color=style.COLOURS[2],
        marker="^",
        linestyle="--",
        label="purerl on an H200, predicted",
    )
    shown = [n for n in on_gpu if n in times]
    axes.plot(
        shown,
        [on_gpu[n] for n in shown],
        color=style.COLOURS[3],
        marker="s",
        label="purerl on an H200, measured",
    )
    axes.axhline(
        found.torch_seconds,
        color=style.COLOURS[1],
        label="one PyTorch agent on this CPU",
    )
    axes.set_xscale("log", base=2)
    style.log_axis(axes, "y")
    axes.set_xticks(agents, [f"{n:,}" for n in agents], rotation=45)
    axes.legend(frameon=False)
    style.finish(
        axes,
        f"PPO, CartPole-v1, {STEPS:,} steps per agent",
        "agents in one call",
        "seconds of training",
    )
    return figure


def entropy_figure(sweep: dict, steps: int) -> Any:
    """Draw a curve per entropy coefficient."""
    figure = style.new_figure(width=7.5, height=4.4)
    axes = figure.subplots()
    returns = np.array(sweep["episode_return"], float)
    x = np.linspace(0, steps, returns.shape[-1])
    from matplotlib import colormaps

    colours = colormaps[style.COLOUR_MAP](np.linspace(0, 0.92, len(ENTROPIES)))
    lines = zip(ENTROPIES, returns, colours, style.MARKERS, strict=False)
    for number, (value, runs, colour, marker) in enumerate(lines):
        axes.plot(
            x,
            smooth(runs, 20).mean(0),
            color=colour,
            marker=marker,
            markevery=(number * len(x) // 64, max(1, len(x) // 8)),
            markersize=5,
            label=f"{value:g}",
        )
    axes.legend(
        frameon=False,
        title="entropy_coef",
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    style.finish(axes, "", "environment steps", "episode return")
    style.step_axis(axes)
    return figure
