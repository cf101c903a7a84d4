"""A comparison in trackers: a nested run per environment and setting, when it ends."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.comparison import result
from purerl.comparison.training import Scores
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

FILES = ("comparison.json", "comparison.csv", "comparison.png")
Results = Mapping[tuple[str, str], Scores]  # by environment and setting


class Tracking:
    """The trackers of one call of `compare`.

    Args:
        config: The config of the first environment, as plain values.
        environments: Names of the environments.
        settings: Changes that each setting makes, by its name, as plain values.
        folder: The folder of the comparison, if any.
        trackers: Trackers that have not begun.
        in_threads: Whether training must not wait for them.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        environments: Sequence[str],
        settings: Mapping[str, Mapping[str, Any]],
        folder: Path | None,
        trackers: Sequence[Tracker],
        in_threads: bool = True,
    ) -> None:
        self.group = Group(trackers, in_threads)
        self._config, self._folder = config, folder
        self._settings = settings
        pairs = [
            (environment, name) for environment in environments for name in settings
        ]
        self._numbers = {pair: number for number, pair in enumerate(pairs)}

    def begin(self, notify: Notify) -> None:
        """Open the trackers.

        Raises:
            ConfigError: one of them cannot begin.
        """
        run = TrackedRun(
            name_of(self._folder, "comparison"),
            self._config,
            {},
            self._folder,
            is_sweep=True,
            kind=result.KIND,
        )
        self.group.begin(run, notify, len(self._numbers))

    def add(self, results: Results) -> None:
        """Tell of settings that have been trained in an environment."""

        def load() -> Iterator[Ended]:
            for pair, scores in results.items():
                yield self._ended(pair, scores)

        if results:
            self.group.add([self._numbers[pair] for pair in results], load)

    def close(self, is_finished: bool) -> None:
        """Hand over the files of a comparison that has ended, and end."""
        files = files_of(self._folder if is_finished else None, "comparison", *FILES)
        self.group.close("finished" if is_finished else "interrupted", files)

    def _ended(self, pair: tuple[str, str], scores: Scores) -> Ended:
        """Rows of all seeds together: means under the name itself, and extremes."""
        environment, name = pair
        rows = [
            ("train", {"env_steps": int(step), "episode_return": values.tolist()})
            for step, values in zip(scores.steps, scores.curve.T, strict=True)
        ]
        last = int(scores.steps[-1])
        measures = {name: values.tolist() for name, values in scores.measures.items()}
        rows.append(("measure", {"env_steps": last, **measures}))
        where = {"environment": environment, "setting": name}
        has_several = len({environment for environment, _ in self._numbers}) > 1
        title = f"{environment}, {name}" if has_several else name
        member = Member(title, None, {**where, **self._settings[name]})
        return Ended(self._numbers[pair], member, rows)


def track_comparison(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a comparison's folder; see `purerl.track`.

    Raises:
        ConfigError: the comparison has not ended, or a tracker cannot begin.
    """
    from purerl.comparison.result import load_comparison

    comparison = load_comparison(folder)
    settings = {n: dict(v or {}) for n, v in comparison.about["settings"].items()}
    config = dict(comparison.about["environments"][comparison.environments[0]])
    tracking = Tracking(
        config, comparison.environments, settings, folder, trackers, in_threads=False
    )
    scores = {}
    for e, environment in enumerate(comparison.environments):
        for n, name in enumerate(comparison.settings):
            steps = comparison.steps[environment][n]
            # Shorter curves are filled up to the longest one.
            is_known = np.isfinite(steps)
            scores[environment, name] = Scores(
                {measure: x[e, n] for measure, x in comparison.scores.items()},
                comparison.curves[environment][n][:, is_known],
                steps[is_known],
            )
    with tracking.group:
        tracking.begin(notify)
        tracking.add(scores)
        tracking.close(is_finished=True)
    return tracking.group.lacks_nothing
