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

import sys
import time
from pathlib import Path
from typing import Any

import evolve_lpg as grids
import jax
import numpy as np
import optax
from frame import EXPERIMENTS, IMAGES, RESULTS, ROOT, Asked, keep, options, read, write
from pictures import between, style

import purerl
from purerl.rules import LPGRule
from purerl.scale.host import to_device, to_host
from purerl.storage.files import load_arrays, save_arrays
from purerl.storage.folders import differences

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


def same_settings(asked: Asked, out: Path) -> None:
    """Keep what a rule is learned with, or refuse to go on with something else."""
    free = {"held_out", "seeds", "dry"}  # of the judgement
    if not asked.anneal:
        free.add("steps")  # more of them go on
    own = {n: x for n, x in asked.given().items() if n not in free}
    file = out / "settings.json"
    if not file.exists():
        write(file, own, indent=None)
    if found := differences(read(file), own):
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
        course = read(out / "course.json")
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
            write(out / "course.json", course, indent=None)
            save(state, out)
            rules[done] = rule_of(state)
    return rules, course


def picture() -> Any:
    """Areas on held-out grids of the rules that were learned, and of the evolved."""
    figure = style.new_figure(8.0, 4.4)
    axes, colours = figure.subplots(), iter(style.COLOURS)
    old = read(RESULTS / "evolve-lpg.json")
    steps = old["settings"]["population"] * len(old["settings"]["baselines"]) * LIFE
    courses = {"evolved": (old["judged"], "generation ", steps)}
    for label, name in LEARNED.items():
        if found := read(RESULTS / f"{name}.json"):
            steps = found.get("steps_of_environments", 64 * 5 * WIDTH)
            courses[f"meta-gradients{label}"] = (found["judged"], "step ", steps)
    for label, (rows, word, steps) in courses.items():
        x, areas, ends = grids.areas_of(rows, word, "held-out grids", steps / 1e6)
        look = {"marker": "o", "markersize": 4}
        between(axes, x, areas, ends, next(colours), label, **look)
    for number, name in enumerate(("A2C, tuned", "PPO, tuned")):
        value = old["judged"][name]["held-out grids"]["area"][0]
        axes.axhline(value, color="black", linestyle=("--", ":")[number], label=name)
    axes.legend(frameon=False, fontsize=8, loc="lower right", ncols=2)
    words = "area on held-out grids\n(0: uniform policy, 1: optimal)"
    title = "LPG's rule, learned in two ways"
    style.finish(axes, title, "environment steps of all agents, millions", words)
    return figure


def judged(
    config: purerl.LPGConfig, rules: dict[int, LPGRule], asked: Asked
) -> dict[str, Any]:
    """Summaries by setting and place; what is by hand is as `evolve_lpg.py` has it."""
    entries = [
        grids.Entry(
            f"step {n}", config, grids.rule_and_rate(rule, config.learning_rate)
        )
        for n, rule in sorted(rules.items())
    ]
    old = read(RESULTS / "evolve-lpg.json")
    rule: Any = purerl.load_part(EXPERIMENTS / "artifacts" / "lpg-rule.npz")
    values = grids.rule_and_rate(rule, old["learned_learning_rate"])
    entries.append(grids.Entry("evolved rule", config.replace(rule=rule), values))
    for name, of in grids.baselines(config).items():
        best = {"learning_rate": np.float32(old["tuned"][name]["learning_rate"])}
        entries.append(grids.Entry(name, of, best))
    return grids.summaries(entries, asked)


def main() -> None:
    """Learn, judge, print and write."""
    asked = options(
        __doc__,
        is_cached=True,
        name=("learn-lpg", "of folder and results"),
        steps=(1_500, "of the rule"),
        agents=64,
        grids=(256, "to learn on"),
        held_out=(32, "grids to judge on"),
        seeds=(4, "of each judged grid"),
        hidden_size=16,
        prediction_size=8,
        temporal=False,
        agent_learning_rate=1e-2,
        meta_learning_rate=3e-3,
        anneal=(False, "that one to zero"),
        dry=(False, "keep no numbers"),
    )
    out = ROOT / "runs" / asked.name
    rule = grids.make_rule(asked, "random")
    config = grids.lpg_config(rule, LIFE, asked.agent_learning_rate)
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
    grids.show_summaries(found)
    purerl.save_part(rules[max(rules)], out / "rule.npz")
    print(f"learned in {sum(course['seconds']):.0f} s, compilation included")
    if asked.dry:
        return
    steps = asked.agents * training.meta.unroll * WIDTH
    numbers = {"steps_of_environments": steps, "course": course, "judged": found}
    keep(asked.name, asked, numbers)
    style.save(picture(), IMAGES / "learn-lpg.png")


if __name__ == "__main__":
    main()
