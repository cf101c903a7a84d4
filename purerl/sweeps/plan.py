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
from purerl.execution.fit import MemoryModel, fit_lanes
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
from purerl.sweeps import lanes as lane_finder
from purerl.sweeps import planner
from purerl.sweeps.axes import Design, expand, size_of
from purerl.sweeps.groups import Group, for_fields, group_points
from purerl.sweeps.identity import MemberIds

# Bytes of a number in the results on the host.
RESULT_BYTES = 4


class GroupPlan(NamedTuple):
    """How one group is trained.

    Attributes:
        group: its points.
        ids: of the members that are to be trained.
        members: their keys and overrides, `[M]`.
        lanes: W.
        length: updates per segment, K.
        chunk_blocks: blocks that a worker holds at a time.
        memory: model of a worker's bytes, if a program was compiled.
        steps_per_second: of all workers, if it was measured.
        program: the compiled program, if it was compiled at this width.
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
        """Bytes on the device of a worker while it trains a chunk."""
        return self.memory.chunk(self.lanes, self.chunk_blocks) if self.memory else 0.0

    def seconds(self) -> float | None:
        """Estimated time of training, compilation apart."""
        return self.steps / self.steps_per_second if self.steps_per_second else None


class Keeps(NamedTuple):
    """What stays in memory: everything but what a folder takes.

    Attributes:
        results: metrics and evaluations.
        states: the trained agents, with the results.
    """

    results: bool = True
    states: bool = False


class SweepPlan(NamedTuple):
    """The whole sweep.

    Attributes:
        config: the base.
        design: axes and points.
        seeds: of every point.
        groups: with members that are to be trained, one program each.
        num_workers: blocks that are trained side by side.
        memory_limit: bytes that a worker may use.
        keeps: what of the results stays in memory.
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
        """Bytes for training on all workers of this process: of the largest group."""
        workers = self.num_workers
        return max((g.chunk_bytes() * workers for g in self.groups), default=0.0)

    def result_bytes(self) -> float:
        """Bytes of the results, as far as they are kept in memory."""
        return float(sum(g.num_members * self._kept_each(g) for g in self.groups))

    def _kept_each(self, group: GroupPlan) -> float:
        if not self.keeps.results:
            return 0.0
        has_state = self.keeps.states and group.memory is not None
        return _row_bytes(group) + (group.memory.state if has_state else 0.0)  # type: ignore[union-attr]

    def seconds(self) -> float | None:
        """Estimated time of training, compilation apart; None if nothing was timed."""
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
    """What a whole sweep would do, without training: arguments as of `purerl.sweep`.

    For every group two narrow programs are compiled; their memory, as the compiler
    counts it, gives the bytes per member, and so how many blocks of lanes a worker can
    hold. A segment of the width that was chosen is timed. With `out` results are not
    held in memory; what such a folder has already is not looked at.

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
        group = choose_lanes(group, lanes, workers, limit)
        memory = planner.probe(
            group.group.bound, group.members, group.length, workers[0]
        )
        group = fit(
            group,
            memory,
            limit,
            len(workers),
            is_fixed=isinstance(lanes, int),
            chunk_blocks=chunk_blocks,
        )
        sized.append(timed(group, workers))
    return outline._replace(groups=tuple(sized), memory_limit=limit)


def timed(
    group: GroupPlan, workers: Sequence[Worker], program: Program | None = None
) -> GroupPlan:
    """The group with the rate of this process, from one segment of one block."""
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
    """Points, groups and members: all that needs no compilation."""
    check_count("segment_updates", segment_updates)
    agents = size_of(axes, design, num_points) * num_seeds(seeds)
    require_listing(agents, config.total_timesteps)
    points = expand(for_fields(config, axes), design, num_points, design_seed)
    members = check_seeds(seeds)
    groups = []
    for group in group_points(config, points):
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
    """The group without members that have been trained already."""
    left = [i for i, id in enumerate(group.ids) if id not in finished]
    members = group.members.take(np.asarray(left, int))
    return group._replace(ids=tuple(group.ids[i] for i in left), members=members)


def worker_limit(memory_limit: str | float | None, workers: Sequence[Worker]) -> float:
    """Bytes that a worker may use; what is asked for is of the whole process."""
    asked = planner.parse_bytes(memory_limit)
    if asked is not None:
        return asked / len(workers)
    return planner.device_memory(workers[0], workers)


def choose_lanes(
    group: GroupPlan, lanes: int | str | None, workers: Sequence[Worker], limit: float
) -> GroupPlan:
    """The group with its width: as asked, measured (`"auto"`), or the default."""
    if lanes == "auto":
        width = lane_finder.find(
            group.group.bound, group.members, group.length, workers, limit
        )
        # It was measured with every worker busy; few members would fill no block.
        width = min(width, widest_of_use(group.num_members, workers))
    else:
        check_count("lanes", lanes)  # type: ignore[arg-type]
        width = int(lanes or default_lanes(group.num_members, workers))
    return group._replace(lanes=width)


def fit(
    group: GroupPlan,
    memory: MemoryModel,
    limit: float,
    num_workers: int,
    *,
    is_fixed: bool,
    chunk_blocks: int | None = None,
) -> GroupPlan:
    """The group with lanes and chunks that fit the memory.

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
