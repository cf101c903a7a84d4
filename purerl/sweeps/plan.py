"""A sweep's plan: groups, members, steps, lanes, chunks, memory, time; before it runs.

What a plan decides (lanes, updates per segment) fixes the results' bits, so a folder
keeps it; what it estimates (memory, time) is printed and compared with what was used.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.runner.options import tool
from purerl.scale.devices import (
    Worker,
    default_lanes,
    make_workers,
    widest_of_use,
)
from purerl.space.design import Design, expand, size_of
from purerl.space.points import for_fields
from purerl.sweeps import planner
from purerl.sweeps import planner as lane_finder
from purerl.sweeps.effects import check_axes, differing
from purerl.sweeps.groups import Group, MemberIds, group_points
from purerl.sweeps.options import SweepOptions

# Bytes of a number in the results on the host.
RESULT_BYTES = 4
NOT_KNOWN = MemoryModel(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class GroupPlan:
    """The plan of one group; what memory allows is known after it was compiled.

    Attributes:
        group: The group's points and what they compile to.
        ids: Ids of the members that are to be trained.
        members: Keys and overrides of the members that are to be trained, `[M]`.
        lanes: The width of a block, W.
        length: Updates per segment, K.
        is_fixed: Whether the width must stay as it is, however little memory there is.
        chunk_blocks: The number of blocks that a worker holds at a time.
        memory: A model of a worker's bytes.
        steps_per_second: Environment steps per second of all workers, as measured.
        program: The compiled program, while the group is trained.
    """

    group: Group
    ids: Sequence[str]
    members: Members
    lanes: int
    length: int
    is_fixed: bool = False
    chunk_blocks: int = 0
    memory: MemoryModel = NOT_KNOWN
    steps_per_second: float = math.nan
    program: Program | None = None

    @property
    def num_members(self) -> int:
        """Members that are to be trained."""
        return len(self.ids)

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return self.num_members * self.group.steps_each

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
class SweepPlan:
    """The plan of a whole sweep, or of the part that is left of it.

    Attributes:
        options: The options of the sweep.
        design: The axes and points.
        seeds: Seeds of every point.
        groups: Groups with members that are to be trained, one program each.
        num_workers: The number of blocks that are trained side by side.
        memory_limit: Bytes that a worker may use.
    """

    options: SweepOptions
    design: Design
    seeds: tuple[int, ...]
    groups: tuple[GroupPlan, ...]
    num_workers: int
    memory_limit: float

    @property
    def config(self) -> TrainConfig:
        """The base config of every point."""
        return self.options.config

    @property
    def num_members(self) -> int:
        """Members that are to be trained."""
        return sum(group.num_members for group in self.groups)

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return sum(group.steps for group in self.groups)

    def at(self, sizes: Iterable[tuple[int, int]]) -> "SweepPlan":
        """Return the plan with the lanes and updates per segment of each group."""
        groups = tuple(
            replace(group, lanes=int(lanes), length=int(length))
            for group, (lanes, length) in zip(self.groups, sizes, strict=True)
        )
        return replace(self, groups=groups)

    def device_bytes(self) -> float:
        """Return the bytes for training the largest group on this process's workers."""
        workers = self.num_workers
        return max((g.chunk_bytes() * workers for g in self.groups), default=0.0)

    def result_bytes(self) -> float:
        """Return the bytes of the results, as far as they are kept in memory."""
        if self.options.out is not None:
            return 0.0
        rows = sum(g.num_members * _row_bytes(g) for g in self.groups)
        states = sum(g.num_members * g.memory.state for g in self.groups)
        return float(rows + states if self.options.keep_states else rows)

    def seconds(self) -> float:
        """Return the estimated training time in seconds."""
        return sum((group.seconds() for group in self.groups), 0.0)


@tool(SweepOptions)
def plan(asked: SweepOptions) -> SweepPlan:
    """Return what `purerl.sweep` would do with the same options, without training.

    For every group two narrow programs are compiled; their memory, as the compiler
    counts it, gives the bytes per member, and so how many blocks of lanes a worker can
    hold. A segment of the width that was chosen is timed. With `out` results are not
    held in memory; what such a folder has already is not looked at.

    Raises:
        ConfigError: see `purerl.sweep`.
    """
    workers = make_workers()
    limit = planner.worker_limit(asked.memory_limit, workers)
    outline = make_outline(asked, workers, limit)
    check_groups(outline.groups)
    groups = tuple(
        _plan_group(group, workers, limit, asked) for group in outline.groups
    )
    return replace(outline, groups=groups)


def _plan_group(
    group: GroupPlan,
    workers: Sequence[Worker],
    limit: float,
    asked: SweepOptions,
) -> GroupPlan:
    """The group with lanes and chunks that fit the memory, which narrow programs tell.

    Raises:
        ConfigError: they do not fit.
    """
    bound, members, length = group.group.bound, group.members, group.length
    memory = planner.probe(bound, members, length, workers[0])
    width = fit_lanes(memory, group.lanes, limit, group.is_fixed)
    blocks = asked.chunk_blocks or planner.fit_blocks(
        memory, width, group.num_members, len(workers), limit
    )
    block = members.block(0, width)
    program = current_cache().get(bound, block, length, workers[:1])
    rate = measured_rate(program, members, workers)
    if asked.chunk_blocks is None:
        blocks = timely_blocks(blocks, group, width, rate, len(workers))
    return replace(
        group,
        lanes=width,
        chunk_blocks=blocks,
        memory=memory,
        steps_per_second=rate,
    )


def timely_blocks(
    blocks: int, group: GroupPlan, lanes: int, rate: float, num_workers: int
) -> int:
    """Return the blocks of a chunk that does not take too long to lose.

    Chunks change no bits, and a folder is read by members: a sweep may go on where
    another rate is measured.
    """
    busy = min(num_workers, -(-group.num_members // lanes))
    seconds = lanes * group.group.steps_each * busy / rate
    return planner.blocks_in_time(blocks, seconds)


def measured_rate(
    program: Program, members: Members, workers: Sequence[Worker]
) -> float:
    """Return the steps per second of this process, from one segment of one block."""
    block = members.block(0, program.lanes)
    busy = min(len(workers), -(-members.size // program.lanes))
    return rate(program, block, workers[:1], 0.0) * busy


def list_points(asked: SweepOptions) -> Design:
    """Return the points of a sweep, of which the host can hold a list.

    Raises:
        ConfigError: no mapping of axes, or see `expand`.
    """
    config, axes, kind = asked.config, asked.axes or {}, asked.design
    check_mapping("axes", asked.axes, '{"learning_rate": [1e-4, 1e-3]}')
    agents = size_of(axes, kind, asked.num_points) * num_seeds(asked.seeds)
    require_listing(agents, config.total_timesteps)
    axes = for_fields(config, axes)
    return expand(axes, kind, asked.num_points, asked.design_seed)


def check_groups(groups: Sequence[GroupPlan]) -> None:
    """Refuse axes of a sweep that change nothing.

    Raises:
        ConfigError: see `check_axes`.
    """
    found = [group.group for group in groups]
    check_axes(found, differing(found))


def make_outline(
    asked: SweepOptions, workers: Sequence[Worker], limit: float
) -> SweepPlan:
    """Return groups, members, lanes and segments; `"auto"` lanes are measured."""
    config, lanes, points = asked.config, asked.lanes, list_points(asked)
    numbers, groups = check_seeds(asked.seeds), []
    for group in group_points(config, points.points):
        ids = MemberIds([points.points[number] for number in group.points], numbers)
        members = every(group.overrides, len(group.points), numbers)
        # The points of a grid and of a zip are different ones: see `expand`.
        if points.kind == "random":
            ids, members = _once_each(ids, members)
        bound = group.bound
        length = segment_length(bound, asked.segment_updates)
        if lanes == "auto":
            width = lane_finder.find(bound, members, length, workers, limit)
            # It was measured with every worker busy; few members would fill no block.
            width = min(width, widest_of_use(members.size, workers))
        elif lanes is None:  # what is compiled then may be narrower
            width = default_lanes(members.size, workers)
            width = fitting_lanes(bound, width, width, length, workers, limit)
        else:
            width = int(lanes)
        is_fixed = isinstance(lanes, int)
        groups.append(GroupPlan(group, ids, members, width, length, is_fixed))
    return SweepPlan(asked, points, numbers, tuple(groups), len(workers), limit)


def _once_each(ids: Sequence[str], members: Members) -> tuple[Sequence[str], Members]:
    """Members without repetitions: equal draws of a random design are one member."""
    first = {id: i for i, id in reversed(list(enumerate(ids)))}
    if len(first) == len(ids):
        return ids, members
    kept = sorted(first.values())
    return [ids[i] for i in kept], members.take(np.asarray(kept))


def without(group: GroupPlan, finished: set[str]) -> GroupPlan:
    """Return the group without members that have been trained already.

    Their width is fixed: the others are trained as they were.
    """
    left = [i for i, id in enumerate(group.ids) if id not in finished]
    return replace(
        group,
        ids=tuple(group.ids[i] for i in left),
        members=group.members.take(np.asarray(left, int)),
        is_fixed=group.is_fixed or len(left) < group.num_members,
    )


def _row_bytes(group: GroupPlan) -> int:
    """Bytes of a member's results: rows of about a dozen metrics, and evaluations."""
    plan, config = group.group.bound.plan, group.group.bound.config
    rows = -(-plan.num_updates // group.length)
    evaluations = len(plan.evaluate_after) * (2 * config.eval_episodes + 1)
    return RESULT_BYTES * (rows * 12 + evaluations)
