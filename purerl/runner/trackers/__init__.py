"""Trackers by name: MLflow, TensorBoard, Weights & Biases; each in a file of its own.

Their packages are imported when a tracker is made, never before.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module, util
from pathlib import Path
from typing import Any

from purerl.config import ConfigError, check_known
from purerl.runner.trackers.base import TRACKERS as TRACKERS
from purerl.runner.trackers.base import Member as Member
from purerl.runner.trackers.base import TrackedRun as TrackedRun
from purerl.runner.trackers.base import Tracker as Tracker
from purerl.runner.trackers.base import missing
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
    for option in options:
        check_known(option, list(entry.options), f"tracker {name}")
    for package in entry.packages:
        try:
            is_there = util.find_spec(package) is not None
        except (ImportError, ValueError):  # None in sys.modules: not to be imported
            is_there = False
        if not is_there:
            raise missing(package, name)
    return getattr(import_module(entry.module), entry.cls)(**options)


def read_trackers(
    trackers: Sequence[str | Tracker], stored: Mapping[str, Any] | None = None
) -> list[Tracker]:
    """Make trackers from names and objects.

    Args:
        trackers: Names and objects of trackers.
        stored: What `trackers.json` has: a tracker that is given by its name alone is
            made as it was made before.

    Raises:
        ConfigError: no sequence, an unknown name, an object that is no tracker, or the
            same name twice.
    """
    if isinstance(trackers, str | Tracker):
        raise ConfigError(
            f"trackers must be a list, got {trackers!r}; for example ['mlflow']."
        )
    opened: list[Tracker] = []
    for tracker in trackers:
        if isinstance(tracker, str):
            entry = (stored or {}).get(tracker) if tracker in TRACKERS else None
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


def choose(
    trackers: Sequence[str | Tracker] | None, resumed: Path | None
) -> list[Tracker]:
    """Choose the trackers of a run: those asked for, else those it was started with.

    Args:
        trackers: Names and objects of trackers; None is no wish.
        resumed: Folder of the run that goes on, if it is one.

    Raises:
        ConfigError: see `read_trackers`; a stored tracker's package is gone.
    """
    stored = load_stored(resumed)
    if trackers is None:
        trackers = [name for name in stored if name in TRACKERS]
    return read_trackers(trackers, stored)
