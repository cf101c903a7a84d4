"""The rows of a search for trackers: one per member and request, while it goes on."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from purerl.runner.trackers import group as groups
from purerl.runner.trackers.base import (
    Member,
    TrackedRun,
    Tracker,
    files_of,
    name_of,
)
from purerl.runner.trackers.group import Group
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
    """Return what trackers are told of a search when it begins."""
    rest = {n: search.spec[n] for n in ("axes", "options") if n in search.spec}
    request = search.ask(search.init())
    members = _Members({n: Member(name, n, {}) for n, name in search.names.items()})
    for number in range(request.members.size if request and not members else 0):
        _ = members[number]
    config = {**search.spec["config"], search.kind: rest}
    name = name_of(folder, search.kind)
    return TrackedRun(name, config, members, folder, kind=search.kind)


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
    update = _update(steps)
    env_steps = update * search.bound.plan.steps_per_update
    for number, row in search.rows(steps[-1]):
        group.log("train", number, {"update": update, "env_steps": env_steps, **row})
    group.flush()


def _update(steps: Sequence[Step]) -> int:
    """Updates up to the last step, those of members that were left among them."""
    return steps[-1].request.until + sum(
        before.request.until
        for before, after in itertools.pairwise(steps)
        if after.request.parents is None
    )


def rewind(folder: Path, search: Search, steps: Sequence[Step]) -> None:
    """Let trackers take anew what a longer search trains after its last checkpoint."""
    rows = sum(len(search.rows(step)) for step in steps)
    each = search.bound.plan.steps_per_update
    groups.rewind(folder, rows, _update(steps) * each if steps else -1)


def close(group: Group, folder: Path | None, is_finished: bool) -> None:
    """Hand over the files of a search's folder, and close its trackers."""
    status = "finished" if is_finished else "interrupted"
    group.close(status, files_of(folder, "search", *FILES))


def track_search(
    folder: Path, search: Search, trackers: Sequence[Tracker], notify: Notify
) -> bool:
    """Send what trackers lack of a search's folder; see `purerl.track`.

    Raises:
        ConfigError: nothing has been saved, or a tracker cannot begin.
    """
    steps = restore(folder, search).steps
    total = sum(len(search.rows(step)) for step in steps)
    group = Group(trackers, in_threads=False)
    with group:
        group.begin(describe(search, folder), notify, total)
        for count in range(len(steps)):
            log(group, search, steps[: count + 1])
        close(group, folder, is_finished=len(steps) == len(search.steps))
    return group.lacks_nothing
