"""The one driver of searches: ask, train, tell, keep; until the search has ended."""

import dataclasses
import time
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.execution.cohort import Cohort, make_cohort, train_until
from purerl.execution.curves import Curves
from purerl.execution.dry_run import Part, show
from purerl.execution.format import format_count, quoted, with_noun
from purerl.execution.memory import fitting_lanes
from purerl.execution.programs import current_cache
from purerl.metrics import HELD
from purerl.precision import in_32_bits
from purerl.report import plots
from purerl.report.shown import Shown, View
from purerl.runner.manifest import notes
from purerl.runner.options import Saved, option, tool
from purerl.runner.session import Session
from purerl.runner.trackers.group import begin_anew
from purerl.scale import hosts
from purerl.scale.devices import as_count, make_workers
from purerl.search import folder as store
from purerl.search import protocol
from purerl.types import PyTree


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Finished(Shown):
    """A search after its last step.

    Attributes:
        steps: The steps that it took.
        states: States of the members of the last one, on the host; None where the
            search was stopped before its end.
        numbers: Numbers about how it was run, by name.
    """

    steps: list[protocol.Step]
    states: PyTree | None
    numbers: dict[str, Any]

    def view(self) -> View:
        """Return what the search tells of itself."""
        state = "not finished" if self.states is None else "finished"
        done = with_noun(len(self.steps), "request")
        facts = [f"{state}: {done}" if self.numbers else done]  # None if read again.
        scores = [score_of(step.outcome) for step in self.steps]
        numbers = np.repeat(np.arange(len(scores)), list(map(len, scores)))
        table = {"request": numbers, "score": np.concatenate([[], *scores])}

        def draw(ax: Any = None) -> plots.Picture:
            return plots.request_scores(scores, ax)

        return View("an own search", facts, draw, lambda: table, "score")


def score_of(outcome: protocol.Outcome) -> np.ndarray:
    """Return scores `[N]` of a request: the search's, fresh episodes, or training's."""
    if outcome.score is not None:
        return outcome.score
    if outcome.fresh is None:
        return outcome.train["episode_return"][:, -1]
    return np.where(outcome.diverged, np.nan, outcome.fresh.episode_return)


@dataclasses.dataclass(frozen=True)
class DriveOptions(Saved):
    """The options of `purerl.drive`."""

    tool: ClassVar[str] = "drive"

    search: protocol.Search = option(
        dataclasses.MISSING, doc="The search to carry out."
    )
    _: dataclasses.KW_ONLY
    extend: bool = option(
        False,
        doc="Whether the folder may hold the same search of fewer environment steps.",
    )


@tool(DriveOptions)
def drive(asked: DriveOptions) -> Finished:
    """Carry out a search, or what is missing of it.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Ctrl-C finishes the request, saves, and says how to go on. Lanes
    and updates per segment are the search's own where they are not given.

    Raises:
        ConfigError: the folder holds another search, or is damaged; nothing can be
            made of an outcome, as when every member diverged; there are several
            processes.
    """
    search = asked.search
    protocol.check_search(search)
    hosts.require_one(
        f"a {search.kind} search",
        "Its members are compared after every request: start one per host, with seeds "
        "and a folder of its own.",
    )
    return _SearchLoop(asked).run()


def own_lanes(search: protocol.Search, length: int) -> int:
    """Return a search's own width, narrower where shapes say that it would not fit."""
    return fitting_lanes(
        search.bound, search.lanes, search.lanes, length, make_workers()
    )


class _SearchLoop:
    """One call of `drive`: the pieces that its phases share."""

    def __init__(self, asked: DriveOptions) -> None:
        self.search, self.out, self.asked = asked.search, asked.folder, asked
        self.session = Session(asked)
        self.length = asked.segment_updates or self.search.segment_updates
        self.lanes = asked.lanes or own_lanes(self.search, self.length)
        self.steps: list[protocol.Step] = []
        self.states: PyTree | None = None  # Those that a folder had.
        # Members that begin anew are trained by the program that there is.
        self.programs = current_cache()
        self.cohort: Cohort | None = None
        self.compile_seconds = 0.0

    def run(self) -> Finished:
        search, session = self.search, self.session
        with session:
            if self.out is not None:
                self._open(self.out)
            self.first = session.saved_at = len(self.steps)
            session.expect(sum(search.steps), sum(search.steps[: self.first]))
            session.begin(lambda: store.tracked(search, self.out))
            for count in range(self.first):
                store.tell(session.trackers, search, self.steps[: count + 1])
            request = self._ask()
            if request is None:
                session.reporter.info(f"the search in {self.out} had finished")
                finished = Finished(self.steps, self.states, {"trained_requests": 0})
            else:
                finished = self._train(request)
            is_finished = finished.states is not None
            session.close(is_finished, store.tracked_files(self.out))
        return finished

    def _open(self, folder: Path) -> None:
        """Go on from a folder, at the widths that hold there."""
        search, asked = self.search, self.asked
        widths = {
            "lanes": self.lanes,
            "segment_updates": self.length,
            "lanes_asked": asked.lanes,
            "segment_updates_asked": asked.segment_updates,
        }
        stored = store.open_folder(folder, search, widths, asked.extend)
        self.session.compare_versions(stored)
        is_extended = store.is_longer(stored, search)
        self.steps, self.states = store.restore(folder, search, is_extended)
        if is_extended:
            begin_anew(folder, sum(bool(search.rows(step)) for step in self.steps))
        if asked.extend:
            store.extend_folder(folder, search)
        self.lanes, self.length = stored["lanes"], stored["segment_updates"]

    def _ask(self) -> protocol.Request | None:
        state = self.steps[-1].after if self.steps else self.search.init()
        return self.search.ask(state)

    def _check(self, request: protocol.Request) -> None:
        before = self.steps[-1].request if self.steps else None
        protocol.check_request(request, before, self.search.bound.plan, self.length)

    def _train(self, request: protocol.Request) -> Finished:
        """Carry out requests until the search has ended or somebody stops it."""
        self._check(request)
        session, bound = self.session, self.search.bound
        members, left = request.members, sum(self.search.steps[self.first :])
        ends = [jax.tree.map(lambda x, i=i: x[i], members.overrides) for i in (0, -1)]
        banner = (
            f"{self.search.kind}: {with_noun(members.size, 'member')}, "
            f"{bound.env.name}, {format_count(left)} steps to train, "
            f"{with_noun(bound.plan.num_updates, 'update')} to the end, on "
            f"{jax.local_devices()[0].device_kind} ({with_noun(self.lanes, 'lane')})"
        )
        for line in (banner, *notes(bound, ends)):
            session.reporter.info(line)
        next_request: protocol.Request | None = request
        with session.interrupt:
            last = self.steps[-1].request if self.steps else request
            self.cohort = self._fresh(last)
            if self.steps:
                self.cohort.restore(self.states, last.until)
                self.states = None  # Their memory is needed.
            session.reporter.info(f"compiled in {self.compile_seconds:.1f} s")
            session.check_room(self.cohort.state_bytes())
            began = time.perf_counter()
            with session.reporter:
                while next_request is not None and not session.is_stopped:
                    self._step(next_request)
                    next_request = self._ask()
                    is_last = session.is_stopped or next_request is None
                    session.save(len(self.steps), self._save, is_last)
            seconds = time.perf_counter() - began
        is_finished = next_request is None
        if not is_finished:
            session.reporter.notify(
                f"stopped; what was done is in {self.out}. The same search with "
                f"--out {quoted(self.out)} (out=) goes on."
                if self.out
                else "stopped; nothing was saved (no out folder)"
            )
        numbers = {
            "trained_requests": len(self.steps) - self.first,
            "compile_seconds": round(self.compile_seconds, 2),
            "train_seconds": round(seconds, 2),
            "lanes": self.lanes,
            "segment_updates": self.length,
        }
        states = self.cohort.gather() if is_finished else None
        return Finished(self.steps, states, numbers)

    def _step(self, request: protocol.Request) -> None:
        """Train what is asked for, tell the search, keep the step."""
        self._check(request)
        search, number = self.search, len(self.steps)
        done = sum(search.steps[:number])

        def on_segment(members: int, updates: int, mean_return: float) -> None:
            nonlocal done
            done += members * updates * search.bound.plan.steps_per_update
            self.session.reporter.update(done, mean_return)

        before = self.steps[-1].after if self.steps else search.init()
        cohort, held = self._prepared(request), {}
        if self.steps and request.parents is not None:
            last = self.steps[-1].outcome.train
            known = [name for name in HELD if name in last]
            held = {name: last[name][request.parents, -1] for name in known}
        curves = Curves(search.bound.plan, cohort.size, held)
        train_until(cohort, request.until, curves, on_segment)
        keys, compiled = request.evaluation_keys, cohort.compile_seconds
        outcome = protocol.Outcome(
            train=curves.train,
            evaluation=curves.evaluation,
            diverged_at=curves.diverged_at,
            keys=cohort.key_data(),
            fresh=None if keys is None else cohort.evaluate(keys),
        )
        self.compile_seconds += cohort.compile_seconds - compiled
        if search.score is not None:
            outcome = outcome._replace(score=search.score(outcome))
        after = search.tell(before, request, outcome)
        step = protocol.Step(request, outcome, before, after)
        if self.out is not None:
            store.save_step(self.out, number, step)
        self.steps.append(step)
        store.tell(self.session.trackers, search, self.steps)

    def _fresh(self, request: protocol.Request) -> Cohort:
        self.cohort = None  # Its memory is needed for the next one.
        members, sizes = request.members, (self.lanes, self.length)
        cohort = make_cohort(self.search.bound, members, *sizes, cache=self.programs)
        self.compile_seconds += cohort.compile_seconds
        return cohort

    def _prepared(self, request: protocol.Request) -> Cohort:
        """The cohort with the members of a request, as they begin."""
        assert self.cohort is not None
        parents = request.parents
        if parents is None:
            if self.cohort.update > 0:
                self.cohort = self._fresh(request)
            self.cohort.init()
            return self.cohort
        if request.is_copy is not None:
            self.cohort.copy(parents, request.members.keys, request.is_copy)
        elif len(parents) < self.cohort.size:
            self.cohort.keep(parents)
        self.cohort.set_overrides(request.members.overrides)
        return self.cohort

    def _save(self) -> None:
        assert self.out is not None and self.cohort is not None
        store.save_states(self.out, len(self.steps), self.cohort.gather())


@in_32_bits
def dry_run(
    search: protocol.Search,
    *,
    lanes: int | None = None,
    segment_updates: int | None = None,
) -> None:
    """Print what a search would cost here, and train nothing of it.

    A block of the members that it asks for first is compiled and timed for half a
    second. The environment steps are those that it plans (`search.steps`), without
    fresh evaluations. Nothing is written, and no folder is read.

    Args:
        search: The search, as `purerl.drive` takes it.
        lanes: The width of a block, W; the search's own where not given.
        segment_updates: The number of updates of one compiled call, K; the search's own
            where not given.

    Raises:
        ConfigError: the search cannot be carried out as it stands, or an agent cannot
            fit the memory.
    """
    lanes = as_count("lanes", lanes)
    segment_updates = as_count("segment_updates", segment_updates)
    protocol.check_search(search)
    length = segment_updates or search.segment_updates
    request = search.ask(search.init())
    if request is None:
        raise ConfigError(
            f"the {search.kind} search asks for nothing: ask must return a request in "
            "the state that init gives."
        )
    protocol.check_request(request, None, search.bound.plan, length)
    members = request.members
    part = Part(search.bound, members.size, sum(search.steps), members)
    note = "; fresh evaluations that it asks for take more"
    show([part], lanes or own_lanes(search, length), length, note)
