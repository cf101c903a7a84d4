"""A study in trackers: every trial is told when it has finished, a nested run each."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.runner.trackers.base import Member, TrackedRun, Tracker
from purerl.runner.trackers.group import Ended, MemberGroup, files_of
from purerl.runner.trackers.writer import Notify
from purerl.tuning.result import STATES, Row

FILES = ("trials.csv", "best.yaml", "summary.json")


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
        self.group = MemberGroup(trackers, in_threads)
        self._config, self._trials, self._folder = config, trials, folder
        self._told: set[int] = set()

    def begin(self, notify: Notify) -> None:
        """Open the trackers.

        Raises:
            ConfigError: one of them cannot begin.
        """
        config = serialise.to_dict(self._config)
        name = self._folder.resolve().name if self._folder else f"tune-{config['env']}"
        run = TrackedRun(name, config, {}, self._folder, is_sweep=True, kind="tune")
        self.group.begin(run, self._trials, notify, is_fixed=False)

    def add(self, rows: Iterable[Row]) -> None:
        """Tell of the finished trials among some, those that were not told before."""
        news = [r for r in rows if r.state in STATES and r.number not in self._told]
        if news:
            numbers = [row.number for row in news]
            self._told.update(numbers)
            self.group.add(numbers, lambda: map(ended, news))

    def close(self, is_finished: bool) -> None:
        """Hand over the files of a study that has finished, and end."""
        files = {}
        if self._folder is not None and is_finished:
            kept = [self._folder / name for name in FILES]
            files = {f"study/{path.name}": path for path in kept if path.exists()}
            files |= files_of(self._folder)
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
    last = max(row.curve, default=0)
    rows.append(
        (
            "trial",
            {
                "env_steps": last,
                "score": list(row.seed_scores),
                "total_env_steps": row.env_steps,
            },
        )
    )
    params = {**row.params, "trial": row.number, "state": row.state}
    return Ended(row.number, Member(f"trial={row.number}", None, params), rows)


def track_study(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a study's folder; see `purerl.track`.

    Args:
        folder: The folder of the study.
        trackers: Trackers that have not begun.
        notify: A function that prints a sentence for people.

    Returns:
        Whether every tracker has everything now.

    Raises:
        ConfigError: no trial has finished, or a tracker cannot begin.
    """
    from purerl.tuning.saved import read

    saved = read(folder)
    rows = [row for row in saved.result.rows if row.state in STATES]
    if not rows:
        raise ConfigError(f"no trial of the study in {folder} has finished yet.")
    trials, config = int(saved.stored["trials"]), saved.space.config
    tracking = Tracking(config, trials, folder, trackers, in_threads=False)
    with tracking.group:
        tracking.begin(notify)
        tracking.add(rows)
        tracking.close(saved.result.finished)
    return tracking.group.lacks_nothing
