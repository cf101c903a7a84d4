"""The words of the study "doors" beside its numbers: the source's task and its bugs."""

import json
from typing import Any

from study import ROOT, Picture, Row

SOURCE = (
    "rlbyexample, Speeding up Training of Model-Free Reinforcement Learning, with its "
    "code (engyasin/ilsurvey): Doors in Gymnasium and in JAX, DQN, MLflow and Optuna"
)
TUNED = ROOT / "experiments" / "results" / "tune-doors-dqn.json"

TEXT = (
    "**The task is not quite the source's.** Here agent and goal start in independent "
    "columns, a blocked move pays nothing, and an episode is cut after exactly 60 "
    "steps; the shortest path takes 28 at most. The source's Gymnasium environment "
    "agrees but for the limit. Its JAX environment draws both columns with one key, so "
    "that the goal is always straight ahead; it pays a blocked move the progress that "
    "the move would have made, so that standing under the wall earns almost 1 in every "
    "step; and it compares the counter before it is increased, so that an episode has "
    "one step more than its limit. Its .71 is therefore of another and easier task "
    "than its .73.",
    "**The step-wise reward.** The source's score is the mean return of the episodes "
    "that ended over their mean length. The tuned limits are 10 to 17 steps. With 17 "
    "steps the goal is within reach from 27% of the independent starts, with 15 from "
    "6%, so that an episode rewarded for its progress is best spent walking straight "
    "up until it is cut, and a search over the limit tunes the metric and not the "
    "agent: that the length of an episode comes out as the most important setting is "
    "such an artefact. Without a limit the shortest path has 15.21 / 19.60 = .776, and "
    "14 / 16.93 = .827 with the goal straight ahead; numbers near these may mean a "
    "solved task, or none. So we report returns, and the share of goals that are "
    "reached.",
    "**What else differs in the source's agents.** The observation that ends an "
    "episode is lost at the reset, so that a truncated transition bootstraps from the "
    "next episode's first observation; a filter drops each episode's first transition; "
    "the target network moves only in rounds in which both the target's and the "
    "training's interval are due, which with 1,024 environments is never for most "
    "settings; one coin of exploration is tossed for all environments together; and "
    "the buffer is copied whole in every step. In all three stacks here the last "
    "observation is kept, `terminated` alone ends the future, the target moves every "
    "200 gradient steps, every environment has its own coin, and the buffer is a ring.",
    "**What differs between our three stacks** is only where the work is done: network "
    "(225-64-32-5, ReLU, orthogonal), Adam, a batch of 128, 64 environments, eight "
    "gradient steps per round of all environments, the buffer, exploration and "
    "clipping are one config's. PyTorch has one thread. Random numbers differ, so that "
    "curves agree in distribution only.",
    "**MLflow.** `python experiments/tune_doors.py --algorithm dqn --track mlflow` "
    "writes the trials of the last row as nested runs of MLflow too "
    "([tracking](tracking.md), [tuning](tuning.md)), and `purerl export RUN --seed 0 "
    "--out FOLDER --mlflow` keeps a trained policy as a model there "
    "([exporting](exporting.md#as-a-model-of-mlflow)).",
)


def _interval(part: dict[str, Any]) -> str:
    """Return a mean with its interval."""
    return f"{part['mean']:.2f} ({part['low']:.2f} to {part['high']:.2f})"


def tuning_pictures(path=TUNED) -> list[Picture]:
    """Return the pictures of the tuned DQN, which `docs/tuning.md` shows too.

    Args:
        path: What the script wrote.
    """
    if not path.exists():
        return []
    return [
        Picture(f"../tuning-dqn-{name}.png", f"DQN on Doors-v0, 40 trials: {caption}")
        for name, caption in (
            ("history", "the score of every trial, and the best so far."),
            ("importance", "the share of each setting in what makes a trial good."),
            ("contour", "the score over pairs of settings, of complete trials."),
        )
    ]


def tuning_row(path=TUNED) -> list[Row]:
    """Return the row of the tuned DQN, where `experiments/tune_doors.py` has one.

    Args:
        path: What the script wrote.
    """
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    shares = found["importance"]
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    best, default = found["holdout"]["best"], found["holdout"]["default"]
    return [
        Row(
            f"{found['trials']} trials of DQN's settings, TPE and Hyperband, at most "
            "57,600 steps each",
            "the length of an episode matters most",
            f"{first} ({shares[first]:.0%}) and {second} ({shares[second]:.0%}) matter "
            f"most; on {len(found['holdout']['seeds'])} fresh seeds the best has a "
            f"return of {_interval(best)}, the default {_interval(default)}",
            "Both have 57,600 steps, where the three stacks above have 192,000. The "
            "task's limit is fixed at 60 here: see below. Printed by `python "
            "experiments/tune_doors.py --algorithm dqn` in "
            f"{found['wall_seconds'] / 60:.0f} minutes ({found['hardware']}, "
            f"{found['date']}); [Tuning](tuning.md) says why "
            "the optimiser has a small share though every trial with SGD was poor.",
        )
    ]
