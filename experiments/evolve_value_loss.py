"""Evolve a value loss on CartPole, and judge it beside tuned hand-written losses.

    python experiments/evolve_value_loss.py [--out runs/evolve-value-loss]
    python experiments/evolve_value_loss.py --name slow --learning-rate 0.02   # others

Three phases, each of which is kept in the folder, so that the same command goes on:

1. tune: the coefficients of the squared error, of the clipped one with its clip, and
   of Huber's with its delta: a grid, by the area under the curve over 16 seeds.
2. evolve: a network of 1-64-64-1 tanh units in place of the squared error, from a
   random initialisation, with Open-ES, by the same area.
3. judge: everything on 64 held-out seeds that neither of them saw, on CartPole, and on
   two environments that they never saw.

Prints the tables; writes experiments/results/evolve-value-loss.json and
docs/images/evolution-value-loss-*.png. With `--name`, another setting of the evolution
is judged beside the tuned losses, and its numbers go to evolve-value-loss-NAME.json.
"""

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from results import command, hardware
from results_losses import plain_rows
from rich.console import Console

import purerl
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.config import TrainConfig
from purerl.losses import ClippedSquaredError, HuberError, MLPValueLoss, SquaredError
from purerl.report import plots
from purerl.serialise import to_dict

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results"
IMAGES = ROOT / "docs" / "images"
TUNING_STREAM, JUDGING_STREAM = 1, 0  # Held-out keys that have nothing in common.
TUNING_SEEDS, JUDGING_SEEDS = 16, 64
HELD_OUT = ("Acrobot-v1", "Catch-bsuite")


def make_config(asked: argparse.Namespace) -> purerl.PPOConfig:
    """PPO on CartPole with a network as its value loss.

    The step size is four times PPO's usual one: with that, 50,000 steps are too few
    for a critic to matter, and a loss that teaches it nothing is nearly as good as any.
    """
    return purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=asked.steps,
        num_evaluations=0,
        learning_rate=asked.inner_learning_rate,
        value_loss=MLPValueLoss.make(
            (64, 64), asked.inputs, asked.init, seed=asked.init_seed
        ),
    )


def hand_written() -> dict[str, dict[str, dict[str, Any]]]:
    """Family -> name -> changes of the config: the grid that is tuned over."""
    coefs = [float(f"{c:.2g}") for c in np.geomspace(1e-4, 1, 7)]
    return {
        "squared": {
            f"squared, {coef:g}": {"value_loss": SquaredError(), "value_coef": coef}
            for coef in coefs
        },
        "clipped": {
            f"clipped({clip:g}), {coef:g}": {
                "value_loss": ClippedSquaredError(clip),
                "value_coef": coef,
            }
            for clip, coef in itertools.product((0.2, 2.0, 20.0), coefs)
        },
        "Huber": {
            f"Huber({delta:g}), {coef:g}": {
                "value_loss": HuberError(delta),
                "value_coef": coef,
            }
            for delta, coef in itertools.product((0.1, 1.0, 10.0), coefs)
        },
    }


def tune(
    config: purerl.PPOConfig, out: Path, console: Console
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Family -> the best of its grid by the area under the curve, and what it is."""
    found = {}
    for family, grid in hand_written().items():
        result = purerl.compare_losses(
            config,
            "value_loss",
            grid,
            seeds=TUNING_SEEDS,
            seed=TUNING_STREAM,
            out=out / f"tune-{family.lower()}",
            progress=False,
        )
        means = result.scores["training_curve"][0].mean(-1)
        best = list(grid)[int(np.nanargmax(means))]
        found[family] = (best, grid[best])
        listed = ", ".join(f"{n}: {m:.0f}" for n, m in zip(grid, means, strict=True))
        console.print(f"{family}: best {best} ({np.nanmax(means):.1f}); {listed}")
    return found


def loss_of(config: TrainConfig) -> Any:
    """The value loss of a config of PPO."""
    assert isinstance(config, purerl.PPOConfig)
    return config.value_loss


def contestants(
    result: purerl.EvolutionResult,
    tuned: dict[str, tuple[str, dict[str, Any]]],
) -> dict[str, Any]:
    """Name -> loss, or changes of the config: who is judged, the learned one first."""
    return {
        "learned": result.loss,
        "its generation 0": loss_of(result.config),
        "none: no critic": MLPValueLoss.zeros((64, 64)),
        "squared": SquaredError(),
        "clipped(0.2)": ClippedSquaredError(0.2),
        "Huber(1)": HuberError(1.0),
        **{f"{family} tuned": changes for family, (_, changes) in tuned.items()},
    }


def judge(
    result: purerl.EvolutionResult,
    tuned: dict[str, tuple[str, dict[str, Any]]],
    folder: Path,
) -> purerl.Comparison:
    """Everybody on the held-out seeds, and the snapshots on the way."""
    return purerl.compare_losses(
        result.config,
        "value_loss",
        contestants(result, tuned),
        environments=[{}, *HELD_OUT],
        seeds=JUDGING_SEEDS,
        seed=JUDGING_STREAM,
        out=folder / "transfer",
    )


def progress_of(result: purerl.EvolutionResult, folder: Path) -> purerl.Comparison:
    """The evolution's snapshots on the same held-out seeds, on CartPole."""
    losses = {
        f"generation {number}": loss_of(config)
        for number, config in sorted(result.snapshots().items())
    }
    return purerl.compare_losses(
        result.config,
        "value_loss",
        {"generation 0": loss_of(result.config), **losses},
        seeds=JUDGING_SEEDS,
        seed=JUDGING_STREAM,
        out=folder / "transfer",
    )


def main() -> None:
    """All phases; prints and writes their numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/evolve-value-loss"))
    parser.add_argument("--steps", type=int, default=50_000, help="of an inner run")
    parser.add_argument("--inner-learning-rate", type=float, default=1e-3)
    parser.add_argument("--name", help="of another setting, kept beside the main one")
    parser.add_argument("--inputs", choices=("error", "pair"), default="error")
    parser.add_argument("--init", choices=("random", "zeros"), default="random")
    parser.add_argument("--fitness", default="training_curve")
    parser.add_argument("--init-seed", type=int, default=0, help="of the network")
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=1)
    parser.add_argument("--generations", type=int, default=32)
    parser.add_argument("--sigma", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    console = Console(width=150, highlight=False)
    config = make_config(asked)
    load, began = os.getloadavg()[0], time.perf_counter()
    tuned = tune(config, asked.out, console)
    tuned_at = time.perf_counter()
    folder = asked.out / (f"evolution-{asked.name}" if asked.name else "evolution")
    result = purerl.evolve(
        config,
        "value_loss",
        strategy=purerl.OpenES(sigma=asked.sigma, learning_rate=asked.learning_rate),
        population=asked.population,
        rollouts=asked.rollouts,
        generations=asked.generations,
        snapshot_every=8,
        fitness=asked.fitness,
        out=folder,
    )
    evolved_at = time.perf_counter()
    on_the_way = progress_of(result, folder)
    # Last: both share the folder, and the page of the evolution shows this one.
    judged = judge(result, tuned, folder)
    judged_at = time.perf_counter()
    console.print(on_the_way.table())
    console.print(judged.table())
    console.print(
        f"tuned {tuned_at - began:.0f} s, evolved {evolved_at - tuned_at:.0f} s, "
        f"judged {judged_at - evolved_at:.0f} s"
    )
    if asked.dry:
        return
    # Of all generations, also those before a kill.
    seconds = {"evolve": round(float(result.history["seconds"].sum()))}
    if result.summary["generations_run"] == asked.generations:  # in one go
        seconds |= {
            "tune": round(tuned_at - began),
            "judge": round(judged_at - evolved_at),
        }
    described = to_dict(config)
    del described["value_loss"]  # thousands of numbers that the command draws again
    numbers = {
        "command": command(parser, asked),
        "config": described,
        "settings": result.settings,
        "tuned": {family: name for family, (name, _) in tuned.items()},
        "history": {
            name: result.history[name].tolist() for name in ("mean", "best", "std")
        },
        "generations": plain_rows(on_the_way.rows),
        "judged": plain_rows(judged.rows),
        "seconds": seconds,
        "load_before": round(load, 2),
        **hardware(),
    }
    name = f"evolve-value-loss-{asked.name}" if asked.name else "evolve-value-loss"
    write_atomic(STORE / f"{name}.json", json.dumps(numbers, indent=1) + "\n")
    if asked.name:
        return
    plots.save(result.plot(), IMAGES / "evolution-value-loss-curve.png")
    plots.save(result.plot_loss(), IMAGES / "evolution-value-loss.png")
    plots.save(judged.plot(), IMAGES / "evolution-value-loss-transfer.png")


if __name__ == "__main__":
    main()
