"""Learned policy gradient by meta-gradients, as its paper learned it, and judged.

    python experiments/learn_lpg.py [--steps 1500]
    python experiments/learn_lpg.py --temporal --name learn-lpg-temporal

Agents live on grids with objects (ObjectGrid-v0), each on one of its own, and learn by
a rule that they share. The rule, a random LSTM at first, moves along the mean of the
agents' meta-gradients through five updates (Oh et al. 2020). Then agents learn with it
on grids that it never saw and on Catch, beside the rule that `evolve_lpg.py` evolved
and beside what is written by hand, with the same seeds.

`--temporal` learns a rule that knows how much of the agent's life is over.

Prints a table; writes experiments/results/NAME.json and docs/images/learn-lpg.png. The
same command goes on where it was stopped.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import evolve_lpg as grids
import jax
import numpy as np
import optax
from results import command, hardware
from rich.console import Console

import purerl
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.report import plots
from purerl.report.plots import style
from purerl.rules import LPGRule
from purerl.scale.host import to_device, to_host
from purerl.storage.files import load_arrays, save_arrays
from purerl.storage.folders import differences

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
EVOLVED = ROOT / "experiments" / "artifacts" / "lpg-rule.npz"
LEARNED = {
    "": "learn-lpg",
    ", temporal": "learn-lpg-temporal",
    ", annealed, agents' step size 0.02": "learn-lpg-annealed",
}
BLOCK = 50  # Steps of one call.
LIFE, WIDTH = 16_000, 160  # Environment steps of an agent, and of one update of it.
LEARNING = 3  # Stream of the keys that draw the training grids.


def save(state: purerl.MetaTrainState, out: Path) -> None:
    """Write a state under the number of its step."""
    leaves = jax.tree.leaves(to_host(state))
    named = {str(number): leaf for number, leaf in enumerate(leaves)}
    save_arrays(out / "states" / f"{int(state.step):06d}.npz", named)


def load(file: Path, like: purerl.MetaTrainState) -> purerl.MetaTrainState:
    """Return what `save` wrote."""
    flat = load_arrays(file)
    leaves = [flat[str(number)] for number in range(len(flat))]
    return to_device(jax.tree.unflatten(jax.tree.structure(to_host(like)), leaves))


def same_settings(asked: argparse.Namespace, out: Path) -> None:
    """Keep what a rule is learned with, or refuse to go on with something else.

    Args:
        asked: What was asked for.
        out: Folder of the states.
    """
    free = {"held_out", "seeds", "lpg", "dry"}  # of the judgement
    if not asked.anneal:
        free.add("steps")  # more of them go on
    own = {n: x for n, x in vars(asked).items() if n not in free}
    file = out / "settings.json"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(own))
    found = differences(json.loads(file.read_text()), own)
    if found:
        sys.exit(f"{out}: {'; '.join(found)}; take another --name.")


def learn(
    training: purerl.MetaTraining, steps: int, out: Path
) -> tuple[dict[int, LPGRule], dict[str, list[float]]]:
    """Learn the rule, or go on.

    Args:
        training: From `purerl.meta_train`.
        steps: Steps of the rule.
        out: Folder of the states.

    Returns:
        The rule after some of the steps, and its course: a mean over every block.
    """

    def rule_of(state: purerl.MetaTrainState) -> LPGRule:
        return training.overrides(state)["rule"]

    @jax.jit
    def block(state: purerl.MetaTrainState) -> Any:
        return jax.lax.scan(lambda s, _: training.step(s), state, length=BLOCK)

    state = jax.jit(training.init)(jax.random.key(0))
    rules, course = {0: rule_of(state)}, {}
    (out / "states").mkdir(parents=True, exist_ok=True)
    for file in sorted((out / "states").glob("*.npz")):
        state = load(file, state)
        rules[int(state.step)] = rule_of(state)
        course = json.loads((out / "course.json").read_text())
    for done in range(int(state.step) + BLOCK, steps + 1, BLOCK):
        began = time.perf_counter()
        state, metrics = block(state)
        returns = metrics["episode_return"] * metrics["episodes"]
        row = {
            "step": done,
            "episode_return": np.nansum(returns) / metrics["episodes"].sum(),
            "objective": metrics["objective"].mean(),
            "gradient_norm": metrics["gradient_norm"].mean(),
            "failed": metrics["failed"].mean(),
            "seconds": time.perf_counter() - began,
        }
        for name, value in row.items():
            course.setdefault(name, [])[done // BLOCK - 1 :] = [float(value)]
        print("  ".join(f"{n} {float(x):.4g}" for n, x in row.items()), flush=True)
        if done % (4 * BLOCK) == 0 or done + BLOCK > steps:
            write_atomic(out / "course.json", json.dumps(course))
            save(state, out)
            rules[done] = rule_of(state)
    return rules, course


def main() -> None:
    """Learn, judge, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", default="learn-lpg", help="of folder and results")
    parser.add_argument("--lpg", type=Path, default=Path("runs/evolve-lpg"))
    parser.add_argument("--steps", type=int, default=1_500, help="of the rule")
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--grids", type=int, default=256, help="to learn on")
    parser.add_argument("--held-out", type=int, default=32, help="grids to judge on")
    parser.add_argument("--seeds", type=int, default=4, help="of each judged grid")
    parser.add_argument("--hidden-size", type=int, default=16)
    parser.add_argument("--prediction-size", type=int, default=8)
    parser.add_argument("--temporal", action="store_true")
    parser.add_argument("--agent-learning-rate", type=float, default=1e-2)
    parser.add_argument("--meta-learning-rate", type=float, default=3e-3)
    parser.add_argument("--anneal", action="store_true", help="that one to zero")
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    out = ROOT / "runs" / asked.name
    load = os.getloadavg()[0]
    config = grids.lpg_config(argparse.Namespace(**{**vars(asked), "steps": LIFE}))
    config = config.replace(rule=grids.make_rule(asked, "random"))
    rate: Any = asked.meta_learning_rate
    if asked.anneal:
        rate = optax.linear_schedule(rate, 0.0, asked.steps)
    training = purerl.meta_train(
        config,
        "rule",
        agents=asked.agents,
        tasks=dict(grids.draw_tasks(asked.grids, LEARNING).params),
        meta_learning_rate=rate,
    )
    same_settings(asked, out)
    rules, course = learn(training, asked.steps, out)
    found = judged(config, rules, asked)
    Console(width=150, highlight=False).print(grids.table(found))
    purerl.save_part(rules[max(rules)], out / "rule.npz")
    print(f"learned in {sum(course['seconds']):.0f} s, compilation included")
    if asked.dry:
        return
    numbers = {
        "command": command(parser, asked),
        "steps_of_environments": asked.agents * training.meta.unroll * WIDTH,
        "course": course,
        "judged": found,
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(RESULTS / f"{asked.name}.json", json.dumps(numbers, indent=1) + "\n")
    plots.save(picture(), ROOT / "docs" / "images" / "learn-lpg.png")


def picture() -> Any:
    """Areas on held-out grids of the rules that were learned, and of the evolved."""
    figure = style.new_figure(8.0, 4.4)
    axes = figure.subplots()
    old = json.loads((RESULTS / "evolve-lpg.json").read_text())
    generation = (
        old["settings"]["population"] * len(old["settings"]["baselines"]) * LIFE
    )
    courses = {"evolved": (old["judged"], "generation ", generation)}
    for label, name in LEARNED.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            found = json.loads(file.read_text())
            steps = found.get("steps_of_environments", 64 * 5 * WIDTH)
            courses[f"meta-gradients{label}"] = (found["judged"], "step ", steps)
    for number, (label, (rows, prefix, steps)) in enumerate(courses.items()):
        at = [int(n.removeprefix(prefix)) for n in rows if n.startswith(prefix)]
        areas = np.array([rows[f"{prefix}{x}"]["held-out grids"]["area"] for x in at])
        x = np.array(at) * steps / 1e6
        colour = style.COLOURS[number]
        axes.fill_between(
            x, *areas[:, 1:].T, color=colour, alpha=style.FAINT, linewidth=0
        )
        axes.plot(x, areas[:, 0], color=colour, marker="o", markersize=4, label=label)
    for number, name in enumerate(("A2C, tuned", "PPO, tuned")):
        value = old["judged"][name]["held-out grids"]["area"][0]
        axes.axhline(value, color="black", linestyle=("--", ":")[number], label=name)
    axes.legend(frameon=False, fontsize=8, loc="lower right", ncols=2)
    words = "area on held-out grids\n(0: uniform policy, 1: optimal)"
    title = "LPG's rule, learned in two ways"
    style.finish(axes, title, "environment steps of all agents, millions", words)
    return figure


def judged(
    config: purerl.LPGConfig, rules: dict[int, LPGRule], asked: argparse.Namespace
) -> dict[str, Any]:
    """Summaries by setting and place; what is by hand is as `evolve_lpg.py` has it."""
    rate = np.float32(config.learning_rate)
    entries = [
        grids.Entry(f"step {step}", config, {"rule": rule, "learning_rate": rate})
        for step, rule in sorted(rules.items())
    ]
    old = json.loads((RESULTS / "evolve-lpg.json").read_text())
    evolved = purerl.load_part(EVOLVED)
    rate = np.float32(old["learned_learning_rate"])
    own = config.replace(rule=evolved)
    entries.append(
        grids.Entry("evolved rule", own, {"rule": evolved, "learning_rate": rate})
    )
    for name, of in grids.baselines(config).items():
        best = {"learning_rate": np.float32(old["tuned"][name]["learning_rate"])}
        entries.append(grids.Entry(name, of, best))
    held_out = grids.draw_tasks(asked.held_out, grids.HELD_OUT)
    catch = {"env": "Catch-bsuite", "env_kwargs": {}}
    places = {
        "held-out grids": grids.judge(entries, held_out, asked.seeds, {}, asked.lpg),
        "Catch": grids.judge(entries, None, 8 * asked.seeds, catch, asked.lpg),
    }
    return {
        entry.name: {
            place: grids.summary(by[entry.name]) for place, by in places.items()
        }
        for entry in entries
    }


if __name__ == "__main__":
    main()
