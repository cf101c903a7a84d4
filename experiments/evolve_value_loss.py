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

import itertools
from pathlib import Path
from typing import Any

import evolve_losses
import numpy as np
from frame import options

import purerl
from purerl.losses import ClippedSquaredError, HuberError, MLPValueLoss, SquaredError

TUNING_STREAM = 1  # Held-out keys that have nothing in common with those that judge.
TUNING_SEEDS = 16


def hand_written() -> dict[str, dict[str, dict[str, Any]]]:
    """Family -> name -> changes of the config: the grid that is tuned over."""
    losses: dict[str, dict[str, Any]] = {
        "squared": {"squared": SquaredError()},
        "clipped": {
            f"clipped({clip:g})": ClippedSquaredError(clip) for clip in (0.2, 2.0, 20.0)
        },
        "Huber": {f"Huber({delta:g})": HuberError(delta) for delta in (0.1, 1.0, 10.0)},
    }
    coefs = [float(f"{c:.2g}") for c in np.geomspace(1e-4, 1, 7)]
    return {
        family: {
            f"{name}, {coef:g}": {"value_loss": loss, "value_coef": coef}
            for (name, loss), coef in itertools.product(kinds.items(), coefs)
        }
        for family, kinds in losses.items()
    }


def tune(config: purerl.PPOConfig, out: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Family -> the best of its grid by the area under the curve, and what it is."""
    found = {}
    for family, grid in hand_written().items():
        result = purerl.compare(
            config,
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
        print(f"{family}: best {best} ({np.nanmax(means):.1f}); {listed}")
    return found


def main() -> None:
    """All phases; prints and writes their numbers."""
    asked = options(
        __doc__,
        is_cached=True,
        out=Path("runs/evolve-value-loss"),
        steps=(50_000, "of an inner run"),
        inner_learning_rate=1e-3,
        name=(str, "of another setting, kept beside the main one"),
        inputs=("error", ["error", "pair"]),
        init=("random", ["random", "zeros"]),
        fitness="training_curve",
        init_seed=(0, "of the network"),
        **evolve_losses.OPTIONS,
        learning_rate=0.05,
        dry=(False, "keep no numbers"),
    )
    ending, shape = f"-{asked.name}" if asked.name else "", (asked.inputs, asked.init)
    # The step size is four times PPO's usual one: with that, 50,000 steps are too few
    # for a critic to matter, and a loss that teaches it nothing is nearly as good as
    # any.
    config = purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=asked.steps,
        num_evaluations=0,
        learning_rate=asked.inner_learning_rate,
        value_loss=MLPValueLoss.make((64, 64), *shape, seed=asked.init_seed),
    )
    tuned = tune(config, asked.out)
    tuned_at = asked.seconds()
    folder, field = asked.out / f"evolution{ending}", "value_loss"
    result = evolve_losses.evolve(asked, config, field, folder, fitness=asked.fitness)
    losses = {
        "learned": result.loss,
        "its generation 0": config.value_loss,
        "none: no critic": MLPValueLoss.zeros((64, 64)),
        "squared": SquaredError(),
        "clipped(0.2)": ClippedSquaredError(0.2),
        "Huber(1)": HuberError(1.0),
    }
    contestants = {
        **{name: {field: loss} for name, loss in losses.items()},
        **{f"{family} tuned": changes for family, (_, changes) in tuned.items()},
    }
    in_one_go = result.summary["generations_run"] == asked.generations
    seconds = {"tune": round(tuned_at)} if in_one_go else {}
    about = (asked, f"evolve-value-loss{ending}", result, field, contestants, seconds)
    found = {family: name for family, (name, _) in tuned.items()}
    judged = evolve_losses.judge(*about, tuned=found)
    if not (asked.dry or asked.name):
        evolve_losses.draw("value-loss", result, judged)


if __name__ == "__main__":
    main()
