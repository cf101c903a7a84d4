"""What every search over a population shares: marks, records, checkpoints, resume.

A search trains its members from mark to mark. At a mark a strategy looks at them and
decides who goes on, from which state, with which hyperparameters; what it saw and
decided is a record. Records and the last states are all that going on needs.
"""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.execution.cohort import Cohort, make_cohort
from purerl.execution.format import format_count, with_noun
from purerl.execution.members import Members
from purerl.population import store
from purerl.population.outcome import Outcome, train_until
from purerl.population.space import Space
from purerl.runner.interrupt import Interrupt
from purerl.runner.words import notes
from purerl.scale import hosts
from purerl.storage import checkpoint, folders
from purerl.train import make_algorithm
from purerl.types import Array, HostMetrics, PyTree

KEEP_CHECKPOINTS = 2


class Strategy(Protocol):
    """Who goes on, and how: what tells one search from another.

    Attributes:
        kind: in `store.KINDS`.
        marks: numbers of finished updates at which it decides, ascending; the last is
            the end of the run.
        options: what else fixes the result, as plain values.
    """

    kind: str
    marks: tuple[int, ...]
    options: dict[str, Any]

    def members(self) -> Members:
        """The members that train now."""
        ...

    def planned(self, mark: int) -> int:
        """How many members are to train up to a mark."""
        ...

    def evaluation_keys(self, mark: int) -> Array | None:
        """Keys of fresh evaluations at a mark, one per member; None for none."""
        ...

    def decide(self, mark: int, outcome: Outcome, cohort: Cohort) -> HostMetrics:
        """Look at the members at a mark, and change the cohort accordingly.

        Returns:
            The record: everything that `recall` and the result need.
        """
        ...

    def recall(self, records: list[HostMetrics]) -> None:
        """Be as after the last of these records."""
        ...


class Options(NamedTuple):
    """How a search is carried out; of these only W and K change what is computed.

    Attributes:
        out: folder, or None.
        lanes: W, as asked for or chosen.
        length: K, likewise.
        lanes_asked: None where W was chosen.
        length_asked: likewise.
        checkpoint_seconds: least time between checkpoints.
        progress: show it.
    """

    out: Path | None
    lanes: int
    length: int
    lanes_asked: int | None
    length_asked: int | None
    checkpoint_seconds: float
    progress: bool


class Finished(NamedTuple):
    """What is left of a search.

    Attributes:
        records: one per mark that was reached.
        states: of the members that went on at the last mark, on the host; None where
            the search was stopped before.
        numbers: about how it was run.
    """

    records: list[HostMetrics]
    states: PyTree | None
    numbers: dict[str, Any]


def search(
    strategy: Strategy, space: Space, seeds: tuple[int, ...], options: Options
) -> Finished:
    """Run a search, or what is missing of it.

    Raises:
        ConfigError: the folder holds another search, or is damaged, or every member
            diverged, or there are several processes.
    """
    if hosts.count() > 1:
        raise ConfigError(
            f"a population search runs in one process, here are {hosts.count()}: its "
            "members are compared after every round. Start one per host, with seeds "
            "and a folder of its own."
        )
    if options.out is not None:
        spec = _spec(strategy, space, seeds, options)
        stored = store.open_folder(options.out, spec)
        options = options._replace(
            lanes=stored["lanes"], length=stored["segment_updates"]
        )
        note = folders.differences_of_versions(stored)
        if note:
            print(note, file=sys.stderr)
    return _Run(strategy, space, options).run()


def _spec(
    strategy: Strategy, space: Space, seeds: tuple[int, ...], options: Options
) -> dict[str, Any]:
    return {
        "kind": strategy.kind,
        "format": store.FORMAT,
        "config": serialise.to_dict(space.config),
        "auto": space.bound.automatic,
        "axes": space.to_dict(),
        "options": strategy.options,
        "seeds": list(seeds),
        "lanes": options.lanes,
        "lanes_asked": options.lanes_asked,
        "segment_updates": options.length,
        "segment_updates_asked": options.length_asked,
        **folders.made_with(),
    }


def restore(folder: Path, space: Space, marks: tuple[int, ...]) -> tuple[int, Any]:
    """How many marks have been passed for good, and the states after the last one.

    States are None where there is no checkpoint yet.

    Raises:
        ConfigError: a damaged checkpoint, or one of another config.
    """
    place = folder / "checkpoints"
    if not checkpoint.steps(place):
        return 0, None
    update, flat = checkpoint.restore(place)
    init = make_algorithm(space.bound.config).init
    shapes = jax.eval_shape(init, jax.random.key(0))
    return marks.index(update) + 1, checkpoint.unflatten(flat, shapes, place)


class _Run:
    """One call of `search`: the pieces that its phases share."""

    def __init__(self, strategy: Strategy, space: Space, options: Options) -> None:
        self.strategy, self.space, self.options = strategy, space, options
        self.records: list[HostMetrics] = []
        self.saved_time = time.monotonic()
        steps = space.bound.plan.steps_per_update
        spans = np.diff(strategy.marks, prepend=0).tolist()
        self.planned = [
            strategy.planned(mark) * span * steps for mark, span in enumerate(spans)
        ]

    def run(self) -> Finished:
        from purerl.runner.progress import Reporter  # rich: only those who run pay it

        strategy, options, marks = self.strategy, self.options, self.strategy.marks
        done, states = 0, None
        if options.out is not None:
            done, states = restore(options.out, self.space, marks)
            self.records = store.load_records(options.out, done)
        strategy.recall(self.records)
        before = sum(self.planned[:done])
        reporter = Reporter(sum(self.planned), before, enabled=options.progress)
        if done == len(marks):
            reporter.say(f"the search in {options.out} had finished")
            return Finished(self.records, states, {"trained_marks": 0})
        reporter.say(self._banner())
        for line in notes(self.space.bound, self.space.corners()):
            reporter.say(line)
        with Interrupt() as interrupt:
            cohort = self._start(done, states)
            del states
            reporter.say(f"compiled in {cohort.compile_seconds:.1f} s")
            began = time.perf_counter()
            with reporter:
                while len(self.records) < len(marks) and not interrupt.asked:
                    self._next(cohort, reporter)
                    self._save(cohort, force=interrupt.asked)
        is_finished = len(self.records) == len(marks)
        if not is_finished:
            reporter.tell(self._how_to_go_on())
        seconds = time.perf_counter() - began
        numbers = {
            "trained_marks": len(self.records) - done,
            "compile_seconds": round(cohort.compile_seconds, 2),
            "train_seconds": round(seconds, 2),
            "lanes": options.lanes,
            "segment_updates": options.length,
        }
        return Finished(self.records, cohort.gather() if is_finished else None, numbers)

    def _start(self, done: int, states: PyTree | None) -> Cohort:
        """Compile for the whole population, as if nothing had been done yet."""
        strategy, options = self.strategy, self.options
        members = strategy.members()
        cohort = make_cohort(self.space.bound, members, options.lanes, options.length)
        if states is None:
            cohort.init()
        else:
            cohort.restore(states, strategy.marks[done - 1])
        return cohort

    def _next(self, cohort: Cohort, reporter: Any) -> None:
        """Train up to the next mark, decide, and keep the record."""
        number = len(self.records)
        steps = self.space.bound.plan.steps_per_update
        done = sum(self.planned[:number])

        def on_segment(members: int, updates: int, mean_return: float) -> None:
            nonlocal done
            done += members * updates * steps
            reporter.update(done, mean_return)

        keys = self.strategy.evaluation_keys(number)
        mark = self.strategy.marks[number]
        outcome = train_until(cohort, mark, on_segment, keys)
        record = self.strategy.decide(number, outcome, cohort)
        record = {name: np.asarray(value) for name, value in record.items()}
        if self.options.out is not None:
            store.save_record(self.options.out, number, record)
        self.records.append(record)

    def _save(self, cohort: Cohort, force: bool) -> None:
        """Save the states, now and then: what comes after is computed again."""
        if self.options.out is None:
            return
        waited = time.monotonic() - self.saved_time >= self.options.checkpoint_seconds
        is_last = len(self.records) == len(self.strategy.marks)
        if force or waited or is_last:
            folder = self.options.out / "checkpoints"
            self.saved_time = time.monotonic()
            try:
                checkpoint.save(
                    folder, cohort.update, cohort.gather(), KEEP_CHECKPOINTS
                )
            except checkpoint.NotSavedError as error:
                if force or is_last:
                    raise
                print(f"{error} The search goes on without it.", file=sys.stderr)

    def _banner(self) -> str:
        device = jax.local_devices()[0]
        bound = self.space.bound
        return (
            f"{self.strategy.kind}: {with_noun(self.strategy.planned(0), 'member')}, "
            f"{bound.env.name}, {format_count(sum(self.planned))} steps in all, "
            f"{with_noun(bound.plan.num_updates, 'update')} to the end, on "
            f"{device.device_kind} ({with_noun(self.options.lanes, 'lane')})"
        )

    def _how_to_go_on(self) -> str:
        if self.options.out is None:
            return "stopped; nothing was saved (no out folder)"
        return (
            f"stopped; what was done is in {self.options.out}. The same search with "
            f"--out {self.options.out} (out=) goes on."
        )
