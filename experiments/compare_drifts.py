"""DPO's drift beside PPO's on continuous tasks (Lu et al. 2022, section 5).

    python experiments/compare_drifts.py [--out runs/compare-drifts]

`DPODrift(2, 0.6)` and `ClipDrift(0.2)` on Pendulum-v1 and CartpoleSwingup-v0, 200,000
steps, 16 seeds, the same for both, with the settings of `ppo-pendulum`, which were
chosen for PPO (on the swing-up with a discount of 0.99). What has been trained is
kept in the folder; the same command goes on. Prints the table; writes
experiments/results/compare-drifts.json and docs/images/drifts-dpo-ppo.png.
"""

from pathlib import Path

from frame import IMAGES, keep, options, plain_rows, show_table

import purerl
from purerl.losses import ClipDrift, DPODrift
from purerl.report import plots

LOSSES = {"PPO: ClipDrift(0.2)": ClipDrift(0.2), "DPO: DPODrift(2, 0.6)": DPODrift()}
MEASURES = ("training_curve", "final_return", "evaluation")


def main() -> None:
    """Compare, print and write."""
    asked = options(
        __doc__,
        is_cached=True,
        out=Path("runs/compare-drifts"),
        seeds=16,
        dry=(False, "keep no numbers"),
    )
    pendulum = purerl.presets.load("ppo-pendulum").replace(total_timesteps=200_000)
    swingup = pendulum.replace(env="CartpoleSwingup-v0", gamma=0.99)
    result = purerl.compare(
        pendulum,
        {name: {"policy_loss": loss} for name, loss in LOSSES.items()},
        environments=[pendulum, swingup],
        seeds=asked.seeds,
        out=asked.out,
        measures=MEASURES,
    )
    seconds = asked.seconds()
    show_table(result.table())
    if asked.dry:
        return
    numbers = {"rows": plain_rows(result.rows), "seconds": round(seconds)}
    keep("compare-drifts", asked, numbers)
    plots.save(result.plot(), IMAGES / "drifts-dpo-ppo.png")


if __name__ == "__main__":
    main()
