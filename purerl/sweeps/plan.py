"""A sweep's plan: groups, members, steps, lanes, chunks, memory, time; before it runs.

What a plan decides (lanes, updates per segment) fixes the results' bits, so a folder
keeps it; what it estimates (memory, time) is printed and compared with what was used.

On a CPU narrow lanes win, on a GPU wide ones, and past saturation throughput falls. The
width is part of a result's identity, so no sweep measures it: `purerl.find_lanes` does.
"""

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError, TrainConfig, check_mapping
from purerl.execution import programs as program_cache
from purerl.execution.dry_run import rate
from purerl.execution.memory import (
    MemoryModel,
    fitting_lanes,
    require_listing,
    worker_limit,
)
from purerl.execution.programs import (
    BlockCompiler,
    Members,
    Program,
    current_cache,
    every,
    segment_length,
)
from purerl.precision import as_here, in_32_bits
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.runner.options import (
    FIXED,
    Segmented,
    memory_limit_option,
    option,
    seeds_option,
    tool,
)
from purerl.scale import devices, hosts
from purerl.space.axes import Design, axes_option, expand, for_fields, size_of
from purerl.sweeps.groups import Group, check_axes, group_points, member_id
from purerl.train import bind


@dataclass(frozen=True)
class SweepOptions(Segmented):
    """The options of `purerl.sweep`, and of `purerl.plan`."""

    tool: ClassVar[str] = "sweep"

    config: TrainConfig
    axes: Mapping[str, Any] | None = axes_option(
        "Field that the sweep varies, NAME=VALUES; may be repeated: "
        "learning_rate=1e-4,3e-4; gamma=linspace(0.9,0.99,4); algorithm=ppo,dqn; "
        "hidden_sizes=(64,64),(256,256); in a random design loguniform(1e-5,1e-2), "
        "uniform(0.9,1.0), choice(4,8).",
        "Values by (dotted) name of the field, or in a random design a distribution. "
        "`algorithm` is one too: what the other has in common is carried over.",
        needed=False,
    )
    _: KW_ONLY
    seeds: int | Sequence[int] = seeds_option(4, "Agents per point.")
    design: str = option(
        "grid",
        "Points of the axes: every combination (grid), value by value (zip), or draws.",
        kind=Literal["grid", "zip", "random"],
    )
    num_points: int | None = option(
        None,
        "Number of points of a random design; equal draws are trained once.",
        flag="points",
    )
    design_seed: int = option(0, "Seed of a random design's draws.")
    extend: bool = option(
        False,
        "Train the points and seeds that the sweep in the folder has not.",
    )
    memory_limit: str | float | None = memory_limit_option()
    keep_states: bool = option(False, "Keep the trained agents too.", keep=FIXED)


NOT_KNOWN = MemoryModel(0.0, 0.0, 0.0)
# Chunks per worker: few files, yet little to do again after a kill.
CHUNKS_PER_WORKER = 8
# An eighth of a long sweep is too much to lose, or to wait for after Ctrl-C.
CHUNK_SECONDS = 300.0


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
    def num_blocks(self) -> int:
        """Blocks that hold them, the last one filled up."""
        return -(-self.num_members // self.lanes)

    @property
    def steps(self) -> int:
        """Environment steps of all of them."""
        return self.num_members * self.group.steps_each

    def chunk_bytes(self) -> float:
        """Return the bytes on the device of a worker while it trains a chunk."""
        return self.memory.chunk(self.lanes, self.chunk_blocks)

    def seconds(self) -> float:
        """Return the estimated seconds of training, without those of compilation."""
        # The lanes that only fill a block take their time, too.
        steps = self.num_blocks * self.lanes * self.group.steps_each
        return steps / self.steps_per_second


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

    def seconds(self) -> float:
        """Return the estimated training time in seconds."""
        return sum((group.seconds() for group in self.groups), 0.0)


@tool(SweepOptions)
def plan(asked: SweepOptions) -> SweepPlan:
    """Return what `purerl.sweep` would do with the same options, without training.

    Every group is compiled as the sweep compiles it: the memory that the compiler
    counts says how many lanes and blocks a worker can hold. One segment is timed. With
    `out` results are not held in memory; what such a folder has already is not looked
    at.

    Raises:
        ConfigError: see `purerl.sweep`.
    """
    workers = devices.make_workers()
    limit = worker_limit(asked.memory_limit, workers)
    outline = make_outline(asked, workers, limit)
    compiler = Compiler(workers, limit)
    planned: list[GroupPlan] = []
    while left := outline.groups[len(planned) :]:
        # Whoever holds these programs leaves no room for the next ones.
        planned += [replace(group, program=None) for group in compiler.compile(left)]
    return replace(outline, groups=tuple(planned))


def make_outline(
    asked: SweepOptions, workers: Sequence[devices.Worker], limit: float
) -> SweepPlan:
    """Return groups, members, lanes and segments.

    Raises:
        ConfigError: an axis or value that cannot be, or one that changes nothing; more
            members than the host can list.
    """
    config, axes = asked.config, asked.axes or {}
    check_mapping("axes", asked.axes, '{"learning_rate": [1e-4, 1e-3]}')
    agents = size_of(axes, asked.design, asked.num_points) * num_seeds(asked.seeds)
    require_listing(agents, config.total_timesteps)
    axes = for_fields(config, axes)
    design = expand(axes, asked.design, asked.num_points, asked.design_seed)
    seeds, found = check_seeds(asked.seeds), group_points(config, design.points)
    # In a grid, points have one object where they have one value.
    first = design.points[0]
    varied = [x for x in first if any(p[x] is not first[x] for p in design.points)]
    check_axes(found, varied)
    groups = []
    for group in found:
        points = [design.points[number] for number in group.points]
        ids = [member_id(point, seed) for point in points for seed in seeds]
        members = every(group.overrides, len(group.points), seeds)
        if design.kind != "grid":  # Equal draws are one member.
            kept = sorted({id: i for i, id in reversed(list(enumerate(ids)))}.values())
            ids, members = [ids[i] for i in kept], members.take(np.asarray(kept))
        length = segment_length(group.bound, asked.segment_updates)
        width = asked.lanes
        if width is None:  # What is compiled may be narrower.
            widest = devices.default_lanes(members.size, workers)
            bound = group.bound
            width = fitting_lanes(bound, widest, widest, length, workers, limit)
        is_fixed = asked.lanes is not None
        groups.append(GroupPlan(group, ids, members, width, length, is_fixed))
    return SweepPlan(asked, design, seeds, tuple(groups), len(workers), limit)


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


class Compiler:
    """Compiles the groups of one sweep, and counts what that costs.

    Args:
        workers: Workers of this process.
        limit: Bytes that a worker may use.

    Attributes:
        seconds: Seconds that `compile` has taken so far, the timing of segments
            included.
        last_seconds: Seconds of its last call.
    """

    def __init__(self, workers: Sequence[devices.Worker], limit: float) -> None:
        self.seconds = self.last_seconds = 0.0
        self._workers, self._limit, self._cache = workers, limit, current_cache()
        self._blocks = BlockCompiler(workers, limit, self._cache)
        self._known = self._cache.compilations
        self._all_workers = int(hosts.all_sum(np.array(len(workers))))
        self._given: list[Program] = []

    @property
    def compilations(self) -> int:
        """Programs that were compiled so far."""
        return self._cache.compilations - self._known

    def compile(
        self,
        groups: Sequence[GroupPlan],
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[GroupPlan]:
        """Return the first groups with their programs, lanes, chunks and rates.

        These are all groups, or as many as this process has room for: at least one. To
        make room for them, the programs that an earlier call returned are forgotten.

        Raises:
            ConfigError: a group does not fit the memory of some process.
        """
        began = time.perf_counter()
        if groups:  # After the last ones, whoever shares programs may want them again.
            self._cache.forget(self._given)
        self._given = []
        built = hosts.run_on_all(lambda: self._first_fitted(groups, is_stopped))
        count = int(hosts.all_min(np.array(len(built))))
        compiled = self._alike(groups[:count], built[:count]) if count else []
        self._given = [group.program for group in compiled if group.program]
        self.last_seconds = time.perf_counter() - began
        self.seconds += self.last_seconds
        return compiled

    def _first_fitted(
        self, groups: Sequence[GroupPlan], is_stopped: Callable[[], bool]
    ) -> list[Program]:
        """Programs of as many groups as there is room for."""
        is_full = threading.Event()

        def fitted(index: int) -> Program | None:
            # The first one is built in any case, also where another thread was faster.
            if index and (is_full.is_set() or program_cache.is_nearly_full()):
                is_full.set()
                return None
            if is_stopped():
                return None
            return self._fitted(groups[index], groups[index].is_fixed)

        with ThreadPoolExecutor(devices.num_cores()) as pool:
            built = list(pool.map(as_here(fitted), range(len(groups))))
        return [entry for entry in itertools.takewhile(bool, built) if entry]

    def _fitted(self, group: GroupPlan, is_fixed: bool) -> Program:
        """A program at a width that fits."""
        return self._blocks.compile(
            group.group.bound, group.members, group.lanes, group.length, is_fixed
        )

    def _alike(
        self, groups: Sequence[GroupPlan], programs: Sequence[Program]
    ) -> list[GroupPlan]:
        """The groups with lanes and chunks that fit the memory of every process."""
        least = hosts.all_min([program.lanes for program in programs]).tolist()
        compiled, cuts = list[GroupPlan](), list[int]()
        for group, program, lanes in zip(groups, programs, least, strict=True):
            group = replace(group, lanes=lanes)
            if program.lanes != lanes:
                program = self._fitted(group, is_fixed=True)
            memory, block = program.memory(), group.members.block(0, lanes)
            busy = min(len(self._workers), group.num_blocks)
            speed = rate(program, block, self._workers[:1], 0.0) * busy
            share = -(-group.num_blocks // self._all_workers)
            seconds = lanes * program.steps_each * busy / speed
            cuts.append(blocks_of_chunk(memory, lanes, share, self._limit, seconds))
            compiled.append(
                replace(
                    group,
                    memory=memory,
                    steps_per_second=speed * hosts.count(),
                    program=program,
                )
            )
        # Each process measures a rate of its own, and all cut the same chunks.
        cuts = hosts.all_min(cuts).tolist()
        return [
            replace(group, chunk_blocks=blocks)
            for group, blocks in zip(compiled, cuts, strict=True)
        ]


def blocks_of_chunk(
    memory: MemoryModel, lanes: int, share: int, limit: float, seconds: float
) -> int:
    """Return the blocks of a chunk: what fits, spreads the work, and is soon trained.

    Chunks change no bits, and a folder is read by members: a sweep may go on where
    another rate is measured.

    Args:
        memory: A model of a worker's bytes.
        lanes: The width of a block, W.
        share: Blocks of the group that a worker trains in all.
        limit: Bytes that a worker may use.
        seconds: Seconds that a worker takes to train a block.
    """
    room = (limit - memory.block(lanes)) // max(lanes * memory.state, 1.0)
    spread = -(-share // CHUNKS_PER_WORKER)
    return max(1, min(int(room) + 1, spread, int(CHUNK_SECONDS / seconds)))


MOST_CPU_LANES = 64


class LaneRate(NamedTuple):
    """Throughput at one width, all workers busy.

    Attributes:
        lanes: The width of a block, W.
        steps_per_second: Environment steps per second of all workers.
        compile_seconds: Seconds of compilation.
        memory: Bytes of a worker while it trains one block.
    """

    lanes: int
    steps_per_second: float
    compile_seconds: float
    memory: float


@in_32_bits
def find_lanes(
    config: TrainConfig,
    *,
    widths: Sequence[int] | None = None,
    memory_limit: str | float | None = None,
    seconds: float = 2.0,
) -> list[LaneRate]:
    """Measure training throughput over lane widths, every worker busy.

    It ends where the memory does, or the throughput falls.

    Args:
        config: The config to train; only what shapes the program matters.
        widths: Widths to try, ascending; powers of two where not given.
        memory_limit: Bytes for training, as in `purerl.sweep`.
        seconds: Seconds of measurement per width.

    Returns:
        An entry per width: lanes, environment steps per second over all workers,
        seconds of compilation, bytes of a worker.

    Raises:
        ConfigError: a config that cannot be trained, or no width fits the memory.
    """
    bound, workers = bind(config), devices.make_workers()
    limit, length = worker_limit(memory_limit, workers), segment_length(bound)
    if widths is None:
        is_cpu = workers[0].device.platform == "cpu"
        most = MOST_CPU_LANES if is_cpu else devices.MOST_ACCELERATOR_LANES
        widths = [1 << power for power in range(most.bit_length())]
    members = Members(jax.random.split(jax.random.key(0), 1), {})
    rates: list[LaneRate] = []
    for width in (devices.required("widths", width) for width in widths):
        block = members.block(0, width)
        program = current_cache().get(bound, block, length, workers)
        memory = program.memory().block(width)
        if memory > limit:
            break
        speed = rate(program, block, workers, seconds)
        rates.append(LaneRate(width, speed, program.compile_seconds, memory))
        least = 0.7 * max(entry.steps_per_second for entry in rates)
        if all(entry.steps_per_second < least for entry in rates[-2:]):
            break  # Two widths far below the best one: it is past saturation.
    if not rates:
        raise ConfigError(
            f"memory: not even {widths[0]} lanes fit {limit / 2**20:,.0f} MiB."
        )
    return rates


def best_of(rates: Sequence[LaneRate]) -> int:
    """Return the width with the highest throughput."""
    return max(rates, key=lambda rate: rate.steps_per_second).lanes
