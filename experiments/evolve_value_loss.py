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

import numpy as np
from frame import IMAGES, evolve_seconds, history, keep, options, plain_rows, show_table

import purerl
from purerl.losses import ClippedSquaredError, HuberError, MLPValueLoss, SquaredError
from purerl.report import plots

TUNING_STREAM, JUDGING_STREAM = 1, 0  # Held-out keys that have nothing in common.
TUNING_SEEDS, JUDGING_SEEDS = 16, 64
HELD_OUT = ("Acrobot-v1", "Catch-bsuite")


def make_config(asked: Any) -> purerl.PPOConfig:
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
        population=64,
        rollouts=1,
        generations=32,
        sigma=0.1,
        learning_rate=0.05,
        dry=(False, "keep no numbers"),
    )
    config = make_config(asked)
    tuned = tune(config, asked.out)
    tuned_at = asked.seconds()
    folder = asked.out / (f"evolution-{asked.name}" if asked.name else "evolution")
    result = purerl.evolve(
        config,
        "value_loss",
        strategy=purerl.OpenES(sigma=asked.sigma, learning_rate=asked.learning_rate),
        population=asked.population,
        rollouts=asked.rollouts,
        generations=asked.generations,
        fitness=asked.fitness,
        snapshot_every=8,
        out=folder,
    )
    evolved_at = asked.seconds()
    held_out: dict[str, Any] = {"seeds": JUDGING_SEEDS, "seed": JUDGING_STREAM}
    start: Any = result.config
    snapshots: dict[int, Any] = {0: start, **result.snapshots()}
    losses: dict[str, dict[str, Any]] = {
        f"generation {number}": each.value_loss
        for number, each in sorted(snapshots.items())
    }
    on_the_way = purerl.compare_losses(
        start, "value_loss", losses, out=folder / "transfer", **held_out
    )
    contestants = {
        "learned": result.loss,
        "its generation 0": start.value_loss,
        "none: no critic": MLPValueLoss.zeros((64, 64)),
        "squared": SquaredError(),
        "clipped(0.2)": ClippedSquaredError(0.2),
        "Huber(1)": HuberError(1.0),
        **{f"{family} tuned": changes for family, (_, changes) in tuned.items()},
    }
    # Last: both share the folder, and the page of the evolution shows this one.
    judged = purerl.compare_losses(
        start,
        "value_loss",
        contestants,
        [{}, *HELD_OUT],
        out=folder / "transfer",
        **held_out,
    )
    judge_seconds = asked.seconds() - evolved_at
    show_table(on_the_way.table())
    show_table(judged.table())
    print(
        f"tuned {tuned_at:.0f} s, evolved {evolved_at - tuned_at:.0f} s, "
        f"judged {judge_seconds:.0f} s"
    )
    if asked.dry:
        return
    seconds = {"evolve": evolve_seconds(result)}
    if result.summary["generations_run"] == asked.generations:  # in one go
        seconds |= {"tune": round(tuned_at), "judge": round(judge_seconds)}
    described = purerl.serialise.to_dict(config)
    del described["value_loss"]  # thousands of numbers that the command draws again
    numbers = {
        "config": described,
        "settings": result.settings,
        "tuned": {family: name for family, (name, _) in tuned.items()},
        "history": history(result),
        "generations": plain_rows(on_the_way.rows),
        "judged": plain_rows(judged.rows),
        "seconds": seconds,
    }
    keep(f"evolve-value-loss{'-' + asked.name if asked.name else ''}", asked, numbers)
    if asked.name:
        return
    plots.save(result.plot(), IMAGES / "evolution-value-loss-curve.png")
    plots.save(result.plot_loss(), IMAGES / "evolution-value-loss.png")
    plots.save(judged.plot(), IMAGES / "evolution-value-loss-transfer.png")


if __name__ == "__main__":
    main()
