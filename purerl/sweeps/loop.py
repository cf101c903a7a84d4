"""purerl.sweep: axes and seeds in, labelled results out.

The phases of one sweep: open the folder, compile, train chunks, sum up. What a member
becomes depends on its key, overrides, lanes and segment length only, so that chunks may
be cut in any way.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

from purerl.config import ConfigError
from purerl.execution import format as text
from purerl.execution.cohort import Cohort, Job, rows_of, stream
from purerl.execution.curves import Curves
from purerl.execution.memory import peak_memory, worker_limit
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
from purerl.sweeps.result import (
    SweepResult,
    Telling,
    tracked_files,
    write_summary,
)
from purerl.sweeps.store import MemberStore


def broadcast_outline(outline: plans.SweepPlan) -> plans.SweepPlan:
    """Return the outline with the lanes and segments of process 0.

    A measured width, or that of a folder that is not shared, may differ elsewhere.
    """
    return outline.at(hosts.broadcast([(g.lanes, g.length) for g in outline.groups]))


class SweepLoop:
    """One call of `sweep`: the pieces that its phases share."""

    def __init__(self, asked: SweepOptions) -> None:
        self.options, self.folder = asked, asked.folder
        self.session = Session(asked)
        self.workers = make_workers()
        own = worker_limit(asked.memory_limit, self.workers)
        outline = broadcast_outline(plans.make_outline(asked, self.workers, own))
        # The least that any process has: all must cut the same chunks.
        limit = float(hosts.all_min(own))
        self.outline = replace(outline, memory_limit=limit)
        self.source = MemberStore()  # It is used where there is no folder.
        self.lock = threading.Lock()
        self.compiler = plans.Compiler(self.workers, limit, asked.chunk_blocks)
        self.points = [written(point) for point in outline.design.points]
        self.telling: Telling | None = None
        self.steps_before = self.done_steps = self.trained = 0
        self.is_stop_announced = False

    def run(self) -> SweepResult:
        """Train what is missing; every process ends with the same summary of all.

        Raises:
            ConfigError: see `purerl.sweep`.
        """
        with self.session as session:
            finished = self._open()
            hosts.run_on_all(self._begin_trackers)
            result = self._run(finished)
            if hosts.index() == 0:
                write_summary(result)
            if self.telling is not None:
                self.telling.add_folder(session.trackers)
            session.close(result.finished, tracked_files(result))
        return result

    def _begin_trackers(self) -> None:
        if self.session.trackers:
            self.telling = telling = Telling(self._result_with(self.source))
            self.session.begin(lambda: telling.run, telling.total)

    def _run(self, finished: set[str]) -> SweepResult:
        """Compile and train what is missing, and sum up."""
        session, reporter = self.session, self.session.reporter
        left = self._left(finished)
        is_complete = not left
        self.steps_before = self.outline.steps - sum(group.steps for group in left)
        self.done_steps = self.steps_before
        groups = self._prepare(left)
        # Of groups that wait, a process trains its fair share.
        share = sum(group.steps for group in left[len(groups) :]) // hosts.count()
        own = sum(
            len(ids) * group.group.steps_each
            for group, ids in (job.key for job in self._jobs(groups))
        )
        session.expect(self.done_steps + own + share, self.done_steps)
        if not reporter.enabled and hosts.index() == 0:
            for line in dropped_evaluations(group.group.bound for group in left):
                reporter.notify(line)
        if is_complete:
            reporter.info(f"all {self.outline.num_members:,} members had finished")
        before = peak_memory(self.workers)
        planned: list[plans.GroupPlan] = []
        seconds = 0.0
        with session.interrupt, reporter:
            while groups:
                plan = replace(self.outline, groups=tuple(groups), options=self.options)
                done = self.outline.num_members - sum(g.num_members for g in left)
                reporter.table(plan_table(plan, self.outline, done))
                reporter.info(plan_lines(plan, self.compiler.last_seconds))
                if waiting := len(left) - len(groups):
                    reporter.info(f"{waiting} groups are compiled after these")
                seconds += self._train(groups)
                planned += [replace(group, program=None) for group in groups]
                left = left[len(groups) :]
                if hosts.all_any(np.array([session.is_stopped]))[0]:
                    left = []
                # Whoever holds these programs leaves no room for the next ones.
                del groups, plan
                groups = self._prepare(left)
            is_stopped = session.is_stopped
        result = self._result(planned, seconds, before)
        if result.finished or not is_stopped:
            if not is_complete:
                reporter.info(end_line(result.summary))
        else:
            where = text.quoted(self.folder) if self.folder else "FOLDER"
            reporter.notify(f"stopped; the same sweep with --out {where} goes on")
        return result

    def _open(self) -> set[str]:
        """Open the folder; the members that any process has finished."""
        folder = self.folder
        if folder is None:
            return set()
        is_first = hosts.index() == 0
        hosts.run_on_all(lambda: self._open_own(folder) if is_first else None)
        # After the first: a shared folder is there by now, and is compared like any.
        hosts.run_on_all(lambda: None if is_first else self._open_own(folder))
        self.outline = broadcast_outline(self.outline)
        stored = MemberStore.of(folder, verify=True)
        hosts.barrier()
        for path in stored.damaged:
            text.say(f"{path} is damaged: trained again")
            if hosts.index() == 0:  # no process writes before all have met again
                path.rename(path.with_suffix(".damaged"))
        ids = [id for group in self.outline.groups for id in group.ids]
        known = hosts.all_any(np.array([id in stored for id in ids]))
        return {id for id, is_known in zip(ids, known, strict=True) if is_known}

    def _open_own(self, folder: Path) -> None:
        """Go on with the folder's lanes and segments, if any: they fix the bits."""
        self.options = self.options.going_on()
        spec = store.describe(self.outline, self.points, self.options)
        stored = store.open_folder(folder, spec, self.options.extend)
        known = [stored["groups"][group.group.name] for group in self.outline.groups]
        self.outline = self.outline.at(
            (group["lanes"], group["segment_updates"]) for group in known
        )
        self.session.compare_versions(stored)

    def _left(self, finished: set[str]) -> list[plans.GroupPlan]:
        """The groups with members that have not finished."""
        groups = [plans.without(group, finished) for group in self.outline.groups]
        return [group for group in groups if group.num_members]

    def _prepare(self, left: list[plans.GroupPlan]) -> list[plans.GroupPlan]:
        """Compile a program each for the first groups, none once it is interrupted."""
        groups = self.compiler.compile(left, lambda: self.session.is_stopped)
        for before, group in zip(left, groups, strict=False):
            # The memory may ask for narrower lanes than the manifest says.
            is_narrower = group.lanes != before.lanes
            if self.folder is not None and is_narrower and hosts.index() == 0:
                store.set_lanes(self.folder, group.group.name, group.lanes)
        return groups

    def _jobs(self, groups: list[plans.GroupPlan]) -> list[Job]:
        """The chunks that this process trains, each known by its group and its ids."""
        jobs = []
        for group in groups:
            assert group.program is not None
            for rows in rows_of(group.num_members, group.chunk_members):
                members = partial(group.members.take, rows)
                ids = tuple(group.ids[rows[0] : rows[-1] + 1])
                jobs.append(Job(group.program, members, (group, ids)))
        return jobs[hosts.index() :: hosts.count()]

    def _train(self, groups: list[plans.GroupPlan]) -> float:
        """Train some groups; the seconds that it took, without waiting for others."""
        jobs, session = self._jobs(groups), self.session

        def told(job: Job, members: int, updates: int, mean_return: float) -> None:
            if session.interrupt.insisted:
                raise KeyboardInterrupt
            with self.lock:
                steps = job.program.bound.plan.steps_per_update
                self.done_steps += members * updates * steps
                session.reporter.update(self.done_steps, mean_return)
                if session.is_stopped and not self.is_stop_announced:
                    self.is_stop_announced = True
                    session.reporter.notify(
                        "finishing the chunks under way; another Ctrl-C stops at "
                        "once and loses them"
                    )

        def work() -> float:
            began = time.perf_counter()
            is_stopped = lambda: session.is_stopped  # noqa: E731
            stream(jobs, self.workers, curves_of, self._keep, is_stopped, told)
            return time.perf_counter() - began

        return hosts.run_on_all(work)

    def _keep(self, job: Job, curves: Curves, cohort: Cohort) -> None:
        """Keep a chunk that has been trained, in the folder or in memory."""
        group, ids = job.key
        arrays = dict(curves.arrays)
        if self.options.keep_states:
            states = checkpoint.flatten(cohort.gather())
            arrays |= {f"state/{path}": leaf for path, leaf in states.items()}
        chunk, path = store.Chunk(ids, arrays), None
        if self.folder is not None:
            path = store.save(self.folder, group.group.name, chunk)
        with self.lock:
            self.trained += len(ids)
            if self.folder is None:
                self.source.add(ids, chunk)
            if self.telling is not None:
                self.telling.add(self.session.trackers, ids, path or chunk)

    def _result(
        self, planned: list[plans.GroupPlan], seconds: float, before: float
    ) -> SweepResult:
        """Return the members trained so far, and numbers about the run."""
        plan = replace(self.outline, groups=tuple(planned), options=self.options)
        source = MemberStore.of(self.folder) if self.folder is not None else self.source
        own_steps = self.done_steps - self.steps_before
        trained, steps = map(int, hosts.all_sum([self.trained, own_steps]))
        seconds = float(hosts.all_max(seconds))
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
            "memory_planned": before + plan.device_bytes(),
            "memory_used": peak_memory(self.workers),
            "memory_before": before,
            "lanes": sorted({group.lanes for group in plan.groups}),
        }
        return self._result_with(source, numbers)

    def _result_with(
        self, source: store.MemberStore, numbers: dict[str, Any] | None = None
    ) -> SweepResult:
        outline = self.outline
        about = outline.config, outline.design, outline.seeds
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


ROWS = 40  # The number of groups that are listed.
HEADERS = ("members", "steps\neach", "steps", "lanes", "chunk", "memory", "time")


def plan_table(
    plan: plans.SweepPlan, sweep: plans.SweepPlan | None = None, done: int | None = None
) -> Table:
    """Return a table with a row per group that is to be trained."""
    outline = sweep or plan
    if done is None:
        done = outline.num_members - plan.num_members
    points, seeds = len(outline.design.points), len(outline.seeds)
    title = (
        f"{text.with_noun(points, 'point')} x {text.with_noun(seeds, 'seed')} = "
        f"{text.with_noun(outline.num_members, 'member')}"
    )
    if done:
        title += f", {done:,} of them finished before"
    table = Table(title=title)
    table.add_column("group", overflow="fold")
    for header in HEADERS:
        table.add_column(header, justify="right", no_wrap=True)
    for group in plan.groups[:ROWS]:
        table.add_row(group_label(group.group), *_row(group, plan.num_workers))
    if len(plan.groups) > ROWS:
        table.add_row(f"and {len(plan.groups) - ROWS} more groups", *[""] * 7)
    return table


def group_label(group: Group) -> str:
    """Return what the points of a group share, in words."""
    parts = {
        name: type(value).__name__
        for name, value in group.overrides.items()
        if not isinstance(value, np.ndarray)
    }
    shared = group.static | parts
    return ", ".join(f"{n}={x}" for n, x in shared.items()) or "-"


def _row(group: plans.GroupPlan, num_workers: int) -> tuple[str, ...]:
    return (
        f"{group.num_members:,}",
        f"{group.group.steps_each:,}",
        text.format_count(group.steps),
        str(group.lanes),
        f"{min(group.chunk_members, group.num_members):,}",
        text.format_bytes(group.chunk_bytes() * num_workers),
        text.format_duration(group.seconds()),
    )


def plan_lines(plan: plans.SweepPlan, compile_seconds: float | None = None) -> str:
    """Return the totals of a plan in words."""
    memory = text.format_bytes(plan.device_bytes())
    limit = text.format_bytes(plan.memory_limit * plan.num_workers)
    parts = [
        text.with_noun(len(plan.groups), "program"),
        f"{text.format_count(plan.steps)} environment steps",
        text.with_noun(plan.num_workers, "worker"),
        f"memory for training {memory} of {limit}",
        f"about {text.format_duration(plan.seconds())} of training",
    ]
    if compile_seconds is not None:
        parts.append(f"compiled in {compile_seconds:.1f} s")
    return "\n".join(["; ".join(parts), *_notes(plan)])


def _notes(plan: plans.SweepPlan) -> list[str]:
    """Return the notes of all groups, once where they say the same."""
    lines: dict[str, None] = {}
    for group in (planned_group.group for planned_group in plan.groups):
        ends = [jax.tree.map(lambda x, i=end: x[i], group.overrides) for end in (0, -1)]
        said = [evaluations(group.bound), *notes(group.bound, ends)]
        lines.update(dict.fromkeys(said))
    return list(lines)


def end_line(summary: Mapping[str, Any]) -> str:
    """Return a line that says how a sweep went."""
    return (
        f"{text.with_noun(summary['trained_members'], 'member')}, "
        f"{text.format_count(summary['env_steps'])} steps in "
        f"{text.format_duration(summary['train_seconds'])} "
        f"({summary['steps_per_second']:,} steps/s), "
        f"compiled {text.with_noun(summary['compilations'], 'program')} in "
        f"{summary['compile_seconds']:.1f} s; used "
        f"{text.format_bytes(summary['memory_used'])} of memory"
    )


def lanes_table(rates: Sequence[plans.LaneRate]) -> Table:
    """Return a table of throughput over widths; the best one is bold."""
    best = max(rate.steps_per_second for rate in rates)
    table = Table(title="training throughput by lanes, all workers busy")
    for header in ("lanes", "steps/s", "of the best", "memory per worker", "compile"):
        table.add_column(header, justify="right")
    for rate in rates:
        share = rate.steps_per_second / best
        table.add_row(
            str(rate.lanes),
            f"{rate.steps_per_second:,.0f}",
            f"{share:.0%}",
            text.format_bytes(rate.memory),
            f"{rate.compile_seconds:.1f} s",
            style="bold" if share == 1 else "",
        )
    return table
