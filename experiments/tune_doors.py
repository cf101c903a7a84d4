"""Tune PPO or DQN on Doors-v0 with 40 trials, and compare the best on fresh seeds.

    python experiments/tune_doors.py [--out runs/tune-doors] [--trials 40]
    python experiments/tune_doors.py --algorithm dqn [--track mlflow]

The task of the "Speeding up Training of Model-Free RL" article with its mended rules:
15 x 15 cells, three doors, a limit of 60 steps. The article tuned DQN with 40 trials of
Optuna's TPE and Hyperband. Here PPO has a tenth of the preset's budget, at which the
preset is not yet optimal; and DQN the network of the article, a third of the budget of
the study "doors", and of the article's axes step size, optimiser and frequency of
training. The length of an episode is not one: it is the task's. Every batch of eight
trials with four seeds is a vmapped call per setting of static fields. The same command
goes on with a study that was stopped.

Prints the best trials and the comparison; writes experiments/results/tune-doors.json
and docs/images/tuning-*.png, for DQN tune-doors-dqn.json and tuning-dqn-*.png.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from frame import IMAGES, keep, options, show_table

import purerl
from purerl import optimisers
from purerl.report.tables import holdout_table, trials_table
from purerl.storage.files import jsonable
from purerl.tuning.api import end_line, warnings

sys.path.insert(0, str(Path(__file__).resolve().parent / "studies"))
# isort: split
from doors_agents.config import make_config as make_dqn

PPO_AXES = {
    "learning_rate": purerl.loguniform(2e-4, 1e-2),
    "entropy_coef": purerl.loguniform(1e-4, 1e-1),
    "gamma": purerl.uniform(0.9, 0.999),
    "gae_lambda": purerl.uniform(0.8, 0.99),
    "policy_loss.clip_eps": purerl.uniform(0.1, 0.4),
    "num_envs": [16, 32, 64],
}
# The frequency of training is the number of gradient steps in a round here.
DQN_AXES = {
    "learning_rate": purerl.loguniform(1e-4, 1e-1),
    "optimiser": [optimisers.Adam(), optimisers.SGD()],
    "gamma": purerl.uniform(0.9, 0.999),
    "epsilon_end": purerl.uniform(0.01, 0.2),
    "gradient_steps": [2, 8],
}
# What is not known of a study that was stopped and went on.
TIMES = ("compile_seconds", "seconds", "wall_seconds")


class Task(NamedTuple):
    """The config and the axes that are tuned.

    Attributes:
        make: Function that returns the config of every trial.
        axes: The axes, by the names of fields.
        ending: End of the names of files; empty for PPO, which was first.
    """

    make: Callable[[], Any]
    axes: dict[str, Any]
    ending: str


def ppo_config() -> Any:
    """The preset at a tenth of its budget, evaluated often enough to prune."""
    config = purerl.presets.load("ppo-doors")
    return config.replace(total_timesteps=50_000, num_evaluations=9, eval_share=0.8)


def dqn_config() -> Any:
    """The study's DQN at a third of its budget, evaluated often enough to prune."""
    return make_dqn(quick=False).replace(
        total_timesteps=57_600,
        rounds_per_update=100,
        learning_starts=3_200,
        epsilon_steps=28_800.0,
        buffer_size=16_384,  # of 32 agents at once: a gigabyte
        num_evaluations=9,
        eval_share=0.8,
    )


TASKS = {
    "ppo": Task(ppo_config, PPO_AXES, ""),
    "dqn": Task(dqn_config, DQN_AXES, "-dqn"),
}


def main() -> None:
    """Search, print, and write the numbers and pictures."""
    asked = options(
        __doc__,
        is_cached=True,
        algorithm=("ppo", TASKS),
        out=(Path, "default: runs/tune-doors[-dqn]"),
        track=([str], "trackers, such as mlflow"),
        trials=40,
    )
    task = TASKS[asked.algorithm]
    out = asked.out or Path(f"runs/tune-doors{task.ending}")
    result = purerl.tune(
        task.make(), task.axes, trials=asked.trials, out=out, trackers=asked.track
    )
    seconds = asked.seconds()
    show_table(trials_table(result), 120)
    assert result.holdout is not None and result.best_row is not None
    show_table(holdout_table(result.holdout), 120)
    for sentence in warnings(result):
        print(f"warning: {sentence}")
    print(end_line(result))
    sittings = result.summary["trained_trials"] < asked.trials
    if sittings:
        print("a part was trained before: its times are not known")
    numbers = {
        "best": {"trial": result.best_row.number, **result.best_row.params},
        "best_score": result.best_row.score,
        "default_score": result.rows[0].score,
        "holdout": jsonable(result.holdout),
        "importance": result.importance,
        **result.summary,
        "wall_seconds": round(seconds, 1),
        **dict.fromkeys(TIMES if sittings else ()),
    }
    keep(f"tune-doors{task.ending}", asked, numbers)
    for name in ("history", "importance", "contour", "slice"):
        shutil.copy(out / f"{name}.png", IMAGES / f"tuning{task.ending}-{name}.png")


if __name__ == "__main__":
    main()
