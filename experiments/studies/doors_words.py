"""The words of the study "doors" beside its numbers: the source's task and its bugs."""

import json
from typing import Any

from study import ROOT, Picture, Row

SOURCE = (
    "rlbyexample, Speeding up Training of Model-Free Reinforcement Learning, with its "
    "code (engyasin/ilsurvey): Doors in Gymnasium and in JAX, DQN, MLflow and Optuna"
)
BUSY = 10.0  # A load average at which the two cores have not been idle.
TUNED = ROOT / "experiments" / "results" / "tune-doors-dqn.json"

TEXT = (
    "**The task is not quite the source's.** Here agent and goal start in independent "
    "columns, a blocked move pays nothing, and an episode is cut after exactly 60 "
    "steps; the shortest path takes 28 at most. The source's Gymnasium environment is "
    "the same except for the limit. Its JAX environment draws both columns with one "
    "key, so that the goal is always straight ahead; it pays a blocked move the "
    "progress that the move would have made, so that standing under the wall earns "
    "almost 1 in every step; and it compares the counter before it is increased, so "
    "that an episode has one step more than its limit. Its .71 is therefore of a "
    "different, easier task than its .73.",
    "**The step-wise reward.** The source's score is the mean return of the episodes "
    "that ended over their mean length. The tuned limits are 10 to 17 steps. With 17 "
    "steps the goal is within reach from 27% of the independent starts, with 15 from "
    "6%, so that an episode rewarded for its progress is best spent walking straight "
    "up until it is cut, and a search over the limit tunes the metric and not the "
    "agent: that the length of an episode comes out as the most important setting is "
    "such an artefact. Without a limit the shortest path has 15.21 / 19.60 = .776, and "
    "14 / 16.93 = .827 with the goal straight ahead; a number near these may mean that "
    "the task is solved, or that it is not. So we report returns, and the share of "
    "goals that are reached.",
    "**What else differs in the source's agents.** The observation that ends an "
    "episode is lost at the reset, so that a truncated transition bootstraps from the "
    "next episode's first observation; a filter drops each episode's first transition; "
    "the target network moves only in rounds in which both the target's and the "
    "training's interval are due, which with 1,024 environments is never for most "
    "settings; one exploration draw is shared by all environments; and the whole "
    "buffer is copied in every step. In all three stacks here the last observation of "
    "an episode is kept, only `terminated` stops bootstrapping, the target network "
    "moves every 200 gradient steps, every environment has its own exploration draw, "
    "and the buffer is a ring.",
    "**What differs between our three stacks** is only where the work is done. All "
    "take the network (225-64-32-5, ReLU, orthogonal initialisation), Adam, the batch "
    "of 128, the 64 environments, the eight gradient steps per round of all "
    "environments, the buffer, the exploration and the clipping from one config. "
    "PyTorch uses one thread. The random numbers differ, so that the curves agree only "
    "in distribution.",
    "**MLflow.** `python experiments/tune_doors.py --algorithm dqn --track mlflow` "
    "writes the trials of the last row as nested runs of MLflow too "
    "([tracking](tracking.md), [tuning](tuning.md)), and `purerl export RUN --seed 0 "
    "--out FOLDER --mlflow` keeps a trained policy as a model there "
    "([exporting](exporting.md#as-a-model-of-mlflow)).",
)


def busy(loads: dict[str, float]) -> list[str]:
    """Return the paragraph about a machine that was not idle when JAX was timed.

    Args:
        loads: The machine's load average before each way of stepping was timed.
    """
    step, scan = loads["jax-step"], loads["jax-scan"]
    if max(step, scan) < BUSY:
        return []
    return [
        "**The machine was not idle.** JAX with one call per step was timed right "
        "after the hundreds of processes of async, when the machine's load average was "
        f"still {step:.0f}, so that its times at 128 and fewer environments may be too "
        f"high; the scan began at a load average of {scan:.0f}. The script now times "
        "async last.",
    ]


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
            (
                "history",
                "the score of every trial, the best score so far, and the score of the "
                "default settings.",
            ),
            (
                "importance",
                "the share of each setting in what makes a trial good, estimated by "
                "PED-ANOVA.",
            ),
            (
                "contour",
                "the score over pairs of the three most important settings. The dots "
                "are the complete trials, and the star is the best of them. The "
                "surface averages the scores of the trials near each point, and fades "
                "to white where no trial is near.",
            ),
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
            f"{found['trials']} trials of DQN's settings by TPE and Hyperband, with at "
            "most 57,600 steps each",
            "the length of an episode matters most",
            f"{first} ({shares[first]:.0%}) and {second} ({shares[second]:.0%}) matter "
            f"most; on {len(found['holdout']['seeds'])} fresh seeds the best has a "
            f"return of {_interval(best)}, and the default {_interval(default)}",
            "Both were trained for 57,600 steps, and the three stacks above for "
            "192,000. The task's limit is fixed at 60 steps here: see below. Printed "
            "by `python experiments/tune_doors.py --algorithm dqn` in "
            f"{found['wall_seconds'] / 60:.0f} minutes ({found['hardware']}, "
            f"{found['date']}). [Tuning](tuning.md) says why the optimiser has a small "
            "share though every trial with SGD was poor.",
        )
    ]
