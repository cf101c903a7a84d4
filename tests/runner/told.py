"""A tracker that keeps what it is told of members, for tests of every tool."""

from typing import Any

import purerl
from purerl.runner.trackers.base import Member, TrackedRun
from purerl.runner.trackers.group import Group

RUN = TrackedRun("name", {}, {0: Member("seed=0", 0, {})})


class Told(purerl.Tracker):
    """Keeps the members it is told, their rows and the files; may fail at a member."""

    name = "told"

    def __init__(self, fails_at: int | None = None) -> None:
        self.id, self.fails_at = None, fails_at
        self.members: dict[int, Any] = {}
        self.rows: dict[int, list[tuple[str, dict[str, Any]]]] = {}
        self.ended: list[int] = []
        self.files: list[str] = []
        self.status, self.has_gone_on = "", False

    def begin(self, run):
        self.run, self.has_gone_on = run, run.id is not None
        self.id = run.id or "there"

    def log(self, kind, seed, row):
        if seed == self.fails_at:
            raise OSError("the server has stopped")
        self.members[seed] = self.run.members[seed]
        self.rows.setdefault(seed, []).append((kind, row))

    def end_member(self, seed):
        self.ended.append(seed)

    def artifact(self, path, name):
        assert path.is_dir() or path.stat().st_size > 0
        self.files.append(name)

    def close(self, status="finished"):
        self.status = status


def group(*trackers, folder=None):
    """Trackers of a run of one seed that have begun, and what they say."""
    said: list[str] = []
    made = Group(trackers)
    made.begin(RUN._replace(folder=folder), said.append)
    return made, said
