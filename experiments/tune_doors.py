"""Tune PPO on Doors-v0 with 40 trials, and compare what was found on fresh seeds.

    python experiments/tune_doors.py [--out runs/tune-doors] [--trials 40]

The task of the "Speeding up Training of Model-Free RL" article with its mended rules:
15 x 15 cells, three doors, a limit of 60 steps. The article tuned DQN with 40 trials of
Optuna's TPE and Hyperband; here PPO has a tenth of the preset's budget, at which the
preset is not yet optimal. Every batch of eight trials with four seeds is a vmapped call
per number of environments. The same command goes on with a study that was stopped.

Prints the best trials and the comparison; writes experiments/results/tune-doors.json
and docs/images/tuning-*.png.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from results import hardware
from rich.console import Console

import purerl
from purerl.cli.settings import enable_compile_cache
from purerl.serialise import write_atomic
from purerl.tuning import words
from purerl.tuning.result import holdout_dict

ROOT = Path(__file__).parents[1]
STORE = ROOT / "experiments" / "results" / "tune-doors.json"
IMAGES = ROOT / "docs" / "images"
AXES = {
    "learning_rate": purerl.loguniform(2e-4, 1e-2),
    "entropy_coef": purerl.loguniform(1e-4, 1e-1),
    "gamma": purerl.uniform(0.9, 0.999),
    "gae_lambda": purerl.uniform(0.8, 0.99),
    "policy_loss.clip_eps": purerl.uniform(0.1, 0.4),
    "num_envs": [16, 32, 64],
}


def make_config() -> purerl.PPOConfig:
    """The preset at a tenth of its budget, evaluated often enough to prune."""
    config = purerl.presets.load("ppo-doors")
    assert isinstance(config, purerl.PPOConfig)
    return config.replace(total_timesteps=50_000, num_evaluations=9, eval_share=0.8)


def main() -> None:
    """Search, print, and write the numbers and pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/tune-doors"))
    parser.add_argument("--trials", type=int, default=40)
    asked = parser.parse_args()
    enable_compile_cache()
    started, load = time.perf_counter(), os.getloadavg()[0]
    result = purerl.tune(make_config(), AXES, trials=asked.trials, out=asked.out)
    seconds = time.perf_counter() - started
    console = Console(width=120, highlight=False)
    console.print(words.best_table(result))
    assert result.holdout is not None and result.best_row is not None
    console.print(words.holdout_table(result.holdout))
    for sentence in words.warnings(result):
        console.print(f"warning: {sentence}")
    console.print(words.end_line(result))
    if result.summary["trained_trials"] < asked.trials:
        console.print("a part was trained before: no times, so nothing is written")
        return
    numbers = {
        "best": {"trial": result.best_row.number, **result.best_row.params},
        "best_score": result.best_row.score,
        "default_score": result.rows[0].score,
        "holdout": holdout_dict(result.holdout),
        "importance": result.importance,
        **result.summary,
        "wall_seconds": round(seconds, 1),
        "load_before": round(load, 2),
        **hardware(),
    }
    write_atomic(STORE, json.dumps(numbers, indent=2) + "\n")
    for name in ("history", "importance", "contour", "slice"):
        shutil.copy(asked.out / f"{name}.png", IMAGES / f"tuning-{name}.png")


if __name__ == "__main__":
    main()
