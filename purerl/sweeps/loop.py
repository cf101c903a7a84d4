"""purerl.sweep: axes and seeds in, labelled results out.

The phases of one sweep: open the folder, compile, train chunks, sum up. What a member
becomes depends on its key, overrides, lanes and segment length only, so that chunks may
be cut in any way.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.markup import escape

from purerl.config import ConfigError
from purerl.execution import format as text
from purerl.execution.cohort import Cohort, Job, rows_of, stream
from purerl.execution.curves import Curves
from purerl.execution.memory import worker_limit
from purerl.runner.manifest import dropped_evaluations, evaluations, notes
from purerl.runner.options import tool
from purerl.runner.session import Session
from purerl.scale import hosts
from purerl.scale.devices import make_workers
from purerl.storage import checkpoint
from purerl.sweeps import plan as plans
from purerl.sweeps import store
from purerl.sweeps.groups import Group, written
from purerl.sweeps.plan import SweepOptions
from purerl.sweeps.result import SweepResult, write_summary
from purerl.sweeps.store import MemberStore


class SweepLoop:
    """One call of `sweep`: the pieces that its phases share."""

    def __init__(self, asked: SweepOptions) -> None:
        self.options, self.folder = asked, asked.folder
        self.session = Session(asked)
        self.workers = make_workers()
        own = worker_limit(asked.memory_limit, self.workers)
        outline = plans.make_outline(asked, self.workers, own)
        # The least that any process has: all must cut the same chunks.
        limit = float(hosts.all_min(own))
        self._set_outline(replace(outline, memory_limit=limit))
        self.source = MemberStore()  # It is used where there is no folder.
        self.lock = threading.Lock()
        self.compiler = plans.Compiler(self.workers, limit)
        self.points = [written(point) for point in outline.design.points]
        self.told: SweepResult | None = None  # Tells trackers of its members.
        self.done_steps = self.trained = 0

    def _set_outline(self, outline: plans.SweepPlan) -> None:
        """Take the lanes and segments of process 0; a folder may say otherwise."""
        sizes = hosts.broadcast([(g.lanes, g.length) for g in outline.groups])
        self.outline = outline.at(sizes)

    def run(self) -> SweepResult:
        """Train what is missing; every process ends with the same summary of all.

        Raises:
            ConfigError: see `purerl.sweep`.
        """
        with self.session as session:
            finished = self._open(self.folder) if self.folder else set[str]()
            hosts.run_on_all(self._begin_trackers)
            result = self._run(finished)
            if hosts.index() == 0:
                write_summary(result)
            if self.told is not None:  # What other processes have trained, too.
                result.tell_folder(session.trackers)
            session.close(result.finished, result.told().files)
        return result

    def _begin_trackers(self) -> None:
        if self.session.trackers:
            self.told = self._result(self.source)
            self.session.begin(self.told.told)

    def _run(self, finished: set[str]) -> SweepResult:
        """Compile and train what is missing, and sum up."""
        session, reporter = self.session, self.session.reporter
        left = [plans.without(group, finished) for group in self.outline.groups]
        left = [group for group in left if group.num_members]
        is_complete, missing = not left, sum(group.steps for group in left)
        first = self.done_steps = self.outline.steps - missing
        groups = self._prepare(left)
        # Of several processes each trains its share.
        session.expect(first + missing // hosts.count(), first)
        if not reporter.enabled and hosts.index() == 0:
            for line in dropped_evaluations(group.group.bound for group in left):
                reporter.notify(line)
        if is_complete:
            reporter.info(f"all {self.outline.num_members:,} members had finished")
        seconds = 0.0
        lanes: set[int] = set()
        with session.interrupt, reporter:
            while groups:
                plan = replace(self.outline, groups=tuple(groups), options=self.options)
                done = self.outline.num_members - sum(g.num_members for g in left)
                compiled = self.compiler.last_seconds
                lines = plan_lines(plan, self.outline, done, compiled)
                reporter.info(escape(lines))
                if waiting := len(left) - len(groups):
                    reporter.info(f"{waiting} groups are compiled after these")
                seconds += self._train(groups)
                lanes |= {group.lanes for group in groups}
                left = left[len(groups) :]
                if hosts.all_any(np.array([session.is_stopped]))[0]:
                    left = []
                # Whoever holds these programs leaves no room for the next ones.
                del groups, plan
                groups = self._prepare(left)
        trained, steps = map(
            int, hosts.all_sum([self.trained, self.done_steps - first])
        )
        seconds = float(hosts.all_max(seconds))
        source = MemberStore.of(self.folder) if self.folder is not None else self.source
        numbers = {
            "members": self.outline.num_members,
            "trained_members": trained,
            "processes": hosts.count(),
            "groups": len(self.outline.groups),
            "compilations": self.compiler.compilations,
            "compile_seconds": round(self.compiler.seconds, 2),
            "train_seconds": round(seconds, 2),
            "env_steps": steps,
            "steps_per_second": round(steps / max(seconds, 1e-9)),
            "lanes": sorted(lanes),
        }
        result = self._result(source, numbers)
        if session.is_stopped and not result.finished:
            session.say_stopped()
        elif not is_complete:
            reporter.info(
                f"{text.with_noun(trained, 'member')}, "
                f"{text.format_count(steps)} steps in {text.format_duration(seconds)} "
                f"({numbers['steps_per_second']:,} steps/s), compiled "
                f"{text.with_noun(numbers['compilations'], 'program')} in "
                f"{self.compiler.seconds:.1f} s"
            )
        return result

    def _open(self, folder: Path) -> set[str]:
        """Open the folder; the members that any process has finished."""
        is_first = hosts.index() == 0
        hosts.run_on_all(lambda: self._open_own(folder) if is_first else None)
        # After the first: a shared folder is there by now, and is compared like any.
        hosts.run_on_all(lambda: None if is_first else self._open_own(folder))
        self._set_outline(self.outline)
        stored = MemberStore.of(folder, verify=True)
        hosts.barrier()
        for path in stored.damaged:
            text.say(f"{path} is damaged: trained again")
            if is_first:  # no process writes before all have met again
                path.rename(path.with_suffix(".damaged"))
        ids = [id for group in self.outline.groups for id in group.ids]
        known = hosts.all_any(np.array([id in stored for id in ids]))
        return {id for id, is_known in zip(ids, known, strict=True) if is_known}

    def _open_own(self, folder: Path) -> None:
        """Go on with the folder's lanes and segments, if any: they fix the bits."""
        spec = store.describe(self.outline, self.points, self.options)
        stored = store.open_folder(folder, spec, self.options.extend)
        known = [stored["groups"][group.group.name] for group in self.outline.groups]
        self.outline = self.outline.at(
            (group["lanes"], group["segment_updates"]) for group in known
        )
        self.session.compare_versions(stored)

    def _prepare(self, left: list[plans.GroupPlan]) -> list[plans.GroupPlan]:
        """Compile a program each for the first groups, none once it is interrupted."""
        groups = self.compiler.compile(left, lambda: self.session.is_stopped)
        for before, group in zip(left, groups, strict=False):
            # The memory may ask for narrower lanes than the manifest says.
            is_narrower = group.lanes != before.lanes
            if self.folder is not None and is_narrower and hosts.index() == 0:
                store.set_lanes(self.folder, group.group.name, group.lanes)
        return groups

    def _train(self, groups: list[plans.GroupPlan]) -> float:
        """Train some groups; the seconds that it took, without waiting for others."""
        session, jobs = self.session, list[Job]()
        for group in groups:
            assert group.program is not None
            chunk = group.lanes * group.chunk_blocks
            for rows in rows_of(group.num_members, chunk):
                ids = tuple(group.ids[rows[0] : rows[-1] + 1])
                members = partial(group.members.take, rows)
                jobs.append(Job(group.program, members, (group, ids)))

        def told(job: Job, members: int, updates: int, mean_return: float) -> None:
            if session.interrupt.insisted:
                raise KeyboardInterrupt
            with self.lock:
                steps = job.program.bound.plan.steps_per_update
                self.done_steps += members * updates * steps
                session.reporter.update(self.done_steps, mean_return)

        def work() -> float:
            began, own = time.perf_counter(), jobs[hosts.index() :: hosts.count()]
            is_stopped = lambda: session.is_stopped  # noqa: E731
            stream(own, self.workers, curves_of, self._keep, is_stopped, told)
            return time.perf_counter() - began

        return hosts.run_on_all(work)

    def _keep(self, job: Job, curves: Curves, cohort: Cohort) -> None:
        """Keep a chunk that has been trained, in the folder or in memory."""
        group, ids = job.key
        arrays = dict(curves.arrays)
        if self.options.keep_states:
            states = checkpoint.flatten(cohort.gather())
            arrays |= {store.STATE + path: leaf for path, leaf in states.items()}
        chunk: store.Chunk = arrays
        if self.folder is not None:
            chunk = store.save(self.folder, group.group.name, ids, arrays)
        with self.lock:
            self.trained += len(ids)
            if self.folder is None:
                self.source.add(ids, chunk)
            if self.told is not None:
                self.told.tell(self.session.trackers, ids, chunk)

    def _result(
        self, source: MemberStore, numbers: dict[str, Any] | None = None
    ) -> SweepResult:
        """The members trained so far, and numbers about the run."""
        about = self.options.config, self.outline.design, self.outline.seeds
        return SweepResult(*about, source, self.folder, numbers, self.points)


def curves_of(job: Job) -> Curves:
    """Return the reducer of a chunk's members: a row of metrics per segment."""
    return Curves(job.program.bound.plan, len(job.key[1]))


@tool(SweepOptions)
def sweep(asked: SweepOptions) -> SweepResult:
    """Train every point of some axes with every seed, in as few programs as possible.

    Points that differ in dynamic fields only are one program, and run in blocks of
    lanes over all devices; static fields (layer sizes, `num_envs`, `env`,
    `algorithm`) make a group each. With `out`, every finished chunk is a file: the
    same call after a kill trains what is missing, and the result is bitwise that of an
    uninterrupted one. Under `jax.distributed` every process trains its part.

    Raises:
        ConfigError: an axis or value that cannot be, a folder of another sweep (with
            what differs), memory that does not suffice; before anything is trained.
            A group that is compiled after others were trained raises it then.
    """
    if asked.folder is None and hosts.count() > 1:
        raise ConfigError(
            f"out: a sweep of {hosts.count()} processes needs a folder: each trains a "
            "part and writes its own files, and none holds all results; give out."
        )
    return SweepLoop(asked).run()


MOST_LINES = 40  # The number of groups that are listed.


def plan_lines(
    plan: plans.SweepPlan,
    sweep: plans.SweepPlan | None = None,
    done: int = 0,
    compile_seconds: float | None = None,
) -> str:
    """Return a plan in words: a line per group, the totals, notes on any group.

    Args:
        plan: What is to be trained.
        sweep: The whole sweep, where the plan is a part of it.
        done: Members that have finished.
        compile_seconds: What compilation took, where that is to be said.
    """
    outline, workers = sweep or plan, plan.num_workers
    title = (
        f"{text.with_noun(len(outline.design.points), 'point')} x "
        f"{text.with_noun(len(outline.seeds), 'seed')} = "
        f"{text.with_noun(outline.num_members, 'member')}"
    )
    lines = [f"{title}, {done:,} of them finished before" if done else title]
    lines += [
        f"  {group_label(group.group)}: "
        f"{text.with_noun(group.num_members, 'member')} of "
        f"{group.group.steps_each:,} steps, {text.with_noun(group.lanes, 'lane')}, "
        f"{text.with_noun(group.chunk_blocks, 'block')} a chunk, "
        f"{text.format_bytes(group.chunk_bytes() * workers)}, "
        f"{text.format_duration(group.seconds())}"
        for group in plan.groups[:MOST_LINES]
    ]
    if (more := len(plan.groups) - MOST_LINES) > 0:
        lines.append(f"  and {more:,} more groups")
    compiled = f"; compiled in {compile_seconds:.1f} s" if compile_seconds else ""
    lines.append(
        f"{text.with_noun(len(plan.groups), 'program')}; "
        f"{text.format_count(plan.steps)} environment steps; "
        f"{text.with_noun(workers, 'worker')}; memory for training "
        f"{text.format_bytes(plan.device_bytes())} of "
        f"{text.format_bytes(plan.memory_limit * workers)}; about "
        f"{text.format_duration(plan.seconds())} of training{compiled}"
    )
    lines += notes_of([planned.group for planned in plan.groups])
    return "\n".join(lines)


def notes_of(groups: Sequence[Group]) -> list[str]:
    """Return what a person should know of groups, and of which unless it is all."""
    said: dict[str, list[str]] = {}
    for group in groups:
        ends = [jax.tree.map(lambda x, i=end: x[i], group.overrides) for end in (0, -1)]
        lines = evaluations(group.bound), *notes(group.bound, ends)
        for line in dict.fromkeys(lines):
            said.setdefault(line, []).append(group_label(group))
    found = []
    for line, (first, *others) in said.items():
        more = f" and {text.with_noun(len(others), 'more group')}" if others else ""
        is_of_all = len(others) + 1 == len(groups)
        found.append(line if is_of_all else f"{first}{more}: {line}")
    return found


def group_label(group: Group) -> str:
    """Return what the points of a group share, in words."""
    parts = {
        name: type(value).__name__
        for name, value in group.overrides.items()
        if not isinstance(value, np.ndarray)
    }
    shared = group.static | parts
    return ", ".join(f"{n}={x}" for n, x in shared.items()) or "all"
