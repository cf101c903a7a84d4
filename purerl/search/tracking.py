"""What trackers are told of a search while it goes on: a row per member and request."""

import time
from collections.abc import Sequence
from pathlib import Path

from purerl.runner.trackers.base import Member, TrackedRun, Tracker
from purerl.runner.trackers.group import Group, lacking
from purerl.runner.trackers.writer import Say
from purerl.search.folder import restore
from purerl.search.protocol import Search, Step

# Files of the folder that trackers keep with a search, where they are there.
FILES = ("config.yaml", "manifest.json", "summary.json", "best.yaml")


def describe(search: Search, folder: Path | None) -> TrackedRun:
    """Return what trackers are told of a search when it begins.

    Args:
        search: The search.
        folder: The folder that it writes, if any.
    """
    config = search.spec["config"]
    rest = {n: search.spec[n] for n in ("axes", "options") if n in search.spec}
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return TrackedRun(
        name=folder.resolve().name if folder else f"{search.kind}-{stamp}",
        config={**config, search.kind: rest},
        members={n: Member(name, n, {}) for n, name in search.names.items()},
        folder=folder,
        kind=search.kind,
    )


def log(group: Group, search: Search, step: Step) -> None:
    """Tell trackers the rows of a step."""
    if not group:
        return
    each = search.bound.plan.steps_per_update
    until = step.request.until
    for number, row in search.rows(step):
        position = {"update": until, "env_steps": until * each}
        group.log("train", number, {**position, **row})
    group.flush()


def close(group: Group, folder: Path | None, is_finished: bool) -> None:
    """Hand over the files of a search's folder, and close its trackers."""
    if folder is not None and group.takes_files:
        for name in FILES:
            if (folder / name).exists():
                group.artifact(folder / name, f"search/{name}")
    group.close("finished" if is_finished else "interrupted")


def track_search(
    folder: Path, search: Search, trackers: Sequence[Tracker], say: Say
) -> bool:
    """Send what trackers lack of a search's folder; see `purerl.track`.

    Args:
        folder: The folder of the search.
        search: The search that it holds.
        trackers: Trackers that have not begun.
        say: Prints a sentence for people.

    Returns:
        Whether every tracker has everything now.

    Raises:
        ConfigError: nothing has been saved, or a tracker cannot begin.
    """
    steps = restore(folder, search).steps
    total = sum(len(search.rows(step)) for step in steps)
    group = Group(lacking(trackers, folder, total, say), in_threads=False)
    if not group:
        return True
    with group:
        group.begin(describe(search, folder), say)
        for step in steps:
            log(group, search, step)
        close(group, folder, is_finished=len(steps) == len(search.steps))
    for sentence in group.where():
        say(sentence)
    return group.lacks_nothing
