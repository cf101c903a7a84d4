"""A tracker that keeps what it is told of members, for tests of every tool."""

import math
import threading
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

    def log(self, member, step, row):
        if member == self.fails_at:
            raise OSError("the server has stopped")
        self.members[member] = self.run.members[member]
        self.rows.setdefault(member, []).append((row["kind"], row))

    def end_member(self, member):
        self.ended.append(member)

    def artifact(self, path, name):
        assert path.is_dir() or path.stat().st_size > 0
        self.files.append(name)

    def close(self, status="finished"):
        self.status = status


class Acts(purerl.Tracker):
    """Does something in training when it is told a row of an update.

    Args:
        seed: The member whose row it is; None for all.
        act: A function of the tracker.
    """

    name, background = "acts", False

    def __init__(self, update, act, seed=None):
        self.update, self.act, self.seed = update, act, seed

    def log(self, member, step, row):
        is_it = (row["kind"], row["update"]) == ("train", self.update)
        if is_it and self.seed in (member, None):
            self.act(self)


def kill(tracker):
    """A second Ctrl-C: between the rows of an update and its checkpoint."""
    raise KeyboardInterrupt


class Keeps(purerl.Tracker):
    """Keeps what it is told; fails in a method, or once it has as many rows as it may.

    Attributes:
        told: Kind, member and update of every row.
    """

    name = "keeps"

    def __init__(self, fails="", id="there", most=math.inf):
        self.told, self.fails, self.own, self.most = [], fails, id, most
        self.id, self.status, self.is_closed = None, "", threading.Event()

    @property
    def updates(self):
        return [update for *_, update in self.told]

    def begin(self, run):
        self._may_fail("begin")
        self.begun, self.id = run, run.id or self.own

    def log(self, member, step, row):
        self._may_fail("log")
        if len(self.told) >= self.most:
            raise OSError("the server has stopped")
        self.told.append((row["kind"], member, row["update"]))

    def close(self, status="finished"):
        self._may_fail("close")
        self.status = status
        self.is_closed.set()

    def _may_fail(self, method):
        if self.fails == method:
            raise OSError(f"no room for {method}\nsecond line")


class Flushes(Keeps):
    """May fail in `flush` too, without which rows do not count."""

    def flush(self):
        self._may_fail("flush")


def at(update, kind="train"):
    """A row without numbers."""
    return {"kind": kind, "update": update, "env_steps": 32 * update}


def group(*trackers, folder=None):
    """Trackers of a run of one seed that have begun, and what they say."""
    said: list[str] = []
    made = Group(trackers)
    made.begin(RUN._replace(folder=folder), said.append)
    return made, said


def tell(trackers, updates):
    for update in updates:
        trackers.tell([(0, at(update))])


def whole(*trackers, updates, folder=None, status="finished"):
    """What is said in a run of one seed whose trackers are told of these updates."""
    made, said = group(*trackers, folder=folder)
    tell(made, updates)
    made.close(status)
    return said
