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

from pathlib import Path
from typing import Any

from frame import IMAGES, evolve_seconds, history, keep, options, plain_rows, show_table

import purerl
from purerl.losses import ClipDrift, DPODrift, MLPDrift, SquaredError
from purerl.report import plots

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


def main() -> None:
    """Evolve, judge, print and write."""
    asked = options(
        __doc__,
        is_cached=True,
        out=Path("runs/evolve-drift"),
        steps=(50_000, "of an inner run"),
        population=64,
        rollouts=1,
        generations=32,
        sigma=0.1,
        learning_rate=0.01,
        dry=(False, "keep no numbers"),
    )
    config = make_config(asked.steps)
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
    evolved_at = asked.seconds()
    folder = asked.out / "evolution" / "transfer"
    snapshots: dict[int, Any] = {0: config, **result.snapshots()}
    drifts = {
        f"generation {number}": each.policy_loss
        for number, each in sorted(snapshots.items())
    }
    on_the_way = purerl.compare_losses(
        config, "policy_loss", drifts, seeds=SEEDS, out=folder
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
    judge_seconds = asked.seconds() - evolved_at
    show_table(on_the_way.table())
    show_table(judged.table())
    print(f"evolved {evolved_at:.0f} s, judged {judge_seconds:.0f} s")
    if asked.dry:
        return
    described = purerl.serialise.to_dict(config)
    del described["policy_loss"]  # a thousand zeros
    numbers = {
        "config": described,
        "settings": result.settings,
        "history": history(result),
        "generations": plain_rows(on_the_way.rows),
        "judged": plain_rows(judged.rows),
        "seconds": {"evolve": evolve_seconds(result), "judge": round(judge_seconds)},
    }
    keep("evolve-drift", asked, numbers)
    plots.save(result.plot(), IMAGES / "evolution-drift-curve.png")
    plots.save(result.plot_loss(), IMAGES / "evolution-drift.png")
    plots.save(judged.plot(), IMAGES / "evolution-drift-transfer.png")


if __name__ == "__main__":
    main()
