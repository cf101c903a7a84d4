"""A comparison in trackers: a nested run per environment and setting, when it ends."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.comparison import saved
from purerl.comparison.held_out import Scores
from purerl.runner.trackers.base import Member, TrackedRun, Tracker
from purerl.runner.trackers.group import Ended, MemberGroup
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
        self.group = MemberGroup(trackers, in_threads)
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
        name = self._folder.resolve().name if self._folder else "comparison"
        run = TrackedRun(
            name, self._config, {}, self._folder, is_sweep=True, kind=saved.KIND
        )
        self.group.begin(run, len(self._numbers), notify, is_fixed=True)

    def add(self, results: Results) -> None:
        """Tell of settings that have been trained in an environment."""

        def load() -> Iterator[Ended]:
            for pair, scores in results.items():
                yield self._ended(pair, scores)

        if results:
            self.group.add([self._numbers[pair] for pair in results], load)

    def close(self, is_finished: bool) -> None:
        """Hand over the files of a comparison that has ended, and end."""
        paths = [self._folder / name for name in FILES] if self._folder else []
        files = {f"comparison/{path.name}": path for path in paths if path.exists()}
        status = "finished" if is_finished else "interrupted"
        self.group.close(status, files if is_finished else None)

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
        params = {
            "environment": environment, "setting": name, **self._settings[name]
        }  # fmt: skip
        title = f"{environment}, {name}" if self._has_several else name
        return Ended(self._numbers[pair], Member(title, None, params), rows)

    @property
    def _has_several(self) -> bool:
        return len({environment for environment, _ in self._numbers}) > 1


def track_comparison(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    """Send what trackers lack of a comparison's folder; see `purerl.track`.

    Args:
        folder: The folder of a comparison that has ended.
        trackers: Trackers that have not begun.
        notify: A function that prints a sentence for people.

    Returns:
        Whether every tracker has everything now.

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
    scores = {
        (environment, name): Scores(
            {measure: x[e, n] for measure, x in comparison.scores.items()},
            *_known(
                comparison.curves[environment][n], comparison.steps[environment][n]
            ),
        )
        for e, environment in enumerate(comparison.environments)
        for n, name in enumerate(comparison.settings)
    }
    tracking.begin(notify)
    with tracking.group:
        tracking.add(scores)
        tracking.close(is_finished=True)
    return tracking.group.lacks_nothing


def _known(curve: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A curve without what fills it up to the longest one."""
    is_known = np.isfinite(steps)
    return curve[:, is_known], steps[is_known]
