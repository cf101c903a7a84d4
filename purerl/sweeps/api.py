"""purerl.sweep: axes and seeds in, labelled results out."""

import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest
from purerl.runner.interrupt import Interrupt
from purerl.runner.programs import Executables, Members
from purerl.runner.trackers import Tracker, read_trackers
from purerl.runner.trackers.points import dataset_points, track_points
from purerl.scale import hosts
from purerl.scale.devices import (
    Worker,
    check_count,
    make_workers,
    num_cores,
    run_blocks,
)
from purerl.sweeps import planner, store
from purerl.sweeps.execute import cut, train_chunk
from purerl.sweeps.plan import (
    GroupPlan,
    SweepPlan,
    choose_lanes,
    fit,
    make_outline,
    without,
    worker_limit,
)
from purerl.sweeps.result import Kept, SweepResult


def sweep(
    config: TrainConfig,
    axes: Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    design: str = "grid",
    num_points: int | None = None,
    design_seed: int = 0,
    extend: bool = False,
    lanes: int | str | None = None,
    segment_updates: int | None = None,
    chunk_blocks: int | None = None,
    memory_limit: str | float | None = None,
    keep_states: bool = False,
    trackers: Sequence[str | Tracker] = (),
    progress: bool = True,
) -> SweepResult:
    """Train every point of some axes with every seed, in as few programs as possible.

    Points that differ in dynamic fields only are one program, and run in blocks of
    lanes over all devices; static fields (layer sizes, `num_envs`, `env`,
    `algorithm`) make a group each. With `out`, every finished chunk is a file: the
    same call after a kill trains what is missing, and the result is bitwise that of an
    uninterrupted one. Under `jax.distributed` every process trains its part.

    Args:
        config: of every point, where no axis says otherwise.
        axes: (dotted) name of a field -> values, or in a random design a distribution
            (`purerl.uniform`, `purerl.loguniform`, `purerl.choice`). `algorithm` is a
            field too: what the other algorithm has in common is carried over.
        seeds: per point: how many (0, 1, ...), or which.
        out: folder to write; results stay in memory without one.
        design: `grid`, `zip` or `random`.
        num_points: of a random design.
        design_seed: of its draws.
        extend: `out` may hold a sweep of fewer points or seeds; the missing ones are
            trained.
        lanes: width of a block, part of what fixes the bits: a number, `"auto"` to
            measure it (see `purerl.find_lanes`), or a default by the population's size.
        segment_updates: updates per compiled call; likewise. About a hundredth of the
            run where not given.
        chunk_blocks: blocks that a worker holds, and a file keeps; what fits the
            memory where not given. It changes no bit.
        memory_limit: bytes for training, such as `"2GB"`; most of what is free where
            not given.
        keep_states: also keep the final states, to act with them or go on.
        trackers: where to write the finished members, a nested run each: names
            (`mlflow`, `tensorboard`, `wandb`) or trackers (see `purerl.make_tracker`).
        progress: print the plan and show a progress bar.

    Raises:
        ConfigError: an axis or value that cannot be, a folder of another sweep (with
            what differs), memory that does not suffice; before anything is trained.
    """
    check_count("chunk_blocks", chunk_blocks)
    read = read_trackers(trackers)
    if isinstance(lanes, str) and lanes != "auto":
        raise ConfigError(f"lanes must be a number or 'auto', got {lanes!r}.")
    outline = make_outline(
        config, axes or {}, seeds, design, num_points, design_seed, segment_updates
    )
    workers = make_workers()
    limit = worker_limit(memory_limit, workers)
    groups = tuple(choose_lanes(g, lanes, workers, limit) for g in outline.groups)
    # The least that any process has: all must cut the same chunks.
    limit = float(hosts.min_of(limit))
    outline = outline._replace(groups=_agreed(groups), memory_limit=limit)
    folder = Path(out) if out is not None else None
    options = _Options(
        folder, lanes, segment_updates, chunk_blocks, keep_states, extend
    )
    result = _Sweep(outline, workers, options, progress).run()
    if result.finished and hosts.index() == 0:
        _track(result, read)
    return result


def _track(result: SweepResult, trackers: Sequence[Tracker]) -> None:
    """Write a finished sweep into trackers; what was trained is safe by now."""
    config = serialise.to_dict(result.config)
    name = result.out.name if result.out else f"sweep-{config['env']}"
    for tracker in trackers:
        try:
            points = dataset_points(result.dataset)
            track_points(tracker, points, name=name, config=config, folder=result.out)
        except ConfigError:
            raise
        except Exception as error:
            print(
                f"tracker {tracker.name} failed ({error}); the results are not touched",
                file=sys.stderr,
            )


class _Options(NamedTuple):
    folder: Path | None
    lanes: int | str | None
    segment_updates: int | None
    chunk_blocks: int | None
    keep_states: bool
    extend: bool


def _agreed(groups: tuple[GroupPlan, ...]) -> tuple[GroupPlan, ...]:
    """The groups with the lanes and segments of process 0.

    A measured width, or that of a folder that is not shared, may differ elsewhere.
    """
    first = hosts.from_first([(group.lanes, group.length) for group in groups])
    return tuple(
        group._replace(lanes=int(lanes), length=int(length))
        for group, (lanes, length) in zip(groups, first, strict=True)
    )


class _Task(NamedTuple):
    """A chunk that is to be trained."""

    group: GroupPlan
    ids: tuple[str, ...]
    members: Members

    @property
    def steps(self) -> int:
        """Environment steps of its members."""
        return len(self.ids) * self.group.group.steps_each


def _whole(number: float) -> float:
    """Bytes as a whole number, or NaN: not every system says them."""
    return round(number) if math.isfinite(number) else number


class _Sweep:
    """One call of `sweep`: the pieces that its phases share."""

    def __init__(
        self,
        outline: SweepPlan,
        workers: list[Worker],
        options: _Options,
        progress: bool,
    ) -> None:
        self.outline, self.workers, self.options = outline, workers, options
        self.folder = options.folder
        self.progress = progress and hosts.index() == 0
        self.source: store.Index | Kept = Kept()
        self.lock = threading.Lock()
        self.done_steps, self.told = 0, False
        self.compile_seconds, self.compilations = 0.0, 0
        self.num_workers = int(hosts.sum_of(np.array(len(workers))))

    def run(self) -> SweepResult:
        from purerl.runner.progress import Reporter  # rich: only those who run pay it
        from purerl.sweeps import words

        finished = self._open()
        began = time.perf_counter()
        plan, tasks = self._prepare(finished)
        self.compile_seconds = time.perf_counter() - began
        self.done_steps = self.outline.steps - plan.steps
        mine = self._mine(tasks)
        total = self.done_steps + sum(task.steps for task in mine)
        reporter = Reporter(total, self.done_steps, enabled=self.progress)
        if tasks:
            reporter.show(words.plan_table(plan, self.outline))
            reporter.say(words.plan_lines(plan, self.compile_seconds))
        else:
            reporter.say(f"all {self.outline.num_members:,} members had finished")
        before = planner.memory_in_use(self.workers)
        with Interrupt() as interrupt, planner.PeakMemory(self.workers) as peak:
            with reporter:
                seconds = self._train(mine, reporter, interrupt)
        result = self._result(plan, seconds, before, peak.bytes)
        if not interrupt.asked:
            if tasks:
                reporter.say(words.end_line(result.summary))
        elif self.folder is not None:
            reporter.tell(
                f"stopped; finished chunks are in {self.folder}. Run the same sweep "
                "again to train what is missing."
            )
        else:
            reporter.tell("stopped; finished chunks are in the result (no out folder)")
        return result

    def _open(self) -> set[str]:
        """Open the folder; the members that any process has finished."""
        if self.folder is None:
            return set()
        is_first = hosts.index() == 0
        hosts.together(lambda: self._open_own() if is_first else None)
        hosts.together(lambda: None if is_first else self._open_after_first())
        groups = _agreed(self.outline.groups)
        self.outline = self.outline._replace(groups=groups)
        index = store.Index(self.folder)
        hosts.wait("purerl sweep index")
        for path in index.damaged:
            print(f"{path} is damaged: trained again", file=sys.stderr)
        if hosts.index() == 0:
            index.set_damaged_aside()
        ids = [id for group in self.outline.groups for id in group.ids]
        known = hosts.any_of(np.array([id in index for id in ids]))
        return {id for id, is_known in zip(ids, known, strict=True) if is_known}

    def _open_own(self) -> None:
        assert self.folder is not None
        spec, extend = self._spec(), self.options.extend
        self._take_over(store.open_folder(self.folder, spec, extend=extend))

    def _open_after_first(self) -> None:
        assert self.folder is not None
        if (self.folder / "manifest.json").exists():
            self._take_over(store.load(self.folder))
        else:  # the folder is not shared: this process has its own
            self._open_own()

    def _spec(self) -> dict[str, Any]:
        """What the manifest says of this sweep."""
        outline, options = self.outline, self.options
        device = jax.local_devices()[0]
        asked = options.lanes if isinstance(options.lanes, int) else None
        return {
            "kind": "sweep",
            "format": store.FORMAT,
            "config": serialise.to_dict(outline.config),
            "design": outline.design.kind,
            "axes": list(outline.design.names),
            "shape": list(outline.design.shape),
            "points": [
                {name: serialise.plain(value, name) for name, value in point.items()}
                for point in outline.design.points
            ],
            "seeds": list(outline.seeds),
            "groups": {
                group.group.name: {
                    "lanes": group.lanes,
                    "lanes_asked": asked,
                    "segment_updates": group.length,
                    "segment_updates_asked": options.segment_updates,
                }
                for group in outline.groups
            },
            "device": f"{device.platform} {device.device_kind}",
            "versions": manifest.versions(),
        }

    def _take_over(self, stored: dict[str, Any]) -> None:
        """Go on with the folder's lanes and segments: they fix the bits."""
        groups = []
        for group in self.outline.groups:
            known = stored["groups"][group.group.name]
            groups.append(
                group._replace(lanes=known["lanes"], length=known["segment_updates"])
            )
        self.outline = self.outline._replace(groups=tuple(groups))
        note = manifest.warn_other_versions(stored)
        if note and self.progress:
            print(note, file=sys.stderr)

    def _prepare(self, finished: set[str]) -> tuple[SweepPlan, list[_Task]]:
        """Compile a program per group with missing members, and cut the chunks."""
        pairs = [(without(group, finished), group) for group in self.outline.groups]
        left = [group for group, _ in pairs if group.num_members]
        # A width that a person or finished members fix is not narrowed to fit memory.
        fixed = [
            self.options.lanes is not None or group.num_members < whole.num_members
            for group, whole in pairs
            if group.num_members
        ]
        built = hosts.together(lambda: self._compiled_all(left, fixed))
        tasks: list[_Task] = []
        groups = []
        for before, group in zip(left, self._alike(built), strict=True):
            if self.folder is not None and group.lanes != before.lanes:
                self._record_lanes(group)
            groups.append(self._timed(group))
            cuts = cut(group.members, group.ids, group.chunk_members)
            tasks += [_Task(group, ids, members) for ids, members in cuts]
        return self.outline._replace(groups=tuple(groups)), tasks

    def _compiled_all(
        self, groups: list[GroupPlan], fixed: list[bool]
    ) -> list[GroupPlan]:
        with ThreadPoolExecutor(num_cores()) as pool:
            return list(pool.map(self._compiled, groups, fixed))

    def _alike(self, groups: list[GroupPlan]) -> list[GroupPlan]:
        """The groups with lanes and chunks that fit the memory of every process."""
        if not groups:
            return []
        sizes = hosts.min_of([(group.lanes, group.chunk_blocks) for group in groups])
        found = []
        for group, (lanes, blocks) in zip(groups, sizes, strict=True):
            if lanes != group.lanes:
                group = self._compiled(group._replace(lanes=int(lanes)), is_fixed=True)
            found.append(group._replace(chunk_blocks=int(blocks)))
        return found

    def _compiled(self, group: GroupPlan, is_fixed: bool) -> GroupPlan:
        bound, limit = group.group.bound, self.outline.memory_limit
        while True:
            block = group.members.block(0, group.lanes)
            programs = Executables(bound, block, group.length, self.workers)
            with self.lock:  # groups are compiled side by side
                self.compilations += 1
            memory = planner.model_of(programs.memory(), group.lanes)
            fitted = fit(
                group,
                memory,
                limit,
                self.num_workers,
                is_fixed=is_fixed,
                chunk_blocks=self.options.chunk_blocks,
            )
            if fitted.lanes == group.lanes:
                return fitted._replace(executables=programs)
            group = fitted

    def _timed(self, group: GroupPlan) -> GroupPlan:
        """The group with its rate, from one segment of one block."""
        assert group.executables is not None
        block = group.members.block(0, group.lanes)
        rate = planner.rate(
            group.group.bound, group.executables, block, self.workers[:1], 0.0
        )
        workers = min(len(self.workers), -(-group.num_members // group.lanes))
        return group._replace(steps_per_second=rate * workers * hosts.count())

    def _record_lanes(self, group: GroupPlan) -> None:
        """The memory asked for narrower lanes than the manifest says."""
        assert self.folder is not None
        if hosts.index() == 0:
            store.set_lanes(self.folder, group.group.name, group.lanes)

    def _mine(self, tasks: list[_Task]) -> list[_Task]:
        """The chunks of this process."""
        return tasks[hosts.index() :: hosts.count()]

    def _train(self, tasks: list[_Task], reporter: Any, interrupt: Interrupt) -> float:
        """Train some chunks; the seconds that it took, without waiting for others."""

        def one(worker: Worker, task: _Task) -> None:
            if interrupt.asked:
                return
            group = task.group
            assert group.executables is not None
            plan = group.group.bound.plan

            def on_segment(members: int, updates: int, mean_return: float) -> None:
                if interrupt.insisted:
                    raise KeyboardInterrupt
                with self.lock:
                    self.done_steps += members * updates * plan.steps_per_update
                    reporter.update(self.done_steps, mean_return)
                    if interrupt.asked and not self.told:
                        self.told = True
                        reporter.tell(
                            "finishing the chunks under way; Ctrl-C again stops at "
                            "once and loses them"
                        )

            arrays = train_chunk(
                group.executables,
                worker.device,
                task.members,
                plan,
                on_segment,
                keep_states=self.options.keep_states,
            )
            chunk = store.Chunk(task.ids, arrays)
            if self.folder is not None:
                store.save(self.folder, group.group.name, chunk)
            else:
                assert isinstance(self.source, Kept)
                with self.lock:
                    self.source.add(chunk)

        def work() -> float:
            began = time.perf_counter()
            run_blocks(self.workers, tasks, one)
            return time.perf_counter() - began

        return hosts.together(work)

    def _result(
        self, plan: SweepPlan, seconds: float, before: float, peak: float
    ) -> SweepResult:
        source = store.Index(self.folder) if self.folder is not None else self.source
        trained = self.done_steps - (self.outline.steps - plan.steps)
        finished = sum(id in source for group in plan.groups for id in group.ids)
        numbers = {
            "members": self.outline.num_members,
            "trained_members": finished,
            "groups": len(self.outline.groups),
            "compilations": self.compilations,
            "compile_seconds": round(self.compile_seconds, 2),
            "train_seconds": round(seconds, 2),
            "env_steps": trained,
            "steps_per_second": round(trained / max(seconds, 1e-9)),
            "memory_planned": _whole(
                before + plan.device_bytes() + plan.result_bytes()
            ),
            "memory_used": _whole(peak),
            "memory_before": _whole(before),
            "lanes": sorted({group.lanes for group in plan.groups}),
        }
        return SweepResult(
            self.outline.config,
            self.outline.design,
            self.outline.seeds,
            source,
            self.folder,
            numbers,
        )
