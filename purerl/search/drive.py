"""The one driver of searches: ask, train, tell, keep; until the search has ended."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from purerl.execution.format import format_count, quoted, with_noun
from purerl.execution.memory import fitting_lanes
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, check_extend, check_seconds
from purerl.runner.interrupt import Interrupt
from purerl.runner.trackers import Tracker, choose
from purerl.runner.trackers.group import Group
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers
from purerl.search import folder as store
from purerl.search import tracking
from purerl.search.check import check_search
from purerl.search.executor import Executor
from purerl.search.folder import Restored
from purerl.search.protocol import Request, Search, Step
from purerl.storage import checkpoint, folders
from purerl.storage.checkpoint import Pace
from purerl.storage.lock import locked
from purerl.streams import say
from purerl.types import PyTree


class Finished(NamedTuple):
    """A search after its last step.

    Attributes:
        steps: The steps that it took.
        states: States of the members of the last one, on the host; None where the
            search was stopped before its end.
        numbers: Numbers about how it was run, by name.
    """

    steps: list[Step]
    states: PyTree | None
    numbers: dict[str, Any]


class _Options(NamedTuple):
    """The way a search is carried out; only W and K change what is computed."""

    out: Path | None
    lanes: int
    length: int
    checkpoint_seconds: float
    trackers: Sequence[Tracker]
    progress: bool


@in_32_bits
def drive(
    search: Search,
    *,
    out: str | Path | None = None,
    extend: bool = False,
    lanes: int | None = None,
    segment_updates: int | None = None,
    checkpoint_seconds: float = 30.0,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> Finished:
    """Carry out a search, or what is missing of it.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Ctrl-C finishes the request, saves, and says how to go on.

    Args:
        search: The search to carry out.
        out: Folder to write; nothing is written without one.
        extend: The folder may hold the same search of fewer environment steps.
        lanes: Width of a block, W; the search's own where not given.
        segment_updates: Updates of one compiled call, K; the search's own where not
            given.
        checkpoint_seconds: Least time between checkpoints, or ten times what the last
            one took where that is longer; 0 saves after every request.
        trackers: Places that are told the rows of every step: names (`mlflow`,
            `tensorboard`, `wandb`), or trackers. A search that goes on does so with
            those that it was started with where none are given.
        progress: Show progress.

    Raises:
        ConfigError: the folder holds another search, or is damaged; nothing can be
            made of an outcome, as when every member diverged; there are several
            processes.
    """
    check_search(search)
    hosts.require_one(
        f"a {search.kind} search",
        "Its members are compared after every request: start one per host, with seeds "
        "and a folder of its own.",
    )
    lanes = as_count("lanes", lanes)
    segment_updates = as_count("segment_updates", segment_updates)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
    folder = as_folder("out", out)
    check_extend(extend, folder)
    length = segment_updates or search.segment_updates
    options = _Options(
        out=folder,
        lanes=lanes or own_lanes(search, length),
        length=length,
        checkpoint_seconds=checkpoint_seconds,
        trackers=choose(trackers, folder),
        progress=progress,
    )
    if folder is None:
        return _SearchLoop(search, options, Restored([], None)).run()
    given = {"lanes_asked": lanes, "segment_updates_asked": segment_updates}
    with locked(folder):
        return _in_folder(folder, search, options, given, extend)


def _in_folder(
    folder: Path,
    search: Search,
    options: _Options,
    given: dict[str, int | None],
    extend: bool,
) -> Finished:
    """Carry out a search with a folder, which is undone where nothing came of it."""
    widths = {"lanes": options.lanes, "segment_updates": options.length, **given}
    with folders.undone_if_empty(folder):
        return _opened(folder, search, options, widths, extend).run()


def own_lanes(search: Search, length: int) -> int:
    """Return a search's own width, narrower where shapes say that it would not fit.

    Args:
        search: The search.
        length: The number of updates of one compiled call, K.
    """
    return fitting_lanes(
        search.bound, search.lanes, search.lanes, length, make_workers()
    )


def _opened(
    folder: Path,
    search: Search,
    options: _Options,
    widths: dict[str, int | None],
    extend: bool,
) -> "_SearchLoop":
    """The call that goes on from a folder, at the widths that hold there.

    Nothing but the call refers to the states that were restored: they are let go of
    when they are on the devices.
    """
    stored = store.open_folder(folder, search, widths, extend)
    note = folders.differences_of_versions(stored)
    if note:
        say(note)
    restored = store.restore(folder, search)
    if extend or restored.is_longer:
        if store.is_longer(stored, search):
            tracking.rewind(folder, search, restored.steps)
        store.extend_folder(folder, search, restored)
    options = options._replace(lanes=stored["lanes"], length=stored["segment_updates"])
    return _SearchLoop(search, options, restored)


class _SearchLoop:
    """One call of `drive`: the pieces that its phases share."""

    def __init__(self, search: Search, options: _Options, restored: Restored) -> None:
        # Imported here, so that only those who run a search wait for rich.
        from purerl.runner.progress import Reporter

        self.search, self.options = search, options
        self.steps, self.states = list(restored.steps), restored.states
        self.first = len(self.steps)
        self.executor = Executor(search.bound, options.lanes, options.length)
        self.group = Group(options.trackers)
        self.saved_at, self.pace = self.first, Pace(options.checkpoint_seconds)
        self.reporter = Reporter(
            max(1, sum(search.steps)),
            sum(search.steps[: self.first]),
            enabled=options.progress,
        )

    def run(self) -> Finished:
        self._begin_trackers()
        with self.group:
            request = self._ask()
            if request is None:
                self.reporter.info(f"the search in {self.options.out} had finished")
                finished = Finished(self.steps, self.states, {"trained_requests": 0})
            else:
                finished = self._train(request)
        tracking.close(self.group, self.options.out, finished.states is not None)
        return finished

    def _begin_trackers(self) -> None:
        """Open them, and tell what they lack of the steps that are done."""
        if not self.group:
            return
        notify = self.reporter.notify
        self.group.begin(tracking.describe(self.search, self.options.out), notify)
        for sentence in self.group.where():
            self.reporter.info(sentence)
        for count in range(len(self.steps)):
            tracking.log(self.group, self.search, self.steps[: count + 1])

    def _ask(self) -> Request | None:
        state = self.steps[-1].after if self.steps else self.search.init()
        return self.search.ask(state)

    def _train(self, request: Request) -> Finished:
        """Carry out requests until the search has ended or somebody stops it."""
        for line in (self._banner(request), *self.search.remarks):
            self.reporter.info(line)
        next_request: Request | None = request
        with Interrupt(lambda: self.group.stop) as interrupt:
            self._prepare(request)
            compiled = self.executor.compile_seconds
            self.reporter.info(f"compiled in {compiled:.1f} s")
            began = time.perf_counter()
            with self.reporter:
                while next_request is not None and not interrupt.asked:
                    self._step(next_request)
                    next_request = self._ask()
                    self._save(force=interrupt.asked or next_request is None)
            seconds = time.perf_counter() - began
        is_finished = next_request is None
        if not is_finished:
            self.reporter.notify(self._how_to_go_on())
        numbers = {
            "trained_requests": len(self.steps) - self.first,
            "compile_seconds": round(self.executor.compile_seconds, 2),
            "train_seconds": round(seconds, 2),
            "lanes": self.options.lanes,
            "segment_updates": self.options.length,
        }
        states = self.executor.states() if is_finished else None
        return Finished(self.steps, states, numbers)

    def _prepare(self, request: Request) -> None:
        """Compile, and be as after the last step that is done."""
        if self.steps:
            self.executor.restore(self.steps[-1].request, self.states)
            self.states = None
        else:
            self.executor.compile(request)

    def _step(self, request: Request) -> None:
        """Train what is asked for, tell the search, keep the step."""
        number = len(self.steps)
        steps_per_update = self.search.bound.plan.steps_per_update
        done = sum(self.search.steps[:number])

        def on_segment(members: int, updates: int, mean_return: float) -> None:
            nonlocal done
            done += members * updates * steps_per_update
            self.reporter.update(done, mean_return)

        before = self.steps[-1].after if self.steps else self.search.init()
        last = self.steps[-1].outcome if self.steps else None
        outcome = self.executor.run(request, last, on_segment)
        after = self.search.tell(before, request, outcome)
        step = Step(request, outcome, before, after)
        if self.options.out is not None:
            has_ended = self.search.ask(after) is None
            store.save_step(self.options.out, number, step, has_ended)
        self.steps.append(step)
        tracking.log(self.group, self.search, self.steps)

    def _save(self, force: bool) -> None:
        """Save the states, now and then: what comes after is computed again."""
        out = self.options.out
        if out is None or len(self.steps) == self.saved_at:
            return
        if not (force or self.pace.is_due()):
            return
        try:
            with self.pace.saving():
                store.save_states(out, len(self.steps), self.executor.states())
            self.saved_at = len(self.steps)
        except checkpoint.NotSavedError as error:
            if force:
                raise
            say(f"{error} The search goes on without it.")

    def _banner(self, request: Request) -> str:
        device, bound = jax.local_devices()[0], self.search.bound
        left = self.search.steps[self.first :]
        return (
            f"{self.search.kind}: {with_noun(request.members.size, 'member')}, "
            f"{bound.env.name}, {format_count(sum(left))} steps to train, "
            f"{with_noun(bound.plan.num_updates, 'update')} to the end, on "
            f"{device.device_kind} ({with_noun(self.options.lanes, 'lane')})"
        )

    def _how_to_go_on(self) -> str:
        out = self.options.out
        if out is None:
            return "stopped; nothing was saved (no out folder)"
        return (
            f"stopped; what was done is in {out}. The same search with "
            f"--out {quoted(out)} (out=) goes on."
        )
