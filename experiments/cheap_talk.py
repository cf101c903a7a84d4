"""Adversarial cheap talk: evolve a channel that helps or harms who learns beside it.

    python experiments/cheap_talk.py [--out runs/cheap-talk]

The train-time influence of Lu et al. (2023), "Adversarial cheap talk", on CartPole-v1.
A victim (PPO) sees two numbers more than the environment shows it: a deterministic
function of what it sees anyway. The function's weights are evolved over whole training
runs of fresh victims, once to make the area under their training curve large (the
ally) and once to make it small (the adversary). Then all are judged on held-out seeds,
beside victims without a channel (one that always says zero) and victims with random
ones (another one for each seed).

The same command goes on with evolutions that were stopped. Prints a table; writes
experiments/results/cheap-talk.json and docs/images/cheap-talk.png.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from results import command, hardware
from rich.console import Console
from rich.table import Table

import purerl
from envs import CheapTalk
from purerl.acting.environment import resolve_env
from purerl.cli.settings import enable_compile_cache
from purerl.execution.cohort import Segment
from purerl.meta.fitness import Accumulator, first_known, hold
from purerl.report.plots import style
from purerl.report.statistics import mean_interval, probability_of_improvement
from purerl.serialise import to_dict, write_atomic

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
SEEDS = 64
# Keys that no evolution has used: those fold theirs from the keys of small seeds.
FIRST_SEED = 1_000_000


class Judged(NamedTuple):
    """Victims of one kind of channel, S held-out seeds.

    Attributes:
        curves: `[S, U]` mean return of the episodes that ended, held where none did.
        area: `[S]` mean of the curve.
        final: `[S]` mean of its last tenth.
    """

    curves: np.ndarray
    area: np.ndarray
    final: np.ndarray


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


def judge(config: purerl.PPOConfig, channels: dict[str, Any]) -> dict[str, Judged]:
    """Train fresh victims of every kind with the same held-out seeds, in one call.

    Args:
        config: of the victims.
        channels: name -> channel with leaves `[S, ...]`.
    """
    train = purerl.make_train(config)

    def curve(key: Any, channel: Any) -> dict[str, Any]:
        metrics = train(key, {FIELD: channel}).metrics
        return {name: metrics[name] for name in metrics}

    seeds = np.arange(FIRST_SEED, FIRST_SEED + SEEDS)
    keys = jax.vmap(jax.random.key)(np.tile(seeds, len(channels)))
    stacked = jax.tree.map(lambda *x: np.concatenate(x), *channels.values())
    metrics = jax.tree.map(np.asarray, purerl.pmap(curve, lanes=LANES)(keys, stacked))
    found = {}
    for number, name in enumerate(channels):
        part = slice(number * SEEDS, (number + 1) * SEEDS)
        found[name] = judged({key: values[part] for key, values in metrics.items()})
    return found


def judged(metrics: dict[str, np.ndarray]) -> Judged:
    """Curves and what they are worth, from metrics `[S, U]`."""
    size, updates = metrics["episodes"].shape
    known = metrics["episodes"] > 0
    returns = metrics["episode_return"]
    curves = hold(returns, known, first_known(returns, known))
    worth = []
    for kind in ("training_curve", "final_return"):
        total = Accumulator(kind, size, updates)
        total.add(Segment(0, updates, metrics, {}))
        worth.append(total.result().astype(float))
    return Judged(curves, *worth)


def repeated(channel: Any) -> Any:
    """The same channel for every held-out seed."""
    return jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], SEEDS, 0), channel)


def compare(found: dict[str, Judged]) -> dict[str, Any]:
    """Numbers of every group, and what parts it from the victims without a channel."""
    rows: dict[str, Any] = {}
    base = found["none"]
    for name in COLOURS:
        group = found[name]
        row: dict[str, Any] = {"failed": int(np.isnan(group.area).sum())}
        for measure in ("area", "final"):
            values, beside = getattr(group, measure), getattr(base, measure)
            row[measure] = interval(values)
            row[f"{measure}_less_none"] = interval(values - beside)
            row[f"{measure}_per_seed"] = np.round(values, 2).tolist()
        better = probability_of_improvement(group.area, base.area, nan="drop")
        row["probability_of_improvement"] = [
            float(x) for x in (better.value, better.low, better.high)
        ]
        rows[name] = row
    return rows


def interval(values: np.ndarray) -> list[float]:
    """Mean over seeds with its interval."""
    found = mean_interval(values)
    return [float(np.nanmean(values)), float(found.low), float(found.high)]


def table(rows: dict[str, Any]) -> Table:
    """A row per kind of channel."""
    found = Table(title=f"{SEEDS} held-out seeds each, mean (95% interval)")
    found.add_column("channel")
    for header in (
        "area under the curve",
        "less none, same seeds",
        "final return",
        "P(better area than none)",
    ):
        found.add_column(header, justify="right")
    for name, row in rows.items():
        found.add_row(
            name,
            words(row["area"]),
            words(row["area_less_none"]),
            words(row["final"]),
            words(row["probability_of_improvement"], 2),
        )
    return found


def words(numbers: list[float], digits: int = 1) -> str:
    """A mean and its interval."""
    mean, low, high = (f"{x:,.{digits}f}" for x in numbers)
    return f"{mean} ({low} to {high})"


def picture(
    config: purerl.PPOConfig,
    found: dict[str, Judged],
    evolved: "dict[str, EvolutionResult]",
) -> None:
    """Learning curves of the judged victims, and the course of both evolutions."""
    figure = style.new_figure(11.0, 4.2)
    left, right = figure.subplots(1, 2)
    labels = {"none": "no channel", "random": "random channels"}
    for number, name in enumerate(COLOURS):
        line(
            left,
            config,
            found[name].curves,
            COLOURS[name],
            number,
            labels.get(name, name),
        )
    # Between the lines without a channel and those with an adversary there is room.
    left.legend(frameon=False, fontsize=9, loc=(0.62, 0.25))
    style.step_axis(left)
    style.finish(
        left,
        f"victims of {SEEDS} held-out seeds, mean and 95% interval",
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
    none = found["none"].area.mean()
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
    config: purerl.PPOConfig,
    curves: np.ndarray,
    colour: str,
    number: int,
    label: str,
) -> None:
    """The mean of curves `[S, U]` with a band."""
    steps = config.num_envs * config.num_steps * np.arange(1, curves.shape[1] + 1)
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
        "sigma_limit": asked.sigma,
        "learning_rate": asked.learning_rate,
        "learning_rate_limit": asked.learning_rate,
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
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    load = os.getloadavg()[0]
    config = make_config(asked.steps)
    evolved = evolve_all(config, asked)
    env = channel_env(config)
    keys = jax.random.split(jax.random.key(FIRST_SEED), SEEDS)
    channels = {
        "none": repeated(env.silent_channel()),
        "random": jax.tree.map(np.asarray, jax.vmap(env.random_channel)(keys)),
        **{name: repeated(result.solution[FIELD]) for name, result in evolved.items()},
    }
    started = time.perf_counter()
    found = judge(config, channels)
    judging = time.perf_counter() - started
    rows = compare(found)
    # Also those of generations that an earlier call trained.
    evolving = sum(
        float(result.history["seconds"].sum()) for result in evolved.values()
    )
    console = Console(width=130, highlight=False)
    console.print(table(rows))
    console.print(f"evolved in {evolving:.0f} s, judged in {judging:.0f} s")
    if asked.dry or not all(result.finished for result in evolved.values()):
        console.print("nothing is written")
        return
    numbers = {
        "command": command(parser, asked),
        "held_out_seeds": SEEDS,
        "config": to_dict(config),
        "evolution": {
            name: {
                **result.settings,
                "generations": result.done,
                "population_mean": np.round(result.history["mean"], 2).tolist(),
            }
            for name, result in evolved.items()
        },
        "channels": rows,
        "evolving_seconds": round(evolving, 1),
        "judging_seconds": round(judging, 1),
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(STORE, json.dumps(numbers, indent=1) + "\n")
    picture(config, found, evolved)


if __name__ == "__main__":
    main()
