"""Adversarial cheap talk: evolve a channel that helps or harms who learns beside it.

    python experiments/cheap_talk.py [--out runs/cheap-talk]

The train-time influence of Lu et al. (2023), "Adversarial cheap talk", on CartPole-v1.
A victim (PPO) sees two numbers more than the environment shows it: a deterministic
function of what it sees anyway. The function's weights are evolved over whole training
runs of fresh victims, once to make the area under their training curve large (the
ally) and once to make it small (the adversary). Then `purerl.compare` judges all on
held-out seeds, beside victims without a channel (one that always says zero) and victims
with four random ones.

The numbers in experiments/results/cheap-talk.json were judged by an earlier version:
its random channels were another one for each seed, in one row, and its keys those of
seeds from a million on. Now each random channel is a row of its own with all seeds, and
the keys are the held-out ones of `purerl.compare`.

The same command goes on with evolutions that were stopped. Prints a table; writes
experiments/results/cheap-talk.json and docs/images/cheap-talk.png.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from frame import IMAGES, evolve_seconds, keep, options, plain_rows, show_table
from pictures import band, between, style

import purerl
from purerl.acting.environment import resolve_env
from purerl.envs import CheapTalk

FIELD = "env_params.channel"
GOALS = {"ally": "training_curve", "adversary": "negative_training_curve"}
# Kinds of channels, with their colours.
COLOURS = {
    "ally": "#009e73",
    "none": "#1f83c4",
    "random": "#7f7f7f",
    "adversary": "#d55e00",
}
LANES = 8
RANDOM_CHANNELS = 4


def numbers_of(channel: Any) -> Any:
    """A channel as plain arrays."""
    return jax.tree.map(np.asarray, channel)


def evolve_all(config: purerl.PPOConfig, asked: Any) -> dict[str, Any]:
    """An ally and an adversary, from the same channel."""
    step = {"sigma": asked.sigma, "learning_rate": asked.learning_rate}
    env: CheapTalk = resolve_env(config)  # pyright: ignore[reportAssignmentType]
    is_random = asked.start == "random"
    start = env.random_channel(jax.random.key(0)) if is_random else env.silent_channel()
    return {
        name: purerl.evolve(
            config.replace(env_params={"channel": numbers_of(start)}),
            FIELD,
            strategy=purerl.OpenES(**step, beta1=0.9),
            population=asked.population,
            generations=asked.generations,
            rollouts=asked.rollouts,
            fitness=goal,
            lanes=LANES,
            out=asked.out / name,
        )
        for name, goal in GOALS.items()
    }


def judge(
    config: purerl.PPOConfig, evolved: dict[str, Any], seeds: int, out: Path
) -> purerl.Comparison:
    """Train fresh victims of every channel with the same held-out seeds."""
    env: CheapTalk = resolve_env(config)  # pyright: ignore[reportAssignmentType]
    # Not the key from which an evolution starts.
    keys = jax.random.split(jax.random.key(1), RANDOM_CHANNELS)
    channels = {f"random {n}": env.random_channel(k) for n, k in enumerate(keys, 1)}
    channels = {"none": env.silent_channel(), **channels}
    settings = {name: {FIELD: numbers_of(x)} for name, x in channels.items()}
    return purerl.compare(
        config,
        {**settings, **evolved},
        baseline="none",
        seeds=seeds,
        lanes=LANES,
        out=out,
    )


def curves_of(found: purerl.Comparison, kind: str) -> np.ndarray:
    """Learning curves `[S, T]` of a kind, the mean over channels of each seed."""
    curves = next(iter(found.curves.values()))
    places = [i for i, name in enumerate(found.settings) if name.split()[0] == kind]
    return curves[places].mean(0, dtype=float)


def picture(found: purerl.Comparison, evolved: dict[str, Any]) -> Any:
    """Learning curves of the judged victims, and the course of both evolutions."""
    figure = style.new_figure(11.0, 4.2)
    left, right = figure.subplots(1, 2)
    labels = {"none": "no channel", "random": "random channels"}
    steps = next(iter(found.steps.values()))[0]
    for number, (name, colour) in enumerate(COLOURS.items()):
        look = {"marker": style.MARKERS[number], "markersize": 3.5, "markevery": 4}
        label = labels.get(name, name)
        band(left, steps, curves_of(found, name), colour, label, **look)
    # Between the lines without a channel and those with an adversary there is room.
    left.legend(frameon=False, fontsize=9, loc=(0.62, 0.25))
    style.step_axis(left)
    title = f"victims of {len(found.seeds)} held-out seeds, mean and interval"
    style.finish(left, title, "environment steps", "training return")
    for name, result in evolved.items():
        mean, spread = np.abs(result.history["mean"]), result.history["std"]
        x = np.arange(1, len(mean) + 1)
        between(right, x, mean, (mean - spread, mean + spread), COLOURS[name], name)
    none = curves_of(found, "none").mean()
    right.axhline(none, color=COLOURS["none"], linestyle="--", label="no channel")
    right.legend(frameon=False, fontsize=9)
    title = "area under the victims' curves, mean ± std of a population"
    style.finish(right, title, "generation", "mean of the training curve")
    return figure


def main() -> None:
    """Evolve, judge, print, and write the numbers and the picture."""
    asked = options(
        __doc__,
        is_cached=True,
        out=Path("runs/cheap-talk"),
        steps=32_768,
        population=32,
        generations=64,
        rollouts=1,
        sigma=0.2,
        learning_rate=0.1,
        start=("random", ["random", "silent"]),
        seeds=(64, "held-out ones"),
        dry=(False, "keep no numbers"),
    )
    # The victim: the published sizes of networks and batches, and a silent channel.
    config = purerl.PPOConfig(
        env="cheap-talk/CartPole-v1",
        total_timesteps=asked.steps,
        num_envs=4,
        num_steps=256,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=5e-3,
        hidden_sizes=(32, 32),
        activation="tanh",
        num_evaluations=0,
    )
    evolved = evolve_all(config, asked)
    found = judge(config, evolved, asked.seeds, asked.out / "judged")
    evolving = sum(map(evolve_seconds, evolved.values()))
    show_table(found.table())
    print(f"evolved in {evolving} s")
    if asked.dry or not all(result.finished for result in evolved.values()):
        print("nothing is written")
        return
    evolution = {
        name: {
            **result.settings,
            "generations": result.done,
            "population_mean": np.round(result.history["mean"], 2).tolist(),
        }
        for name, result in evolved.items()
    }
    numbers = {
        "held_out_seeds": asked.seeds,
        "config": purerl.serialise.to_dict(config),
        "evolution": evolution,
        "rows": plain_rows(found.rows),
        "evolving_seconds": evolving,
    }
    keep("cheap-talk", asked, numbers)
    style.save(picture(found, evolved), IMAGES / "cheap-talk.png")


if __name__ == "__main__":
    main()
