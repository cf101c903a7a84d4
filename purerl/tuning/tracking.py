"""A study in trackers: every trial is told when it has finished, a nested run each."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.runner.trackers.base import (
    Ended,
    Member,
    TrackedRun,
    Tracker,
    files_of,
    name_of,
)
from purerl.runner.trackers.group import Group
from purerl.runner.trackers.writer import Notify
from purerl.tuning.result import STATES, Row


class Tracking:
    """The trackers of one call of `tune`.

    Args:
        config: The base config of the study.
        trials: The number of trials that are to finish.
        folder: The folder of the study, if any.
        trackers: Trackers that have not begun.
        in_threads: Whether training must not wait for them.
    """

    def __init__(
        self,
        config: TrainConfig,
        trials: int,
        folder: Path | None,
        trackers: Sequence[Tracker],
        in_threads: bool = True,
    ) -> None:
        self.group = Group(trackers, in_threads)
        self._config, self._trials, self._folder = config, trials, folder
        self._told: set[int] = set()

    def begin(self, notify: Notify) -> None:
        """Open the trackers.

        Raises:
            ConfigError: one of them cannot begin.
        """
        config, name = serialise.to_dict(self._config), name_of(self._folder, "tune")
        run = TrackedRun(name, config, {}, self._folder, is_sweep=True, kind="tune")
        self.group.begin(run, notify, self._trials, is_fixed=False)

    def add(self, rows: Iterable[Row]) -> None:
        """Tell of the finished trials among some, those that were not told before."""
        news = [r for r in rows if r.state in STATES and r.number not in self._told]
        if news:
            numbers = [row.number for row in news]
            self._told.update(numbers)
            self.group.add(numbers, lambda: map(ended, news))

    def close(self, is_finished: bool) -> None:
        """Hand over the files of a study that has finished, and end."""
        folder = self._folder if is_finished else None
        files = files_of(folder, "study", "trials.csv", "best.yaml", "summary.json")
        files |= files_of(folder, "figures", "*.png")
        files |= files_of(folder, "sweep", "config.yaml", "manifest.json")
        self.group.close("finished" if is_finished else "interrupted", files)


def ended(row: Row) -> Ended:
    """Return a finished trial as trackers are told it.

    `train/score` is its mean score over the seeds along the way, `trial/score` that of
    the seeds at its end, with their extremes.
    """
    rows = [
        ("train", {"env_steps": step, "score": score})
        for step, score in sorted(row.curve.items())
    ]
    last = {
        "env_steps": max(row.curve, default=0),
        "score": list(row.seed_scores),
        "total_env_steps": row.env_steps,
    }
    params = {**row.params, "trial": row.number, "state": row.state}
    member = Member(f"trial={row.number}", None, params)
    return Ended(row.number, member, [*rows, ("trial", last)])


def track_study(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a study's folder; see `purerl.track`.

    Raises:
        ConfigError: no trial has finished, or a tracker cannot begin.
    """
    from purerl.tuning.folder import read

    saved = read(folder)
    rows = [row for row in saved.result.rows if row.state in STATES]
    if not rows:
        raise ConfigError(f"no trial of the study in {folder} has finished yet.")
    trials, config = int(saved.stored["options"]["trials"]), saved.space.config
    tracking = Tracking(config, trials, folder, trackers, in_threads=False)
    with tracking.group:
        tracking.begin(notify)
        tracking.add(rows)
        tracking.close(saved.result.finished)
    return tracking.group.lacks_nothing
