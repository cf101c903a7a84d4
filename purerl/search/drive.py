"""The one driver of searches: ask, train, tell, keep; until the search has ended."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from purerl.config import ConfigError
from purerl.execution.format import format_count, with_noun
from purerl.runner.interrupt import Interrupt
from purerl.runner.trackers import Tracker
from purerl.runner.trackers.group import Group
from purerl.scale import hosts
from purerl.search import folder as store
from purerl.search import tracking
from purerl.search.executor import Executor
from purerl.search.folder import Restored
from purerl.search.protocol import Request, Search, Step
from purerl.storage import checkpoint, folders
from purerl.types import PyTree


class Options(NamedTuple):
    """How a search is carried out; of these only W and K change what is computed.

    Attributes:
        out: Folder to write, or None.
        lanes: W, as asked for or chosen.
        length: K, as asked for or chosen.
        lanes_asked: W as asked for; None where it was chosen.
        length_asked: K as asked for; None where it was chosen.
        checkpoint_seconds: Least time between checkpoints.
        extend: The folder may hold the same search of fewer environment steps.
        trackers: Trackers that are told of every step.
        progress: Show progress.
    """

    out: Path | None
    lanes: int
    length: int
    lanes_asked: int | None = None
    length_asked: int | None = None
    checkpoint_seconds: float = 30.0
    extend: bool = False
    trackers: Sequence[Tracker] = ()
    progress: bool = True

    @property
    def widths(self) -> dict[str, Any]:
        """Lanes and segments as a manifest has them."""
        return {
            "lanes": self.lanes,
            "lanes_asked": self.lanes_asked,
            "segment_updates": self.length,
            "segment_updates_asked": self.length_asked,
        }


class Finished(NamedTuple):
    """What is left of a search.

    Attributes:
        steps: The steps that it took.
        states: States of the members of the last one, on the host; None where the
            search was stopped before its end.
        numbers: Numbers about how it was run, by name.
    """

    steps: list[Step]
    states: PyTree | None
    numbers: dict[str, Any]


def drive(search: Search, options: Options) -> Finished:
    """Carry out a search, or what is missing of it.

    Args:
        search: What to train, and what to make of it.
        options: How it is carried out.

    Raises:
        ConfigError: the folder holds another search, or is damaged; nothing can be
            made of an outcome, as when every member diverged; there are several
            processes.
    """
    if hosts.count() > 1:
        raise ConfigError(
            f"a {search.kind} search runs in one process, here are {hosts.count()}: "
            "its members are compared after every request. Start one per host, with "
            "seeds and a folder of its own."
        )
    restored, out = Restored([], None), options.out
    if out is not None:
        stored = store.open_folder(out, search, options.widths, options.extend)
        options = options._replace(
            lanes=stored["lanes"], length=stored["segment_updates"]
        )
        note = folders.differences_of_versions(stored)
        if note:
            print(note, file=sys.stderr)
        restored = store.restore(out, search)
    return _Drive(search, options, restored).run()


class _Drive:
    """One call of `drive`: the pieces that its phases share."""

    def __init__(self, search: Search, options: Options, restored: Restored) -> None:
        from purerl.runner.progress import Reporter  # rich: only those who run pay it

        self.search, self.options = search, options
        self.steps, self.states = list(restored.steps), restored.states
        self.first = len(self.steps)
        self.executor = Executor(search.bound, options.lanes, options.length)
        self.group = Group(options.trackers)
        self.saved_at, self.saved_time = self.first, time.monotonic()
        self.reporter = Reporter(
            sum(search.steps),
            sum(search.steps[: self.first]),
            enabled=options.progress,
        )

    def run(self) -> Finished:
        self._begin_trackers()
        with self.group:
            request = self._ask()
            if request is None:
                self.reporter.say(f"the search in {self.options.out} had finished")
                finished = Finished(self.steps, self.states, {"trained_requests": 0})
            else:
                finished = self._train(request)
        tracking.close(self.group, self.options.out, finished.states is not None)
        return finished

    def _begin_trackers(self) -> None:
        """Open them, and tell what they lack of the steps that are done."""
        if not self.group:
            return
        said = self.reporter.tell_plain
        self.group.begin(tracking.describe(self.search, self.options.out), said)
        for sentence in self.group.where():
            self.reporter.say(sentence)
        for step in self.steps:
            tracking.log(self.group, self.search, step)

    def _ask(self) -> Request | None:
        state = self.steps[-1].after if self.steps else self.search.init()
        return self.search.ask(state)

    def _train(self, request: Request) -> Finished:
        """Carry out requests until the search has ended or somebody stops it."""
        for line in (self._banner(request), *self.search.remarks):
            self.reporter.say(line)
        next_request: Request | None = request
        with Interrupt() as interrupt:
            self._prepare(request)
            compiled = self.executor.compile_seconds
            self.reporter.say(f"compiled in {compiled:.1f} s")
            began = time.perf_counter()
            with self.reporter:
                while next_request is not None and not interrupt.asked:
                    self._step(next_request)
                    next_request = self._ask()
                    self._save(force=interrupt.asked or next_request is None)
            seconds = time.perf_counter() - began
        is_finished = next_request is None
        if not is_finished:
            self.reporter.tell(self._how_to_go_on())
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
        each = self.search.bound.plan.steps_per_update
        done = sum(self.search.steps[:number])

        def on_segment(members: int, updates: int, mean_return: float) -> None:
            nonlocal done
            done += members * updates * each
            self.reporter.update(done, mean_return)

        before = self.steps[-1].after if self.steps else self.search.init()
        outcome = self.executor.run(request, on_segment)
        after = self.search.tell(before, request, outcome)
        step = Step(request, outcome, before, after)
        if self.options.out is not None:
            store.save_step(self.options.out, number, step)
        self.steps.append(step)
        tracking.log(self.group, self.search, step)

    def _save(self, force: bool) -> None:
        """Save the states, now and then: what comes after is computed again."""
        out = self.options.out
        waited = time.monotonic() - self.saved_time >= self.options.checkpoint_seconds
        if out is None or not (force or waited) or len(self.steps) == self.saved_at:
            return
        self.saved_time = time.monotonic()
        try:
            store.save_states(out, len(self.steps), self.executor.states())
            self.saved_at = len(self.steps)
        except checkpoint.NotSavedError as error:
            if force:
                raise
            print(f"{error} The search goes on without it.", file=sys.stderr)

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
            f"stopped; what was done is in {out}. The same search with --out {out} "
            "(out=) goes on."
        )
