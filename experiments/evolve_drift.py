"""Discovered policy optimisation (Lu et al. 2022): evolve a drift, retrain with it.

    python experiments/evolve_drift.py [--out runs/evolve-drift]

A drift network of the published form starts from zero parameters, which is a policy
gradient without any clip, and is evolved by the area under the training curve. Then
agents are trained with it, with its generation 0, and with the drifts of PPO and DPO,
on 64 held-out seeds: on the task that it was evolved on, and on tasks that it never
saw.

Prints the table; writes experiments/results/evolve-drift.json and
docs/images/evolution-drift-*.png. The same command goes on with what was stopped.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from results import command, hardware
from results_losses import plain_rows
from rich.console import Console

import purerl
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.config import TrainConfig
from purerl.losses import ClipDrift, DPODrift, MLPDrift, SquaredError
from purerl.report import plots
from purerl.serialise import to_dict

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "evolve-drift.json"
IMAGES = ROOT / "docs" / "images"
SEEDS = 64
HELD_OUT = ("Acrobot-v1", "Catch-bsuite")


def make_config(steps: int) -> purerl.PPOConfig:
    """PPO on CartPole, with a step and epochs at which a drift matters."""
    return purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=steps,
        num_evaluations=0,
        learning_rate=2e-3,
        num_epochs=10,
        policy_loss=MLPDrift.zeros(128),
        value_loss=SquaredError(),
    )


def drift_of(config: TrainConfig) -> Any:
    """The policy loss of a config of PPO."""
    assert isinstance(config, purerl.PPOConfig)
    return config.policy_loss


def main() -> None:
    """Evolve, judge, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/evolve-drift"))
    parser.add_argument("--steps", type=int, default=50_000, help="of an inner run")
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=1)
    parser.add_argument("--generations", type=int, default=32)
    parser.add_argument("--sigma", type=float, default=0.1)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    console = Console(width=150, highlight=False)
    config = make_config(asked.steps)
    load, began = os.getloadavg()[0], time.perf_counter()
    result = purerl.evolve(
        config,
        "policy_loss",
        strategy=purerl.OpenES(sigma=asked.sigma, learning_rate=asked.learning_rate),
        population=asked.population,
        rollouts=asked.rollouts,
        generations=asked.generations,
        snapshot_every=8,
        out=asked.out / "evolution",
    )
    evolved_at = time.perf_counter()
    folder = asked.out / "evolution" / "transfer"
    on_the_way = purerl.compare_losses(
        config,
        "policy_loss",
        {
            "generation 0": config.policy_loss,
            **{
                f"generation {number}": drift_of(snapshot)
                for number, snapshot in sorted(result.snapshots().items())
            },
        },
        seeds=SEEDS,
        out=folder,
    )
    # Last: both share the folder, and the page of the evolution shows this one.
    judged = purerl.compare_losses(
        config,
        "policy_loss",
        {
            "learned": result.loss,
            "its generation 0 (no drift)": config.policy_loss,
            "PPO: ClipDrift(0.2)": ClipDrift(0.2),
            "DPO: DPODrift(2, 0.6)": DPODrift(2.0, 0.6),
        },
        [{}, *HELD_OUT],
        seeds=SEEDS,
        out=folder,
    )
    judged_at = time.perf_counter()
    console.print(on_the_way.table())
    console.print(judged.table())
    console.print(
        f"evolved {evolved_at - began:.0f} s, judged {judged_at - evolved_at:.0f} s"
    )
    if asked.dry:
        return
    described = to_dict(config)
    del described["policy_loss"]  # a thousand zeros
    numbers = {
        "command": command(parser, asked),
        "config": described,
        "settings": result.settings,
        "history": {
            name: result.history[name].tolist() for name in ("mean", "best", "std")
        },
        "generations": plain_rows(on_the_way.rows),
        "judged": plain_rows(judged.rows),
        "seconds": {
            "evolve": round(float(result.history["seconds"].sum())),
            "judge": round(judged_at - evolved_at),
        },
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(STORE, json.dumps(numbers, indent=1) + "\n")
    plots.save(result.plot(), IMAGES / "evolution-drift-curve.png")
    plots.save(result.plot_loss(), IMAGES / "evolution-drift.png")
    plots.save(judged.plot(), IMAGES / "evolution-drift-transfer.png")


if __name__ == "__main__":
    main()
