"""The phases of one sweep: open the folder, compile, train chunks, sum up."""

import math
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.execution.format import quoted, with_noun
from purerl.execution.members import Members
from purerl.runner.interrupt import Interrupt
from purerl.scale import hosts
from purerl.scale.devices import Worker, run_blocks
from purerl.storage import folders
from purerl.storage.lock import locked
from purerl.streams import say
from purerl.sweeps import planner, store
from purerl.sweeps.compiling import Compiler
from purerl.sweeps.execute import cut, train_chunk
from purerl.sweeps.identity import written
from purerl.sweeps.options import Options
from purerl.sweeps.plan import (
    CompiledGroup,
    GroupOutline,
    GroupPlan,
    KeptOutputs,
    Outline,
    SweepPlan,
    without,
    without_program,
)
from purerl.sweeps.result import SweepResult, write_summary
from purerl.sweeps.spec import describe
from purerl.sweeps.store import FolderStore, MemoryStore
from purerl.sweeps.tracking import TrackedMembers, Tracking


def broadcast_outline(outline: Outline) -> Outline:
    """Return the outline with the lanes and segments of process 0.

    A measured width, or that of a folder that is not shared, may differ elsewhere.
    """
    return outline.at(
        hosts.broadcast([(group.lanes, group.length) for group in outline.groups])
    )


class Left(NamedTuple):
    """The members of a group that have not finished.

    Attributes:
        group: The group with the members that have not finished.
        is_fixed: Whether its width must stay as it is, however little memory there is.
    """

    group: GroupOutline
    is_fixed: bool


class Task(NamedTuple):
    """A chunk that is to be trained.

    Attributes:
        group: The group of the members, with its compiled program.
        ids: Ids of the members.
        members: Keys and overrides of the members, `[M]`.
    """

    group: CompiledGroup
    ids: tuple[str, ...]
    members: Members

    @property
    def steps(self) -> int:
        """Environment steps of its members."""
        return len(self.ids) * self.group.group.steps_each


def _round_known(number: float) -> float:
    """Round bytes to a whole number; NaN where the platform does not report memory."""
    return round(number) if math.isfinite(number) else number


class Prepared(NamedTuple):
    """Groups that are compiled and can be trained now.

    Attributes:
        groups: The groups with their programs.
        tasks: The chunks of these groups, of all processes.
        compile_seconds: Seconds of compiling them.
    """

    groups: list[CompiledGroup]
    tasks: list[Task]
    compile_seconds: float


class SweepLoop:
    """One call of `sweep`: the pieces that its phases share.

    Args:
        outline: Points, groups and members, with the same lanes in every process.
        workers: Workers of this process.
        options: Options of how the sweep is carried out.
        progress: Whether to show the progress.
    """

    def __init__(
        self,
        outline: Outline,
        workers: list[Worker],
        options: Options,
        progress: bool,
    ) -> None:
        self.outline, self.workers, self.options = outline, workers, options
        self.folder = options.folder
        self.progress = progress and hosts.index() == 0
        self.source = MemoryStore()  # It is used where there is no folder.
        self.lock = threading.Lock()
        self.compiler = Compiler(workers, options.memory_limit, options.chunk_blocks)
        self.points = [written(point) for point in outline.design.points]
        members = TrackedMembers(
            outline.config, outline.design, outline.seeds, self.points, self.folder
        )
        self.tracking = Tracking(members, options.trackers)
        self.steps_before = self.done_steps = self.trained = 0
        self.is_stop_announced = False

    def run(self) -> SweepResult:
        """Train what is missing; every process ends with the same summary of all.

        Raises:
            ConfigError: see `purerl.sweep`.
        """
        with ExitStack() as stack:
            # The processes of one sweep may share a folder: the first one locks it.
            folder = self.folder if hosts.index() == 0 else None
            hosts.run_on_all(lambda: stack.enter_context(locked(folder)))
            # Every process: their folders may be several.
            stack.enter_context(folders.undone_if_empty(self.folder))
            finished = self._open()
            hosts.run_on_all(lambda: self.tracking.begin(say))
            stack.enter_context(self.tracking.group)
            result = self._run(finished)
            if hosts.index() == 0:
                write_summary(result)
            self.tracking.close(result.finished)
        return result

    def _run(self, finished: set[str]) -> SweepResult:
        """Compile and train what is missing, and sum up."""
        # Imported here so that only callers that run pay for importing rich.
        from purerl.runner.progress import Reporter
        from purerl.sweeps.console import end_line

        left = self._left(finished)
        is_complete = not left
        self.steps_before = self.outline.steps - sum(part.group.steps for part in left)
        self.done_steps = self.steps_before
        prepared = self._prepare(left)
        total = self.done_steps + self._own_steps(prepared, left)
        reporter = Reporter(total, self.done_steps, enabled=self.progress)
        if is_complete:
            reporter.info(f"all {self.outline.num_members:,} members had finished")
        before = planner.memory_in_use(self.workers)
        planned: list[GroupPlan] = []
        seconds = 0.0
        with (
            Interrupt(lambda: self.tracking.group.stop) as interrupt,
            planner.PeakMemory(self.workers) as peak,
        ):
            with reporter:
                while prepared.groups:
                    self._announce(prepared, left, reporter)
                    tasks = self._mine(prepared.tasks)
                    seconds += self._train(tasks, reporter, interrupt)
                    planned += [without_program(group) for group in prepared.groups]
                    left = left[len(prepared.groups) :]
                    if hosts.all_any(np.array([interrupt.asked]))[0]:
                        left = []
                    # Whoever holds these programs leaves no room for the next ones.
                    del tasks, prepared
                    prepared = self._prepare_more(left, interrupt, reporter)
        result = self._result(self._plan(planned), seconds, before, peak.bytes)
        if result.finished or not interrupt.asked:
            if not is_complete:
                reporter.info(end_line(result.summary))
        elif self.folder is not None:
            reporter.notify(
                f"stopped; finished chunks are in {self.folder}. The same sweep with "
                f"--out {quoted(self.folder)} (out=) trains what is missing."
            )
        else:
            reporter.notify(
                "stopped; finished chunks are in the result (no out folder)"
            )
        return result

    def _own_steps(self, prepared: Prepared, left: list[Left]) -> int:
        """Environment steps of this process; of groups that wait, its fair share."""
        waiting = left[len(prepared.groups) :]
        steps = sum(part.group.steps for part in waiting) // hosts.count()
        return steps + sum(task.steps for task in self._mine(prepared.tasks))

    def _announce(self, prepared: Prepared, left: list[Left], reporter: Any) -> None:
        """Show the plan of the groups that are trained next.

        Args:
            prepared: The groups.
            left: All groups that are to be trained, the prepared ones first.
            reporter: The reporter that shows the progress.
        """
        from purerl.sweeps.console import plan_lines, plan_table

        plan = self._plan(prepared.groups)
        done = self.outline.num_members - sum(part.group.num_members for part in left)
        reporter.table(plan_table(plan, self.outline, done))
        reporter.info(plan_lines(plan, prepared.compile_seconds))
        waiting = len(left) - len(prepared.groups)
        if waiting:
            reporter.info(
                f"{with_noun(waiting, 'more group')} will be compiled after these: a "
                "process has room for a limited number of programs"
            )

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
        stored = FolderStore(folder, verify=True)
        hosts.barrier()
        for path in stored.damaged:
            say(f"{path} is damaged: trained again")
        if hosts.index() == 0:  # no process writes before all have met again
            stored.rename_damaged()
        ids = [id for group in self.outline.groups for id in group.ids]
        known = hosts.all_any(np.array([id in stored for id in ids]))
        return {id for id, is_known in zip(ids, known, strict=True) if is_known}

    def _open_own(self, folder: Path) -> None:
        """Go on with the folder's lanes and segments, if any: they fix the bits."""
        options = self.options
        lanes = options.lanes if isinstance(options.lanes, int) else None
        length, keeps = options.segment_updates, options.keep_states
        spec = describe(self.outline, self.points, lanes, length, keeps)
        stored = store.open_folder(folder, spec, extend=options.extend)
        self.options = options._replace(keep_states=stored["keep_states"])
        known = [stored["groups"][group.group.name] for group in self.outline.groups]
        self.outline = self.outline.at(
            (group["lanes"], group["segment_updates"]) for group in known
        )
        note = folders.differences_of_versions(stored)
        if note and self.progress:
            say(note)

    def _left(self, finished: set[str]) -> list[Left]:
        """The groups with members that have not finished."""
        pairs = [(without(group, finished), group) for group in self.outline.groups]
        # A width that a person or finished members fix is not narrowed to fit memory.
        is_asked = isinstance(self.options.lanes, int)
        return [
            Left(group, is_asked or group.num_members < complete.num_members)
            for group, complete in pairs
            if group.num_members
        ]

    def _prepare(
        self, left: list[Left], interrupt: Interrupt | None = None
    ) -> Prepared:
        """Compile a program each for the first groups, and cut the chunks.

        Args:
            left: Groups with members that are to be trained, none or more.
            interrupt: The interrupt of the sweep; no group is begun once it is asked.
        """
        outlines = [part.group for part in left]
        fixed = [part.is_fixed for part in left]
        seconds = self.compiler.seconds
        groups = self.compiler.compile(
            outlines, fixed, lambda: interrupt is not None and interrupt.asked
        )
        tasks: list[Task] = []
        for before, group in zip(outlines, groups, strict=False):
            # The memory may ask for narrower lanes than the manifest says.
            is_narrower = group.lanes != before.lanes
            if self.folder is not None and is_narrower and hosts.index() == 0:
                store.set_lanes(self.folder, group.group.name, group.lanes)
            cuts = cut(group.members, group.ids, group.chunk_members)
            tasks += [Task(group, ids, members) for ids, members in cuts]
        return Prepared(groups, tasks, self.compiler.seconds - seconds)

    def _prepare_more(
        self, left: list[Left], interrupt: Interrupt, reporter: Any
    ) -> Prepared:
        """Prepare groups after others; without a folder, no error may lose these.

        Args:
            left: Groups with members that are to be trained, none or more.
            interrupt: The interrupt of the sweep.
            reporter: The reporter that shows the progress.

        Raises:
            ConfigError: a group does not fit the memory, and what was trained is kept
                by the folder.
        """
        try:
            return self._prepare(left, interrupt)
        except ConfigError as error:
            if self.folder is not None:
                raise
            reporter.notify(
                f"stopped: {error} The members that had finished are in the result; "
                "call purerl.sweep with out=FOLDER to train the others later."
            )
            return Prepared([], [], 0.0)

    def _plan(self, groups: Sequence[GroupPlan]) -> SweepPlan:
        """The plan of some groups."""
        outline, options = self.outline, self.options
        fields = outline.config, outline.design, outline.seeds, tuple(groups)
        keeps = KeptOutputs(self.folder is None, options.keep_states)
        return SweepPlan(*fields, len(self.workers), options.memory_limit, keeps)

    def _mine(self, tasks: list[Task]) -> list[Task]:
        """The chunks of this process."""
        return tasks[hosts.index() :: hosts.count()]

    def _train(self, tasks: list[Task], reporter: Any, interrupt: Interrupt) -> float:
        """Train some chunks; the seconds that it took, without waiting for others."""

        def train_one(worker: Worker, task: Task) -> None:
            if interrupt.asked:
                return
            group = task.group
            steps_per_update = group.group.bound.plan.steps_per_update

            def on_segment(members: int, updates: int, mean_return: float) -> None:
                if interrupt.insisted:
                    raise KeyboardInterrupt
                with self.lock:
                    self.done_steps += members * updates * steps_per_update
                    reporter.update(self.done_steps, mean_return)
                    if interrupt.asked and not self.is_stop_announced:
                        self.is_stop_announced = True
                        reporter.notify(
                            "finishing the chunks under way; another Ctrl-C stops at "
                            "once and loses them"
                        )

            arrays = train_chunk(
                group.program,
                worker,
                task.members,
                on_segment,
                keep_states=self.options.keep_states,
            )
            chunk = store.Chunk(task.ids, arrays)
            path = None
            if self.folder is not None:
                path = store.save(self.folder, group.group.name, chunk)
            with self.lock:
                self.trained += len(task.ids)
                if self.folder is None:
                    self.source.add(chunk)
                self.tracking.add(task.ids, path or chunk)

        def work() -> float:
            began = time.perf_counter()
            run_blocks(self.workers, tasks, train_one)
            return time.perf_counter() - began

        return hosts.run_on_all(work)

    def _result(
        self, plan: SweepPlan, seconds: float, before: float, peak: float
    ) -> SweepResult:
        """Return the members trained so far, and numbers about the run."""
        source = FolderStore(self.folder) if self.folder is not None else self.source
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
            "memory_planned": _round_known(
                before + plan.device_bytes() + plan.result_bytes()
            ),
            "memory_used": _round_known(peak),
            "memory_before": _round_known(before),
            "lanes": sorted({group.lanes for group in plan.groups}),
        }
        return SweepResult(
            self.outline.config,
            self.outline.design,
            self.outline.seeds,
            source,
            self.folder,
            numbers,
            self.points,
        )
