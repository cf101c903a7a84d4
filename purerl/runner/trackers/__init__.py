"""Trackers by name: MLflow, TensorBoard, Weights & Biases; each in a file of its own.

Their packages are imported when a tracker is made, never before.
"""

from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from purerl.config import ConfigError, check_known
from purerl.runner.trackers.base import TRACKERS as TRACKERS
from purerl.runner.trackers.base import Member as Member
from purerl.runner.trackers.base import TrackedRun as TrackedRun
from purerl.runner.trackers.base import Tracker as Tracker
from purerl.runner.trackers.base import require
from purerl.runner.trackers.group import load_stored


def make_tracker(name: str, **options: Any) -> Tracker:
    """Make a tracker by its name.

    Args:
        name: The name of the tracker: `mlflow`, `tensorboard` or `wandb`.
        **options: Options of the tracker. `mlflow`: `uri` (of the store;
            `MLFLOW_TRACKING_URI`, else `sqlite:///mlflow.db` in the working directory),
            `experiment`. `tensorboard`: `folder` (of all runs; else the run's own).
            `wandb`: `folder`, `project`, `mode` (`WANDB_MODE`, else `offline`).

    Raises:
        ConfigError: another name or option, or a package that is not installed.
    """
    if name not in TRACKERS:
        raise ConfigError(f"there is no tracker {name!r}, only {', '.join(TRACKERS)}.")
    entry = TRACKERS[name]
    require(name, entry.packages)
    make = getattr(import_module(entry.module), entry.cls)
    for option in options:
        check_known(option, list(signature(make).parameters), f"tracker {name}")
    return make(**options)


def choose(
    trackers: Sequence[str | Tracker] | None, resumed: Path | None = None
) -> list[Tracker]:
    """Make the trackers of a run: those asked for, else those it was started with.

    One that is given by its name alone is made as it was made before.

    Args:
        trackers: Names and objects of trackers; None is no wish.
        resumed: Folder of the run that goes on, if it is one.

    Raises:
        ConfigError: no sequence, an unknown name, an object that is no tracker, the
            same name twice, or a tracker whose package is gone.
    """
    stored = load_stored(resumed)
    if trackers is None:
        trackers = [name for name in stored if name in TRACKERS]
    if isinstance(trackers, str | Tracker):
        raise ConfigError(
            f"trackers must be a list, got {trackers!r}; for example ['mlflow']."
        )
    opened: list[Tracker] = []
    for tracker in trackers:
        if isinstance(tracker, str):
            entry = stored.get(tracker) if tracker in TRACKERS else None
            tracker = make_tracker(tracker, **(entry["options"] if entry else {}))
        if not isinstance(tracker, Tracker):
            raise ConfigError(
                f"trackers takes names and subclasses of purerl.Tracker, got "
                f"{tracker!r}; names are {', '.join(TRACKERS)}."
            )
        if tracker.name in TRACKERS and tracker.name in [t.name for t in opened]:
            raise ConfigError(
                f"trackers names {tracker.name!r} twice; leave one of them out."
            )
        opened.append(tracker)
    return opened
