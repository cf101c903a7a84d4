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

import evolve_losses
from frame import options

import purerl
from purerl.losses import ClipDrift, DPODrift, MLPDrift, SquaredError


def main() -> None:
    """Evolve, judge, print and write."""
    asked = options(
        __doc__,
        is_cached=True,
        out=Path("runs/evolve-drift"),
        steps=(50_000, "of an inner run"),
        **evolve_losses.OPTIONS,
        learning_rate=0.01,
        dry=(False, "keep no numbers"),
    )
    field = "policy_loss"
    # With a step and epochs at which a drift matters.
    config = purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=asked.steps,
        num_evaluations=0,
        learning_rate=2e-3,
        num_epochs=10,
        policy_loss=MLPDrift.zeros(128),
        value_loss=SquaredError(),
    )
    result = evolve_losses.evolve(asked, config, field, asked.out / "evolution")
    drifts = {
        "learned": result.loss,
        "its generation 0 (no drift)": config.policy_loss,
        "PPO: ClipDrift(0.2)": ClipDrift(0.2),
        "DPO: DPODrift(2, 0.6)": DPODrift(2.0, 0.6),
    }
    contestants = {name: {field: drift} for name, drift in drifts.items()}
    judged = evolve_losses.judge(asked, "evolve-drift", result, field, contestants, {})
    if not asked.dry:
        evolve_losses.draw("drift", result, judged)


if __name__ == "__main__":
    main()
