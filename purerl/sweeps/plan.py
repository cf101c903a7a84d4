"""A sweep's plan: groups, members, steps, lanes, chunks, memory, time; before it runs.

What a plan decides (lanes, updates per segment) fixes the results' bits, so a folder
keeps it; what it estimates (memory, time) is printed and compared with what was used.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import TrainConfig, check_mapping
from purerl.execution.cache import current_cache
from purerl.execution.dry_run import rate
from purerl.execution.members import Members, every
from purerl.execution.memory import (
    MemoryModel,
    fit_lanes,
    fitting_lanes,
    require_listing,
)
from purerl.execution.programs import Program, segment_length
from purerl.precision import in_32_bits
from purerl.runner.arguments import check_call, check_seeds, num_seeds
from purerl.scale.devices import (
    Worker,
    as_count,
    default_lanes,
    make_workers,
    widest_of_use,
)
from purerl.space.design import Design, expand, size_of
from purerl.space.fields import for_fields
from purerl.sweeps import lanes as lane_finder
from purerl.sweeps import planner
from purerl.sweeps.effects import check_axes, differing
from purerl.sweeps.groups import Group, group_points
from purerl.sweeps.identity import MemberIds

# Bytes of a number in the results on the host.
RESULT_BYTES = 4


@dataclass(frozen=True)
class GroupOutline:
    """One group as it is asked for: all that fixes the bits of its members.

    Attributes:
        group: The group's points and what they compile to.
        ids: Ids of the members that are to be trained.
        members: Keys and overrides of the members that are to be trained, `[M]`.
        lanes: The width of a block, W.
        length: Updates per segment, K.
    """

    group: Group
    ids: Sequence[str]
    members: Members
    lanes: int
    length: int

    @property
    def num_members(self) -> int:
        """Members that are to be trained."""
        return len(self.ids)

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return self.num_members * self.group.steps_each


@dataclass(frozen=True)
class GroupPlan(GroupOutline):
    """The plan of one group, at a width that fits the memory.

    Attributes:
        chunk_blocks: The number of blocks that a worker holds at a time.
        memory: A model of a worker's bytes.
        steps_per_second: Environment steps per second of all workers, as measured.
    """

    chunk_blocks: int
    memory: MemoryModel
    steps_per_second: float

    @property
    def chunk_members(self) -> int:
        """Members of a full chunk."""
        return self.lanes * self.chunk_blocks

    def chunk_bytes(self) -> float:
        """Return the bytes on the device of a worker while it trains a chunk."""
        return self.memory.chunk(self.lanes, self.chunk_blocks)

    def seconds(self) -> float:
        """Return the estimated seconds of training, without those of compilation."""
        # The lanes that only fill a block take their time, too.
        lanes = -(-self.num_members // self.lanes) * self.lanes
        return lanes * self.group.steps_each / self.steps_per_second


@dataclass(frozen=True)
class CompiledGroup(GroupPlan):
    """A group that can be trained.

    Attributes:
        program: The compiled program, at the group's width.
    """

    program: Program


class KeptOutputs(NamedTuple):
    """The arrays that are kept in host memory; those in the folder are not.

    Attributes:
        results: Whether metrics and evaluations are kept.
        states: Whether the trained agents are kept with the results.
    """

    results: bool
    states: bool


@dataclass(frozen=True)
class Outline:
    """The outline of a whole sweep, before memory and time are known.

    Attributes:
        config: The base config of every point.
        design: The axes and points.
        seeds: Seeds of every point.
        groups: Groups with members that are to be trained, one program each.
    """

    config: TrainConfig
    design: Design
    seeds: tuple[int, ...]
    groups: tuple[GroupOutline, ...]

    @property
    def num_members(self) -> int:
        """Members that are to be trained."""
        return sum(group.num_members for group in self.groups)

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return sum(group.steps for group in self.groups)

    def at(self, sizes: Iterable[tuple[int, int]]) -> "Outline":
        """Return the outline with the lanes and updates per segment of each group."""
        groups = tuple(
            replace(group, lanes=int(lanes), length=int(length))
            for group, (lanes, length) in zip(self.groups, sizes, strict=True)
        )
        return replace(self, groups=groups)


@dataclass(frozen=True)
class SweepPlan(Outline):
    """The plan of a whole sweep, or of the part that is left of it.

    Attributes:
        num_workers: The number of blocks that are trained side by side.
        memory_limit: Bytes that a worker may use.
        keeps: The kinds of results that stay in host memory.
    """

    groups: tuple[GroupPlan, ...]
    num_workers: int
    memory_limit: float
    keeps: KeptOutputs

    def device_bytes(self) -> float:
        """Return the bytes for training the largest group on this process's workers."""
        workers = self.num_workers
        return max((g.chunk_bytes() * workers for g in self.groups), default=0.0)

    def result_bytes(self) -> float:
        """Return the bytes of the results, as far as they are kept in memory."""
        if not self.keeps.results:
            return 0.0
        rows = sum(g.num_members * _row_bytes(g) for g in self.groups)
        states = sum(g.num_members * g.memory.state for g in self.groups)
        return float(rows + states if self.keeps.states else rows)

    def seconds(self) -> float:
        """Return the estimated training time in seconds."""
        return sum((group.seconds() for group in self.groups), 0.0)


@in_32_bits
def plan(
    config: TrainConfig,
    axes: Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] = 4,
    design: str = "grid",
    num_points: int | None = None,
    design_seed: int = 0,
    lanes: int | str | None = None,
    segment_updates: int | None = None,
    chunk_blocks: int | None = None,
    memory_limit: str | float | None = None,
    keep_states: bool = False,
    out: str | Path | None = None,
) -> SweepPlan:
    """Return what a whole sweep would do, without training.

    For every group two narrow programs are compiled; their memory, as the compiler
    counts it, gives the bytes per member, and so how many blocks of lanes a worker can
    hold. A segment of the width that was chosen is timed. With `out` results are not
    held in memory; what such a folder has already is not looked at.

    Args:
        config: The config of every point, where no axis says otherwise.
        axes: Values, or in a random design distributions, by name of the field.
        seeds: The number of seeds per point, which are then 0, 1, ..., or the seeds
            themselves.
        design: The kind of design: `grid`, `zip` or `random`.
        num_points: The number of points of a random design.
        design_seed: The seed of a random design's draws.
        lanes: The width of a block: a number, `"auto"` to measure it, or a default.
        segment_updates: Updates per compiled call; a default where not given.
        chunk_blocks: The number of blocks of a chunk; what fits where not given.
        memory_limit: Bytes for training, such as `"2GB"`; by default most that is free.
        keep_states: Whether the sweep would keep the final states.
        out: The folder that the sweep would write, if any.

    Raises:
        ConfigError: see `purerl.sweep`.
    """
    chunk_blocks = as_count("chunk_blocks", chunk_blocks)
    points = list_points(
        config, {} if axes is None else axes, seeds, design, num_points, design_seed
    )
    workers = make_workers()
    limit = planner.worker_limit(memory_limit, workers)
    outline = make_outline(
        config, points, seeds, segment_updates, lanes, workers, limit
    )
    check_groups(outline.groups)
    groups = tuple(
        _plan_group(group, workers, limit, isinstance(lanes, int), chunk_blocks)
        for group in outline.groups
    )
    keeps = KeptOutputs(out is None, keep_states)
    return SweepPlan(config, points, outline.seeds, groups, len(workers), limit, keeps)


def _plan_group(
    group: GroupOutline,
    workers: Sequence[Worker],
    limit: float,
    is_fixed: bool,
    chunk_blocks: int | None,
) -> GroupPlan:
    """The group with lanes and chunks that fit the memory, which narrow programs tell.

    Raises:
        ConfigError: they do not fit.
    """
    bound, members, length = group.group.bound, group.members, group.length
    memory = planner.probe(bound, members, length, workers[0])
    width = fit_lanes(memory, group.lanes, limit, is_fixed)
    blocks = chunk_blocks or planner.fit_blocks(
        memory, width, group.num_members, len(workers), limit
    )
    block = members.block(0, width)
    program = current_cache().get(bound, block, length, workers[:1])
    rate = measured_rate(program, members, workers)
    if chunk_blocks is None:
        blocks = timely_blocks(blocks, group, width, rate, len(workers))
    fields = group.group, group.ids, members, width, length
    return GroupPlan(*fields, blocks, memory, rate)


def timely_blocks(
    blocks: int, group: GroupOutline, lanes: int, rate: float, num_workers: int
) -> int:
    """Return the blocks of a chunk that does not take too long to lose.

    Chunks change no bits, and a folder is read by members: a sweep may go on where
    another rate is measured.

    Args:
        blocks: The number of blocks that fit the memory and spread the work.
        group: The group.
        lanes: The width of a block, W.
        rate: Environment steps per second of all workers.
        num_workers: The number of workers.
    """
    busy = min(num_workers, -(-group.num_members // lanes))
    seconds = lanes * group.group.steps_each * busy / rate
    return planner.blocks_in_time(blocks, seconds)


def measured_rate(
    program: Program, members: Members, workers: Sequence[Worker]
) -> float:
    """Return the steps per second of this process, from one segment of one block.

    Args:
        program: The compiled program of a group.
        members: Members of the group, which fill the workers or not.
        workers: Workers of this process; the first of them trains the segment.
    """
    block = members.block(0, program.lanes)
    busy = min(len(workers), -(-members.size // program.lanes))
    return rate(program, block, workers[:1], 0.0) * busy


def list_points(
    config: TrainConfig,
    axes: Mapping[str, Any],
    seeds: int | Sequence[int],
    design: str,
    num_points: int | None,
    design_seed: int,
) -> Design:
    """Return the points of a sweep, of which the host can hold a list.

    Args:
        config: The config of every point, where no axis says otherwise.
        axes: Values, or in a random design distributions, by name of the field.
        seeds: The number of seeds per point, or the seeds themselves.
        design: The kind of design: `grid`, `zip` or `random`.
        num_points: The number of points of a random design.
        design_seed: The seed of a random design's draws.

    Raises:
        ConfigError: no config, no mapping of axes, or see `expand`.
    """
    check_call("a sweep", config)
    check_mapping("axes", axes, '{"learning_rate": [1e-4, 1e-3]}')
    agents = size_of(axes, design, num_points) * num_seeds(seeds)
    require_listing(agents, config.total_timesteps)
    return expand(for_fields(config, axes), design, num_points, design_seed)


def check_groups(groups: Sequence[GroupOutline]) -> None:
    """Refuse axes of a sweep that change nothing.

    Args:
        groups: All groups of the sweep.

    Raises:
        ConfigError: see `check_axes`.
    """
    found = [group.group for group in groups]
    check_axes(found, differing(found))


def make_outline(
    config: TrainConfig,
    points: Design,
    seeds: int | Sequence[int],
    segment_updates: int | None,
    lanes: int | str | None,
    workers: Sequence[Worker],
    limit: float,
) -> Outline:
    """Return groups, members, lanes and segments of a sweep; `"auto"` measures lanes.

    Args:
        config: The config of every point, where no axis says otherwise.
        points: The points of the sweep, see `list_points`.
        seeds: The number of seeds per point, which are then 0, 1, ..., or the seeds
            themselves.
        segment_updates: Updates per compiled call; about a hundredth of the run where
            not given.
        lanes: The width of a block: a number, `"auto"`, or None for the default.
        workers: Workers of this process.
        limit: Bytes that a worker may use.
    """
    segment_updates = as_count("segment_updates", segment_updates)
    if lanes != "auto":
        lanes = as_count("lanes", lanes)  # type: ignore[type-var]
    numbers, groups = check_seeds(seeds), []
    for group in group_points(config, points.points):
        ids = MemberIds([points.points[number] for number in group.points], numbers)
        members = every(group.overrides, len(group.points), numbers)
        # The points of a grid and of a zip are different ones: see `expand`.
        if points.kind == "random":
            ids, members = _once_each(ids, members)
        bound = group.bound
        length = segment_length(bound, segment_updates)
        if lanes == "auto":
            width = lane_finder.find(bound, members, length, workers, limit)
            # It was measured with every worker busy; few members would fill no block.
            width = min(width, widest_of_use(members.size, workers))
        elif lanes is None:  # what is compiled then may be narrower
            width = default_lanes(members.size, workers)
            width = fitting_lanes(bound, width, width, length, workers, limit)
        else:
            width = int(lanes)
        groups.append(GroupOutline(group, ids, members, width, length))
    return Outline(config, points, numbers, tuple(groups))


def _once_each(ids: Sequence[str], members: Members) -> tuple[Sequence[str], Members]:
    """Members without repetitions: equal draws of a random design are one member."""
    first = {id: i for i, id in reversed(list(enumerate(ids)))}
    if len(first) == len(ids):
        return ids, members
    kept = sorted(first.values())
    return [ids[i] for i in kept], members.take(np.asarray(kept))


def without(group: GroupOutline, finished: set[str]) -> GroupOutline:
    """Return the group without members that have been trained already."""
    left = [i for i, id in enumerate(group.ids) if id not in finished]
    members = group.members.take(np.asarray(left, int))
    return replace(group, ids=tuple(group.ids[i] for i in left), members=members)


def without_program(group: GroupPlan) -> GroupPlan:
    """Return the plan of a group alone, which does not keep its program in memory."""
    names = [field.name for field in dataclasses.fields(GroupPlan)]
    return GroupPlan(**{name: getattr(group, name) for name in names})


def _row_bytes(group: GroupPlan) -> int:
    """Bytes of a member's results: rows of about a dozen metrics, and evaluations."""
    plan, config = group.group.bound.plan, group.group.bound.config
    rows = -(-plan.num_updates // group.length)
    evaluations = len(plan.evaluate_after) * (2 * config.eval_episodes + 1)
    return RESULT_BYTES * (rows * 12 + evaluations)
