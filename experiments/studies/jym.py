"""DQN on CartPole-v1 in 20,000 steps: the time, and the episodes.

python experiments/studies/jym.py [--quick]
"""

from typing import Any

import jax
import numpy as np
from measure import time_agents
from study import Budget, Findings, Row, main, study_of

# isort: split
from pictures import smooth, style

import purerl
from purerl import presets, serialise

STUDY, WORDS = study_of("jym", "jym")
STEPS, SOLVED = 20_000, 200
MANY = 30  # Agents of the row on many.
TURNS = 5
# No episode of CartPole is shorter than seven steps: at most one ends in so many.
ROUNDS = 4


def jym(steps: int, **changes: Any) -> Any:
    """Return the preset of the article."""
    changes = {"total_timesteps": steps, "num_evaluations": 0} | changes
    return presets.load("dqn-jym").replace(**changes)


def course(steps: int) -> dict[str, Any]:
    """Train one agent and keep its episodes, exploration and loss."""
    train = jax.jit(purerl.make_train(jym(steps, rounds_per_update=ROUNDS)))
    metrics = train(jax.random.key(1)).metrics
    ended = np.asarray(metrics["episodes"]) > 0
    names = ("env_steps", "value_loss")
    kept = {name: np.asarray(metrics[name], float).tolist() for name in names}
    lengths = np.asarray(metrics["episode_length"], float)[ended]
    return {**kept, "lengths": lengths.tolist()}


def measure(budget: Budget) -> Findings:
    """Measure everything, part by part."""
    steps = 2_000 if budget.quick else STEPS
    timed, config = jym(steps), serialise.to_dict(jym(steps))
    one = budget.part("one", time_agents, timed, 1, TURNS, config=config)
    many = {}
    for mapped in ("pmap", "vmap"):
        given = (time_agents, timed, MANY, TURNS, mapped)
        many[mapped] = budget.part(f"thirty-{mapped}", *given, config=config)
    run = budget.part("course", course, steps, config=config)
    caption = WORDS.fill("picture course", solved=SOLVED)
    figures = [budget.save(course_figure(run, steps), "course", caption)]
    first = next((i for i, n in enumerate(run["lengths"]) if n > 100), None)
    reached = f"episode {first + 1}" if first is not None else "never"
    own = {"seconds": seconds_text(one), "compile": one["compile"]}
    longest = max(run["lengths"])
    rows = [
        WORDS.row("one", steps=steps, rate=steps / one["train"], **own),
        *(many_row(mapped, found, one, steps) for mapped, found in many.items()),
        WORDS.row("episodes", reached=reached, longest=longest),
    ]
    return Findings(rows, figures, [WORDS["priorities"], WORDS["machine"]])


def seconds_text(found: dict[str, float]) -> str:
    """Return a time in words: the median of the repeats, and from which to which."""
    return f"{found['train']:.2f} s ({found['low']:.2f} to {found['high']:.2f} in five)"


def many_row(
    mapped: str, found: dict[str, float], one: dict[str, float], steps: int
) -> Row:
    """Return the row on many agents in one call, by their time and that of one."""
    numbers = {
        "agents": MANY,
        "seconds": seconds_text(found),
        "rate": MANY * steps / found["train"],
        "share": found["train"] / (MANY * one["train"]),
    }
    return WORDS.row(mapped, **numbers)


def course_figure(run: dict[str, Any], steps: int) -> Any:
    """Draw episodes, exploration and loss of one run."""
    figure = style.new_figure(height=6.0)
    top, below = figure.subplots(2, 1, height_ratios=(3, 2))
    lengths = np.array(run["lengths"])
    solved, numbers = lengths > SOLVED, np.arange(1, len(lengths) + 1)
    for mask, colour, name in (
        (~solved, style.COLOURS[5], f"at most {SOLVED} steps"),
        (solved, style.COLOURS[0], f"more than {SOLVED} steps"),
    ):
        top.bar(numbers[mask], lengths[mask], 1.0, color=colour, label=name)
    top.legend(frameon=False, loc="upper left")
    style.finish(top, "", "episode", "steps of the episode")
    x, config = np.array(run["env_steps"]), jym(steps)
    later = config.epsilon_start / (1 + x / config.epsilon_steps)
    epsilon = np.where(x <= config.warm_up_steps, 1.0, later)
    below.plot(x, epsilon, color=style.COLOURS[2])
    below.set_ylim(0, 1.05)
    loss = below.twinx()
    loss.plot(x, smooth(run["value_loss"], 50), color=style.COLOURS[1])
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


if __name__ == "__main__":
    main(STUDY, measure)
