"""A sweep's plan: groups, members, steps, lanes, chunks, memory, time; before it runs.

What a plan decides (lanes, updates per segment) fixes the results' bits, so a folder
keeps it; what it estimates (memory, time) is printed and compared with what was used.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import TrainConfig
from purerl.execution.cache import current_cache
from purerl.execution.fit import MemoryModel, fit_lanes, fitting_lanes
from purerl.execution.members import Members, every
from purerl.execution.memory import require_listing
from purerl.execution.programs import Program
from purerl.runner.seeds import check_seeds, num_seeds
from purerl.scale.devices import (
    Worker,
    check_count,
    default_lanes,
    make_workers,
    widest_of_use,
)
from purerl.space.design import Design, expand, size_of
from purerl.space.fields import for_fields
from purerl.sweeps import lanes as lane_finder
from purerl.sweeps import planner
from purerl.sweeps.groups import Group, group_points
from purerl.sweeps.identity import MemberIds

# Bytes of a number in the results on the host.
RESULT_BYTES = 4


class GroupPlan(NamedTuple):
    """How one group is trained.

    Attributes:
        group: The group's points and what they compile to.
        ids: Ids of the members that are to be trained.
        members: Keys and overrides of those members, `[M]`.
        lanes: The width of a block, W.
        length: Updates per segment, K.
        chunk_blocks: The number of blocks that a worker holds at a time.
        memory: A model of a worker's bytes, if a program was compiled.
        steps_per_second: Environment steps per second of all workers, if measured.
        program: The compiled program, if it was compiled at this width.
    """

    group: Group
    ids: Sequence[str]
    members: Members
    lanes: int
    length: int
    chunk_blocks: int = 1
    memory: MemoryModel | None = None
    steps_per_second: float | None = None
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
        return self.memory.chunk(self.lanes, self.chunk_blocks) if self.memory else 0.0

    def seconds(self) -> float | None:
        """Return the estimated seconds of training, without those of compilation."""
        return self.steps / self.steps_per_second if self.steps_per_second else None


class Keeps(NamedTuple):
    """Which arrays are kept in host memory; those written to the folder are not.

    Attributes:
        results: Whether metrics and evaluations are kept.
        states: Whether the trained agents are kept with the results.
    """

    results: bool = True
    states: bool = False


class SweepPlan(NamedTuple):
    """The whole sweep.

    Attributes:
        config: The base config of every point.
        design: The axes and points.
        seeds: Seeds of every point.
        groups: Groups with members that are to be trained, one program each.
        num_workers: The number of blocks that are trained side by side.
        memory_limit: Bytes that a worker may use.
        keeps: The kinds of results that stay in host memory.
    """

    config: TrainConfig
    design: Design
    seeds: tuple[int, ...]
    groups: tuple[GroupPlan, ...]
    num_workers: int
    memory_limit: float
    keeps: "Keeps"

    @property
    def num_members(self) -> int:
        """Members that are to be trained."""
        return sum(group.num_members for group in self.groups)

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return sum(group.steps for group in self.groups)

    def device_bytes(self) -> float:
        """Return the bytes for training the largest group on this process's workers."""
        workers = self.num_workers
        return max((g.chunk_bytes() * workers for g in self.groups), default=0.0)

    def result_bytes(self) -> float:
        """Return the bytes of the results, as far as they are kept in memory."""
        return float(sum(g.num_members * self._kept_each(g) for g in self.groups))

    def _kept_each(self, group: GroupPlan) -> float:
        if not self.keeps.results:
            return 0.0
        has_state = self.keeps.states and group.memory is not None
        return _row_bytes(group) + (group.memory.state if has_state else 0.0)  # type: ignore[union-attr]

    def seconds(self) -> float | None:
        """Return the estimated training time in seconds; None if a group lacks one."""
        times = [group.seconds() for group in self.groups]
        return None if None in times else float(sum(t for t in times if t is not None))


def plan(
    config: TrainConfig,
    axes: Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] = 1,
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
    check_count("chunk_blocks", chunk_blocks)
    outline = make_outline(
        config, axes or {}, seeds, design, num_points, design_seed, segment_updates
    )._replace(keeps=Keeps(out is None, keep_states))
    workers = make_workers()
    limit = worker_limit(memory_limit, workers)
    sized = []
    for group in outline.groups:
        wide = choose_lanes(group, lanes, workers, limit)
        memory = planner.probe(wide.group.bound, wide.members, wide.length, workers[0])
        fitted = fit(
            wide, memory, limit, len(workers), isinstance(lanes, int), chunk_blocks
        )
        sized.append(timed(fitted, workers))
    return outline._replace(groups=tuple(sized), memory_limit=limit)


def timed(
    group: GroupPlan, workers: Sequence[Worker], program: Program | None = None
) -> GroupPlan:
    """Return the group with the rate of this process, from one segment of one block.

    Args:
        group: The group, with its lanes and segment length.
        workers: Workers of this process; the first of them trains the segment.
        program: The compiled program of the group; taken from the cache where not
            given.
    """
    bound, block = group.group.bound, group.members.block(0, group.lanes)
    if program is None:
        program = current_cache().get(bound, block, group.length, workers[:1])
    rate = planner.rate(program, block, workers[:1], 0.0)
    busy = min(len(workers), -(-group.num_members // group.lanes))
    return group._replace(steps_per_second=rate * busy)


def make_outline(
    config: TrainConfig,
    axes: Mapping[str, Any],
    seeds: int | Sequence[int],
    design: str,
    num_points: int | None,
    design_seed: int,
    segment_updates: int | None,
) -> SweepPlan:
    """Return points, groups and members: all that needs no compilation.

    Args:
        config: The config of every point, where no axis says otherwise.
        axes: Values, or in a random design distributions, by name of the field.
        seeds: The number of seeds per point, which are then 0, 1, ..., or the seeds
            themselves.
        design: The kind of design: `grid`, `zip` or `random`.
        num_points: The number of points of a random design.
        design_seed: The seed of a random design's draws.
        segment_updates: Updates per compiled call; about a hundredth of the run where
            not given.
    """
    check_count("segment_updates", segment_updates)
    agents = size_of(axes, design, num_points) * num_seeds(seeds)
    require_listing(agents, config.total_timesteps)
    points = expand(for_fields(config, axes), design, num_points, design_seed)
    members = check_seeds(seeds)
    groups = []
    for group in group_points(config, points.points):
        ids = MemberIds([points.points[number] for number in group.points], members)
        length = min(
            segment_updates or group.default_length(), group.bound.plan.num_updates
        )
        trained = every(group.overrides, len(group.points), members)
        whole = GroupPlan(group, ids, trained, 1, length)
        # The points of a grid and of a zip are different ones: see `expand`.
        groups.append(_once_each(whole) if design == "random" else whole)
    workers = len(make_workers())
    return SweepPlan(config, points, members, tuple(groups), workers, 0.0, Keeps())


def _once_each(group: GroupPlan) -> GroupPlan:
    """The group without repetitions: equal draws of a random design are one member."""
    first = {id: i for i, id in reversed(list(enumerate(group.ids)))}
    if len(first) == group.num_members:
        return group
    kept = np.asarray(sorted(first.values()))
    ids = tuple(group.ids[i] for i in kept)
    return group._replace(ids=ids, members=group.members.take(kept))


def without(group: GroupPlan, finished: set[str]) -> GroupPlan:
    """Return the group without members that have been trained already."""
    left = [i for i, id in enumerate(group.ids) if id not in finished]
    members = group.members.take(np.asarray(left, int))
    return group._replace(ids=tuple(group.ids[i] for i in left), members=members)


def worker_limit(memory_limit: str | float | None, workers: Sequence[Worker]) -> float:
    """Return the bytes that a worker may use, its share of `memory_limit` if given."""
    asked = planner.parse_bytes(memory_limit)
    if asked is not None:
        return asked / len(workers)
    return planner.device_memory(workers[0], workers)


def choose_lanes(
    group: GroupPlan, lanes: int | str | None, workers: Sequence[Worker], limit: float
) -> GroupPlan:
    """Return the group with its width: as asked, measured, or the default.

    Args:
        group: The group.
        lanes: The width that was asked for: a number, `"auto"`, or None for the
            default.
        workers: Workers of this process.
        limit: Bytes that a worker may use.
    """
    if lanes == "auto":
        width = lane_finder.find(
            group.group.bound, group.members, group.length, workers, limit
        )
        # It was measured with every worker busy; few members would fill no block.
        width = min(width, widest_of_use(group.num_members, workers))
    else:
        check_count("lanes", lanes)  # type: ignore[arg-type]
        width = int(lanes or _default_lanes(group, workers, limit))
    return group._replace(lanes=width)


def _default_lanes(group: GroupPlan, workers: Sequence[Worker], limit: float) -> int:
    """The width where nobody asks for one; what is compiled then may be narrower."""
    lanes = default_lanes(group.num_members, workers)
    bound, length = group.group.bound, group.length
    return fitting_lanes(bound, lanes, lanes, length, workers, limit)


def fit(
    group: GroupPlan,
    memory: MemoryModel,
    limit: float,
    num_workers: int,
    is_fixed: bool,
    chunk_blocks: int | None = None,
) -> GroupPlan:
    """Return the group with lanes and chunks that fit the memory.

    Args:
        group: The group, with the width to begin with.
        memory: A model of a worker's bytes.
        limit: Bytes that a worker may use.
        num_workers: The number of workers that share the group's blocks.
        is_fixed: Whether to refuse a width that does not fit instead of narrowing it.
        chunk_blocks: The number of blocks of a chunk; what fits where not given.

    Raises:
        ConfigError: they do not fit.
    """
    width = fit_lanes(memory, group.lanes, limit, is_fixed)
    blocks = chunk_blocks or planner.fit_blocks(
        memory, width, group.num_members, num_workers, limit
    )
    return group._replace(lanes=width, chunk_blocks=blocks, memory=memory)


def _row_bytes(group: GroupPlan) -> int:
    """Bytes of a member's results: rows of about a dozen metrics, and evaluations."""
    plan, config = group.group.bound.plan, group.group.bound.config
    rows = -(-plan.num_updates // group.length)
    evaluations = len(plan.evaluate_after) * (2 * config.eval_episodes + 1)
    return RESULT_BYTES * (rows * 12 + evaluations)
