"""The rows of a search for trackers: one per member and request, while it goes on."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

from purerl.runner.trackers import group as groups
from purerl.runner.trackers.base import Member, TrackedRun, Tracker
from purerl.runner.trackers.group import Group, lacking
from purerl.runner.trackers.writer import Notify
from purerl.search.folder import restore
from purerl.search.protocol import Search, Step

# Files of the folder that trackers keep with a search, where they are there.
FILES = ("config.yaml", "manifest.json", "summary.json", "best.yaml")


class _Members(dict[int, Member]):
    """Members by number; one that is asked for without a name is called by its number.

    How many members a search will ask for need not be known when it begins.
    """

    def __missing__(self, number: int) -> Member:
        return self.setdefault(number, Member(f"member={number}", number, {}))


def describe(search: Search, folder: Path | None) -> TrackedRun:
    """Return what trackers are told of a search when it begins.

    Args:
        search: The search.
        folder: The folder that it writes, if any.
    """
    config = search.spec["config"]
    rest = {n: search.spec[n] for n in ("axes", "options") if n in search.spec}
    request = search.ask(search.init())
    size = 0 if request is None else request.members.size
    members = _Members({n: Member(name, n, {}) for n, name in search.names.items()})
    for number in () if members else range(size):
        _ = members[number]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return TrackedRun(
        name=folder.resolve().name if folder else f"{search.kind}-{stamp}",
        config={**config, search.kind: rest},
        members=members,
        folder=folder,
        kind=search.kind,
    )


def log(group: Group, search: Search, steps: Sequence[Step]) -> None:
    """Tell trackers the rows of the last of some steps.

    Members that begin anew go on along the axis where those before them ended: a chart
    never goes back.

    Args:
        group: The trackers.
        search: The search.
        steps: The steps of the search so far.
    """
    if not group:
        return
    place = {"update": _update(steps), "env_steps": _env_steps(search, steps)}
    for number, row in search.rows(steps[-1]):
        group.log("train", number, {**place, **row})
    group.flush()


def _update(steps: Sequence[Step]) -> int:
    """Updates up to the last step, those of members that were left among them."""
    return steps[-1].request.until + sum(
        before.request.until
        for before, after in itertools.pairwise(steps)
        if after.request.parents is None
    )


def _env_steps(search: Search, steps: Sequence[Step]) -> int:
    return _update(steps) * search.bound.plan.steps_per_update


def rewind(folder: Path, search: Search, steps: Sequence[Step]) -> None:
    """Let trackers take anew what a longer search trains after its last checkpoint.

    Args:
        folder: The folder of the search.
        search: The search.
        steps: The steps up to the last checkpoint.
    """
    rows = sum(len(search.rows(step)) for step in steps)
    groups.rewind(folder, rows, _env_steps(search, steps) if steps else -1)


def close(group: Group, folder: Path | None, is_finished: bool) -> None:
    """Hand over the files of a search's folder, and close its trackers.

    Args:
        group: The trackers.
        folder: Folder of the search, if any.
        is_finished: Whether the search has ended.
    """
    if folder is not None and group.takes_files:
        for name in FILES:
            if (folder / name).exists():
                group.artifact(folder / name, f"search/{name}")
    group.close("finished" if is_finished else "interrupted")


def track_search(
    folder: Path, search: Search, trackers: Sequence[Tracker], notify: Notify
) -> bool:
    """Send what trackers lack of a search's folder; see `purerl.track`.

    Args:
        folder: The folder of the search.
        search: The search that it holds.
        trackers: Trackers that have not begun.
        notify: Prints a sentence for people.

    Returns:
        Whether every tracker has everything now.

    Raises:
        ConfigError: nothing has been saved, or a tracker cannot begin.
    """
    steps = restore(folder, search).steps
    total = sum(len(search.rows(step)) for step in steps)
    group = Group(lacking(trackers, folder, total, notify), in_threads=False)
    if not group:
        return True
    with group:
        group.begin(describe(search, folder), notify)
        for count in range(len(steps)):
            log(group, search, steps[: count + 1])
        close(group, folder, is_finished=len(steps) == len(search.steps))
    for sentence in group.where():
        notify(sentence)
    return group.lacks_nothing
