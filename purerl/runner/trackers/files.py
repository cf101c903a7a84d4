"""The files that trackers keep: the learning curve, and what loads the run again."""

import tempfile
from pathlib import Path

from purerl.runner.manifest import CURVE
from purerl.runner.result import RunResult
from purerl.runner.trackers.group import Group
from purerl.storage import checkpoint


def finish(trackers: Group, result: RunResult) -> None:
    """Hand over the run's files, if any tracker takes files, and close the trackers.

    `run/` holds config.yaml, manifest.json and the last checkpoint (the parameters of
    all seeds) as in a run's folder, so that `purerl.load_run` reads it;
    `figures/curve.png` is the learning curve of a finished run.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if trackers.takes_files:
            _keep(trackers, result, Path(folder))
        # Inside: a tracker reads the files when it comes to them.
        trackers.close("finished" if result.finished else "interrupted")


def _keep(trackers: Group, result: RunResult, folder: Path) -> None:
    if result.out is not None:
        for name in ("config.yaml", "manifest.json"):
            if (result.out / name).exists():
                trackers.artifact(result.out / name, f"run/{name}")
        saved = checkpoint.steps(result.out / "checkpoints")
        if saved:
            name = f"checkpoints/{saved[-1]}"
            trackers.artifact(result.out / name, f"run/{name}")
    if result.finished:
        path = (result.out or folder) / CURVE
        try:
            from purerl.report import plots

            plots.learning_curve(result, path)
        except Exception as error:  # A picture is not worth a run.
            trackers.notify(f"the learning curve could not be drawn ({error}).")
            return
        trackers.artifact(path, f"figures/{CURVE}")
