"""DQN on CartPole-v1 in 20,000 steps: the time, the episodes, the kinds of replay.

python experiments/studies/jym.py [--quick]
"""

import statistics
from collections.abc import Callable
from typing import Any

import jax
import jym_bar
import numpy as np
from measure import compiled, interval_text, smooth, times
from study import Budget, Findings, Row, Study, main

import purerl
from purerl import presets, serialise
from purerl.report.plots import style
from purerl.report.statistics import mean_interval

STUDY = Study(
    name="jym",
    title="DQN in under a second",
    source='"A Gentle Introduction to Deep Reinforcement Learning in JAX" (Pegoud) and '
    "its repository jym",
    question="DQN with the article's sizes and numbers (preset `dqn-jym`): 20,000 "
    "steps of one agent in one environment, of which the first 512 are random, and a "
    "gradient step after each step from the 512th on, which makes 19,489. The study "
    "shows the time of the whole run after compilation, its episodes, its exploration "
    "and its loss, and compares uniform with prioritised replay, with the article's "
    "numbers and with the settings of `dqn-cartpole-20k`.",
    system="jym",
)
STEPS, SEEDS, SOLVED = 20_000, 20, 200
MANY = 30  # Agents of the row on many.
# No episode of CartPole is shorter than seven steps: at most one ends in so many.
ROUNDS = 4
# Presets of the comparison of replay, and their names in its picture.
PRESETS = {
    "dqn-jym": "The article's settings (dqn-jym)",
    "dqn-cartpole-20k": "Tuned settings (dqn-cartpole-20k)",
}


def jym(steps: int, **changes: Any) -> Any:
    """Return the preset of the article."""
    changes = {"total_timesteps": steps, "num_evaluations": 0} | changes
    return presets.load("dqn-jym").replace(**changes)


def time_of(steps: int, seeds: int, mapped: str = "vmap") -> dict[str, float]:
    """Time so many agents in one call.

    Args:
        steps: Environment steps of each.
        seeds: Number of agents.
        mapped: `vmap`, or `pmap` for `purerl.pmap`: blocks of agents on every core.

    Returns:
        Seconds: `compile`; `train`, the median of five; `low` and `high`, their ends.
    """
    train = purerl.make_train(jym(steps))
    keys = jax.random.split(jax.random.key(0), seeds)
    call: Callable[..., Any]
    if mapped == "vmap":
        call, compile_seconds = compiled(jax.vmap(train), keys)
        times(call, keys)
    else:
        call = purerl.pmap(train)
        first, second = times(call, keys, repeats=2)
        compile_seconds = first - second
    seconds = times(call, keys, repeats=5)
    return {
        "compile": compile_seconds,
        "train": statistics.median(seconds),
        "low": min(seconds),
        "high": max(seconds),
    }


def course(steps: int) -> dict[str, Any]:
    """Train one agent and keep its episodes, exploration and loss."""
    train = jax.jit(purerl.make_train(jym(steps, rounds_per_update=ROUNDS)))
    metrics = train(jax.random.key(1)).metrics
    ended = np.asarray(metrics["episodes"]) > 0
    names = ("env_steps", "episode_return", "value_loss")
    kept = {name: np.asarray(metrics[name], float).tolist() for name in names}
    lengths = np.asarray(metrics["episode_length"], float)[ended]
    return {**kept, "lengths": lengths.tolist()}


def replay(preset: str, steps: int, seeds: int) -> dict[str, Any]:
    """Train with both kinds of replay, on the same seeds.

    Returns:
        By kind: final evaluations `[seeds]`, and returns in training `[seeds, U]`.
    """
    found = {}
    for kind in ("uniform", "prioritised"):
        config = presets.load(preset).replace(
            total_timesteps=steps,
            prioritised=kind == "prioritised",
            num_evaluations=1,
            rounds_per_update=40,
        )
        train = jax.jit(jax.vmap(purerl.make_train(config)))
        result = train(jax.random.split(jax.random.key(7), seeds))
        final = np.asarray(result.evaluation["episode_return"])[:, -1].mean(-1)
        returns = np.asarray(result.metrics["episode_return"], float)
        steps_ = np.asarray(result.metrics["env_steps"])[0]
        found[kind] = {
            "final": final.tolist(),
            "returns": returns.tolist(),
            "env_steps": steps_.tolist(),
        }
    return found


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    steps, seeds = (2_000, 2) if budget.quick else (STEPS, SEEDS)
    config = serialise.to_dict(jym(steps))
    one = budget.part("one", lambda: time_of(steps, 1), config=config)
    many = {
        mapped: budget.part(
            f"thirty-{mapped}",
            lambda m=mapped: time_of(steps, MANY, m),
            config=config,
        )
        for mapped in ("pmap", "vmap")
    }
    bar = budget.part("bar", lambda: jym_bar.times_of(jym(steps)), config=config)
    run = budget.part("course", lambda: course(steps), config=config)
    kinds = {
        name: budget.part(
            name,
            lambda n=name: replay(n, steps, seeds),
            config=serialise.to_dict(presets.load(name)),
            steps=steps,
            seeds=seeds,
        )
        for name in PRESETS
    }
    figures = [
        budget.save(
            course_figure(run, steps),
            "course",
            "One agent: the length of every episode (dark where it is longer than "
            f"{SOLVED} steps, which the article calls solved), the share of random "
            "actions (all of them in the first 512 steps), and the loss (average over "
            "50 updates of 4 steps).",
        ),
        budget.save(
            replay_figure(kinds),
            "replay",
            f"Uniform and prioritised replay, {seeds} seeds each: the episodes' return "
            "in training (average over 15 updates of 40 steps), with the 95% interval "
            "of the mean.",
        ),
    ]
    first = next((i for i, n in enumerate(run["lengths"]) if n > 100), None)
    reached = f"episode {first + 1}" if first is not None else "never"
    rows = [
        Row(
            f"{steps:,} steps of one agent, compiled",
            "just over a second (the title: under a second); 15,807 steps/s on a CPU",
            f"{seconds_text(one)}, {steps / one['train']:,.0f} steps/s (and "
            f"{one['compile']:.0f} s of compilation)",
            "The article's time is without compilation too.",
        ),
        *(many_row(mapped, found, one, steps) for mapped, found in many.items()),
        bar_row(bar, steps),
        Row(
            "first episode of more than 100 steps; longest episode",
            "after about 45 episodes; 393 steps, one run",
            f"{reached}; {max(run['lengths']):.0f} steps, one run",
            "Episodes end after 500 steps here, and never by time there.",
        ),
    ]
    rows += [_replay_row(name, found) for name, found in kinds.items()]
    text = [
        "In the article's repository a prioritised buffer weighs samples by "
        "`(N p)^(+beta)`, the sign of the exponent reversed, and does not apply alpha "
        "when priorities are updated; here both are as published (Schaul et al. 2016). "
        "The progress bar of `purerl train --preset dqn-jym` is drawn by the host "
        "between compiled segments and is no part of the program.",
        "The time depends on the machine: on 2026-11-25 the same command printed "
        "0.99 s (0.98 to 1.01 in five) for one agent on two cores of an Intel Xeon, "
        "with 20,123 steps/s. On the two cores of an AMD EPYC the code of that day "
        "(14f9ca4) and today's took equally long, medians of 1.52 to 1.69 s and of "
        "1.53 to 1.78 s in three turns of a throwaway script.",
    ]
    return Findings(rows, figures, [], text)


def seconds_text(found: dict[str, float]) -> str:
    """Return a time in words: the median of the repeats, and from which to which."""
    return f"{found['train']:.2f} s ({found['low']:.2f} to {found['high']:.2f} in five)"


def many_row(
    mapped: str, found: dict[str, float], one: dict[str, float], steps: int
) -> Row:
    """Return the row on many agents in one call.

    Args:
        mapped: `vmap` or `pmap`.
        found: Their time.
        one: Time of one agent.
        steps: Steps of each.
    """
    name = {"vmap": "one `jax.vmap`", "pmap": "one call of `purerl.pmap`"}[mapped]
    share = found["train"] / (MANY * one["train"])
    words = {
        "vmap": "One program for all agents.",
        "pmap": "Blocks of agents side by side, one on every core, as `purerl.run` "
        "has them.",
    }[mapped]
    note = f"{words} It takes {share:.2f} times as long as {MANY} agents one by one."
    return Row(
        f"{MANY} agents in {name}",
        "-",
        f"{seconds_text(found)}, {MANY * steps / found['train']:,.0f} steps/s in all",
        note,
    )


def bar_row(bar: dict[str, list[float]], steps: int) -> Row:
    """Return the row on the progress bar.

    Args:
        bar: Seconds of the runs with the bar, `shown`, and without, `hidden`.
        steps: Steps of each.
    """
    ends = {
        kind: {"train": statistics.median(x), "low": min(x), "high": max(x)}
        for kind, x in bar.items()
    }
    ratio = ends["shown"]["train"] / ends["hidden"]["train"]
    return Row(
        f"{steps:,} steps by `purerl.run`, with its progress bar and without",
        "-",
        f"{seconds_text(ends['shown'])} with the bar, {seconds_text(ends['hidden'])} "
        "without",
        f"Runs in turns, compiled already; the medians have a ratio of {ratio:.2f}. A "
        "run is a chain of compiled segments, between which their metrics come to the "
        "host.",
    )


def _replay_row(name: str, found: dict[str, Any]) -> Row:
    ends = {kind: np.array(x["final"]) for kind, x in found.items()}
    gap = ends["prioritised"] - ends["uniform"]
    interval = mean_interval(gap)
    if interval.low <= 0 <= interval.high:
        verdict = "The interval of the difference includes zero: these seeds do not "
        verdict += "tell the two apart."
    else:
        word = "worse" if interval.high < 0 else "better"
        verdict = f"Prioritised replay is {word} with these settings: the interval of "
        verdict += "the difference excludes zero."
    return Row(
        f"return at the end, uniform against prioritised replay (`{name}`, "
        f"{len(gap)} seeds)",
        "-",
        f"{interval_text(ends['uniform'])} against "
        f"{interval_text(ends['prioritised'])}; difference by seed "
        f"{interval_text(gap)}",
        f"{verdict} Both kinds have the same step size; Schaul et al. take a quarter "
        "of it with prioritised replay.",
    )


def course_figure(run: dict[str, Any], steps: int) -> Any:
    """Draw episodes, exploration and loss of one run."""
    figure = style.new_figure(height=6.0)
    top, below = figure.subplots(2, 1, height_ratios=(3, 2))
    lengths = np.array(run["lengths"])
    solved = lengths > SOLVED
    numbers = np.arange(1, len(lengths) + 1)
    for mask, colour, name in (
        (~solved, style.COLOURS[5], f"at most {SOLVED} steps"),
        (solved, style.COLOURS[0], f"more than {SOLVED} steps"),
    ):
        top.bar(numbers[mask], lengths[mask], 1.0, color=colour, label=name)
    top.legend(frameon=False, loc="upper left")
    style.finish(top, "", "episode", "steps of the episode")
    x = np.array(run["env_steps"])
    config = jym(steps)
    later = config.epsilon_start / (1 + x / config.epsilon_steps)
    epsilon = np.where(x <= config.warm_up_steps, 1.0, later)
    below.plot(x, epsilon, color=style.COLOURS[2], label="share of random actions")
    below.set_ylim(0, 1.05)
    loss = below.twinx()
    loss.plot(
        x, smooth(np.array(run["value_loss"]), 50), color=style.COLOURS[1], label="loss"
    )
    loss.set_yscale("log")
    loss.set_ylabel("loss")
    style.finish(below, "", "environment steps", "share of random actions")
    style.step_axis(below)
    lines = [*below.get_lines(), *loss.get_lines()]
    below.legend(lines, ["share of random actions", "loss"], frameon=False)
    style.ink(loss)
    loss.spines["top"].set_visible(False)
    # Each axis has the colour of its line.
    for axes, line in ((below, lines[0]), (loss, lines[1])):
        axes.yaxis.label.set_color(line.get_color())
        axes.tick_params(axis="y", which="both", colors=line.get_color())
    return figure


def replay_figure(kinds: dict[str, Any]) -> Any:
    """Draw returns in training with both kinds of replay."""
    figure = style.new_figure(height=4.0)
    panels = figure.subplots(1, len(kinds), sharey=True)
    for axes, (name, found) in zip(panels, kinds.items(), strict=True):
        for colour, (kind, x) in zip(style.COLOURS, found.items(), strict=False):
            y = smooth(np.array(x["returns"], float), 15)
            steps = np.array(x["env_steps"])
            every = max(1, y.shape[1] // 80)
            y, steps = y[:, ::every], steps[::every]
            intervals = [mean_interval(column) for column in y.T]
            low, high = ([getattr(v, e) for v in intervals] for e in ("low", "high"))
            axes.plot(steps, y.mean(0), color=colour, label=kind)
            axes.fill_between(steps, low, high, color=colour, alpha=style.FAINT)
        style.finish(axes, PRESETS[name], "environment steps", "")
        style.step_axis(axes)
    panels[0].set_ylabel("episode return")
    panels[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(STUDY, measure)
