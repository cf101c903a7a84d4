"""The files that trackers keep: the learning curve, and what loads the run again."""

import tempfile
from pathlib import Path

from purerl.runner import checkpoint
from purerl.runner.result import RunResult
from purerl.runner.trackers.group import Group


def keep(trackers: Group, result: RunResult) -> None:
    """Hand over the run's files, if any tracker takes files.

    `run/` holds config.yaml, manifest.json and the last checkpoint (the parameters of
    all seeds) as in a run's folder, so that `purerl.load_run` reads it;
    `figures/curve.png` is the learning curve of a finished run.
    """
    if not trackers.takes_files:
        return
    if result.out is not None:
        for name in ("config.yaml", "manifest.json"):
            trackers.artifact(result.out / name, f"run/{name}")
        saved = checkpoint.steps(result.out / "checkpoints")
        if saved:
            name = f"checkpoints/{saved[-1]}"
            trackers.artifact(result.out / name, f"run/{name}")
    if result.finished:
        with tempfile.TemporaryDirectory() as folder:
            path = (result.out or Path(folder)) / "curve.png"
            try:
                from purerl.report import plots

                plots.learning_curve(result, path)
            except Exception as error:  # a picture is not worth a run
                trackers.say(f"the learning curve could not be drawn ({error}).")
                return
            trackers.artifact(path, "figures/curve.png")
