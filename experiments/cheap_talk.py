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

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from results import command, hardware
from results_losses import plain_rows
from rich.console import Console

import purerl
from purerl.acting.environment import resolve_env
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.envs import CheapTalk
from purerl.report.plots import style
from purerl.report.statistics import mean_interval
from purerl.serialise import to_dict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from purerl.meta.result import EvolutionResult

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "cheap-talk.json"
IMAGE = ROOT / "docs" / "images" / "cheap-talk.png"
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


def make_config(steps: int) -> purerl.PPOConfig:
    """The victim: the published sizes of networks and batches, and a silent channel."""
    return purerl.PPOConfig(
        env="cheap-talk/CartPole-v1",
        total_timesteps=steps,
        num_envs=4,
        num_steps=256,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=5e-3,
        hidden_sizes=(32, 32),
        activation="tanh",
        num_evaluations=0,
    )


def start_of(config: purerl.PPOConfig, kind: str) -> purerl.PPOConfig:
    """The config with the channel from which an evolution starts."""
    env = channel_env(config)
    is_random = kind == "random"
    channel = (
        env.random_channel(jax.random.key(0)) if is_random else env.silent_channel()
    )
    numbers = jax.tree.map(np.asarray, channel)
    return config.replace(env_params={"channel": numbers})


def channel_env(config: purerl.PPOConfig) -> CheapTalk:
    """The config's environment."""
    env = resolve_env(config)
    assert isinstance(env, CheapTalk)
    return env


def judge(
    config: purerl.PPOConfig,
    evolved: "dict[str, EvolutionResult]",
    seeds: int,
    out: Path,
) -> purerl.Comparison:
    """Train fresh victims of every channel with the same held-out seeds.

    Args:
        config: Config of the victims.
        evolved: Evolutions by the name of what they learned.
        seeds: Number of held-out seeds.
        out: Folder that keeps what has been trained.
    """
    env = channel_env(config)
    # Not the key from which an evolution starts.
    keys = jax.random.split(jax.random.key(1), RANDOM_CHANNELS)
    channels = {
        "none": env.silent_channel(),
        **{
            f"random {number + 1}": env.random_channel(key)
            for number, key in enumerate(keys)
        },
    }
    settings = {
        name: {FIELD: jax.tree.map(np.asarray, channel)}
        for name, channel in channels.items()
    }
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


def picture(found: purerl.Comparison, evolved: "dict[str, EvolutionResult]") -> None:
    """Learning curves of the judged victims, and the course of both evolutions."""
    figure = style.new_figure(11.0, 4.2)
    left, right = figure.subplots(1, 2)
    labels = {"none": "no channel", "random": "random channels"}
    steps = next(iter(found.steps.values()))[0]
    for number, name in enumerate(COLOURS):
        label = labels.get(name, name)
        line(left, steps, curves_of(found, name), COLOURS[name], number, label)
    # Between the lines without a channel and those with an adversary there is room.
    left.legend(frameon=False, fontsize=9, loc=(0.62, 0.25))
    style.step_axis(left)
    style.finish(
        left,
        f"victims of {len(found.seeds)} held-out seeds, mean and interval",
        "environment steps",
        "training return",
    )
    for name, result in evolved.items():
        mean = np.abs(result.history["mean"])
        generations = np.arange(1, len(mean) + 1)
        spread = result.history["std"]
        right.fill_between(
            generations,
            mean - spread,
            mean + spread,
            color=COLOURS[name],
            alpha=style.FAINT,
            linewidth=0,
        )
        right.plot(generations, mean, color=COLOURS[name], label=name)
    none = curves_of(found, "none").mean()
    right.axhline(none, color=COLOURS["none"], linestyle="--", label="no channel")
    right.legend(frameon=False, fontsize=9)
    style.finish(
        right,
        "area under the victims' curves, mean ± std of a population",
        "generation",
        "mean of the training curve",
    )
    style.save(figure, IMAGE)


def line(
    axes: "Axes",
    steps: np.ndarray,
    curves: np.ndarray,
    colour: str,
    number: int,
    label: str,
) -> None:
    """The mean of curves `[S, T]` with a band."""
    ends = mean_interval(curves)
    axes.fill_between(
        steps, ends.low, ends.high, color=colour, alpha=style.FAINT, linewidth=0
    )
    axes.plot(
        steps,
        curves.mean(0),
        color=colour,
        label=label,
        marker=style.MARKERS[number],
        markersize=3.5,
        markevery=4,
    )


def evolve_all(
    config: purerl.PPOConfig, asked: argparse.Namespace
) -> "dict[str, EvolutionResult]":
    """An ally and an adversary, from the same channel."""
    strategy = {
        "name": "open-es",
        "sigma": asked.sigma,
        "learning_rate": asked.learning_rate,
        "beta1": 0.9,
    }
    return {
        name: purerl.evolve(
            start_of(config, asked.start),
            FIELD,
            strategy=strategy,
            population=asked.population,
            generations=asked.generations,
            rollouts=asked.rollouts,
            fitness=goal,
            lanes=LANES,
            out=asked.out / name,
        )
        for name, goal in GOALS.items()
    }


def main() -> None:
    """Evolve, judge, print, and write the numbers and the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/cheap-talk"))
    parser.add_argument("--steps", type=int, default=32_768)
    parser.add_argument("--population", type=int, default=32)
    parser.add_argument("--generations", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=1)
    parser.add_argument("--sigma", type=float, default=0.2)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--start", choices=("random", "silent"), default="random")
    parser.add_argument("--seeds", type=int, default=64, help="held-out ones")
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    load = os.getloadavg()[0]
    config = make_config(asked.steps)
    evolved = evolve_all(config, asked)
    found = judge(config, evolved, asked.seeds, asked.out / "judged")
    # Also those of generations that an earlier call trained.
    evolving = sum(
        float(result.history["seconds"].sum()) for result in evolved.values()
    )
    console = Console(width=130, highlight=False)
    console.print(found.table())
    console.print(f"evolved in {evolving:.0f} s")
    if asked.dry or not all(result.finished for result in evolved.values()):
        console.print("nothing is written")
        return
    numbers = {
        "command": command(parser, asked),
        "held_out_seeds": asked.seeds,
        "config": to_dict(config),
        "evolution": {
            name: {
                **result.settings,
                "generations": result.done,
                "population_mean": np.round(result.history["mean"], 2).tolist(),
            }
            for name, result in evolved.items()
        },
        "rows": plain_rows(found.rows),
        "evolving_seconds": round(evolving, 1),
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(STORE, json.dumps(numbers, indent=1) + "\n")
    picture(found, evolved)


if __name__ == "__main__":
    main()
