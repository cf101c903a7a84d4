"""The record of an evolution while it goes on: JSON lines, and trackers if asked.

A generation is a row of `metrics/rows.jsonl`, and a step of every
chart of a tracker (`purerl.runner.trackers`). What a killed evolution had logged past
its last checkpoint is computed again with the same bits, and not told twice.
"""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import serialise
from purerl.meta.setup import EvolutionSetup
from purerl.meta.store import KIND, State
from purerl.runner.rows import RowFile, by_member, check_complete, read_rows
from purerl.runner.trackers import Member, TrackedRun, Tracker
from purerl.runner.trackers.base import Row, files_of, name_of
from purerl.runner.trackers.group import Group

if TYPE_CHECKING:
    from purerl.meta.result import EvolutionResult

AXIS = "generation"


class Tracking:
    """Everybody who is told of one evolution.

    Its `group` is a context that closes trackers when the evolution fails; else `close`
    is for the evolution to call.

    Args:
        setup: The evolution.
        folder: The folder of the evolution, or None.
        trackers: Trackers beside JSON lines.
    """

    def __init__(
        self, setup: EvolutionSetup, folder: Path | None, trackers: Sequence[Tracker]
    ) -> None:
        self.setup, self.folder = setup, folder
        self.seed = int(setup.settings["seed"])
        self.group = Group(trackers)
        self.jsonl = RowFile(folder / "metrics") if folder else None

    def begin(self, state: State, notify: Callable[[str], None]) -> None:
        """Open everything, and tell what is known of the generations that are done.

        Args:
            state: The state to go on from.
            notify: A function that prints a sentence for people.

        Raises:
            ConfigError: a tracker cannot begin.
        """
        config = serialise.to_dict(self.setup.config) if self.group else {}
        run = describe(self.folder, config, self.setup.settings)
        self.group.begin(run, notify)
        for sentence in self.group.where():
            notify(sentence)
        known = self._rewind(int(state.done))
        for row in rows(self.setup, state):
            if row["update"] > known and self.jsonl is not None:
                self.jsonl.log(KIND, self.seed, row)
            self.group.log(KIND, self.seed, row)
        self._flush()

    def generation(self, state: State) -> None:
        """Tell of the last generation of a state, which has ended."""
        (row,) = rows(self.setup, state, int(state.done) - 1)
        if self.jsonl is not None:
            self.jsonl.log(KIND, self.seed, row)
        self.group.log(KIND, self.seed, row)
        self._flush()

    def close(self, result: "EvolutionResult", is_finished: bool) -> None:
        """Hand over the files and write what is left."""
        finish(self.group, result, is_finished)

    def _flush(self) -> None:
        if self.jsonl is not None:
            self.jsonl.flush()
        self.group.flush()

    def _rewind(self, done: int) -> int:
        """Drop JSON lines past `done`; returns the last generation that is there."""
        if self.jsonl is None:
            return 0
        self.jsonl.rewind(done)
        kept = _rows_in(self.jsonl.path.parent, self.seed)
        return int(kept[-1]["update"]) if kept else 0


def describe(
    folder: Path | None, config: Mapping[str, Any], settings: Mapping[str, Any]
) -> TrackedRun:
    """Return what trackers are told of an evolution.

    Args:
        folder: The folder of the evolution, if it writes one.
        config: The config that members start from, as plain values.
        settings: Settings of the evolution, what is evolved and how, as plain values.
    """
    seed = int(settings["seed"])
    return TrackedRun(
        name=name_of(folder, KIND),
        config={**config, "evolution": settings},
        members={seed: Member("evolution", seed, {})},
        folder=folder,
        axis=AXIS,
        kind=KIND,
    )


def track_evolution(
    folder: Path, trackers: Sequence[Tracker], notify: Callable[[str], None]
) -> bool:
    """Send what trackers lack of an evolution's folder; see `purerl.track`.

    Raises:
        ConfigError: nothing has been saved, or a tracker cannot begin.
    """
    from purerl.meta.result import load_evolution

    result = load_evolution(folder)
    seed = int(result.settings["seed"])
    # What comes after the last checkpoint is told when the evolution goes on.
    lines = _rows_in(folder / "metrics", seed, result.done)
    check_complete(folder / "metrics", [lines], result.done)
    group, config = Group(trackers, in_threads=False), serialise.to_dict(result.config)
    with group:
        run = describe(folder, config, result.settings)
        group.begin(run, notify, len(lines))
        for row in lines:
            group.log(KIND, seed, row)
        finish(group, result, result.finished)
    return group.lacks_nothing


def _rows_in(metrics: Path, seed: int, until: float = math.inf) -> list[Row]:
    """The rows of the generations that a folder has, up to one of them."""
    return by_member(read_rows(metrics, (KIND,))[KIND], (seed,), until)[0]


def finish(group: Group, result: "EvolutionResult", is_finished: bool) -> None:
    """Hand over the files of an evolution, and close its trackers.

    Args:
        group: The trackers.
        result: The result of the evolution.
        is_finished: Whether the evolution has finished, and was not interrupted.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if group.takes_files and result.done:
            _keep_files(group, result, Path(folder))
        # Inside: a tracker reads the files when it comes to them.
        group.close("finished" if is_finished else "interrupted")


def _keep_files(group: Group, result: "EvolutionResult", folder: Path) -> None:
    """Send the learned part, the files it was started with, and pictures."""
    result.save(folder)
    for path in sorted(folder.iterdir()):
        group.artifact(path, f"{KIND}/{path.name}")
    for name, path in files_of(
        result.out, KIND, "config.yaml", "manifest.json"
    ).items():
        group.artifact(path, name)
    try:
        from purerl.report import plots

        figures = {"evolution": result.plot(), **result.pictures()}
        pictures = [
            plots.save(x, folder / f"{name}.png") for name, x in figures.items()
        ]
    except Exception as error:  # a picture is not worth an evolution
        group.notify(f"the pictures could not be drawn ({error}).")
        return
    for path in pictures:
        group.artifact(path, f"figures/{path.name}")


def rows(setup: EvolutionSetup, state: State, first: int = 0) -> list[dict[str, Any]]:
    """Return a row for every generation that is done, after the first `first` of them.

    `env_steps` are those of all agents so far; `return/<environment>` is the mean over
    members and rollouts. `sigma` is left out where the strategy has none.

    Args:
        setup: The evolution.
        state: The state after the last generation that is done.
        first: The number of generations that are left out.
    """
    from purerl.meta.result import history_of

    history = history_of(state, setup.fitness)
    names = ["best", "mean", "std", "best_so_far", "failed", "seconds"]
    if np.isfinite(history["sigma"]).any():
        names.append("sigma")
    return [
        {
            "update": number + 1,
            AXIS: number + 1,
            "env_steps": (number + 1) * setup.steps,
            **{name: history[name][number].item() for name in names},
            **{
                f"return/{name}": float(history["returns"][number, column])
                for column, name in enumerate(setup.names)
            },
        }
        for number in range(first, int(state.done))
    ]
