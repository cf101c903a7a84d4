"""DPO's drift beside PPO's on continuous tasks (Lu et al. 2022, section 5).

    python experiments/compare_drifts.py [--out runs/compare-drifts]

`DPODrift(2, 0.6)` and `ClipDrift(0.2)` on Pendulum-v1 and CartpoleSwingup-v0, 200,000
steps, 16 seeds, the same for both, with the settings of `ppo-pendulum`, which were
chosen for PPO (on the swing-up with a discount of 0.99). What has been trained is
kept in the folder; the same command goes on. Prints the table; writes
experiments/results/compare-drifts.json and docs/images/drifts-dpo-ppo.png.
"""

import argparse
import json
import os
import time
from pathlib import Path

from results import command, hardware
from results_losses import plain_rows
from rich.console import Console

import purerl
from purerl.atomic import write_atomic
from purerl.cli.settings import enable_compile_cache
from purerl.losses import ClipDrift, DPODrift
from purerl.report import plots

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "compare-drifts.json"
LOSSES = {"PPO: ClipDrift(0.2)": ClipDrift(0.2), "DPO: DPODrift(2, 0.6)": DPODrift()}
STEPS = 200_000
MEASURES = ("training_curve", "final_return", "evaluation")


def environments() -> list[purerl.PPOConfig]:
    """Return the configs of the environments in which drifts are compared."""
    pendulum = purerl.presets.load("ppo-pendulum")
    assert isinstance(pendulum, purerl.PPOConfig)
    pendulum = pendulum.replace(total_timesteps=STEPS)
    swingup = pendulum.replace(env="CartpoleSwingup-v0", gamma=0.99)
    return [pendulum, swingup]


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/compare-drifts"))
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--dry", action="store_true", help="keep no numbers")
    asked = parser.parse_args()
    enable_compile_cache()
    load, began = os.getloadavg()[0], time.perf_counter()
    tasks = environments()
    result = purerl.compare_losses(
        tasks[0],
        "policy_loss",
        LOSSES,
        tasks,
        seeds=asked.seeds,
        out=asked.out,
        measures=MEASURES,
    )
    seconds = time.perf_counter() - began
    Console(width=150, highlight=False).print(result.table())
    if asked.dry:
        return
    numbers = {
        "command": command(parser, asked),
        "rows": plain_rows(result.rows),
        "seconds": round(seconds),
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(STORE, json.dumps(numbers, indent=1) + "\n")
    plots.save(result.plot(), ROOT / "docs" / "images" / "drifts-dpo-ppo.png")


if __name__ == "__main__":
    main()
