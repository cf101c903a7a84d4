"""A program per group of a sweep, at a width and in chunks that fit the memory."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from purerl.execution import cache
from purerl.execution.cache import BlockCompiler, current_cache
from purerl.execution.memory import MemoryModel, model_of
from purerl.execution.programs import Program
from purerl.precision import as_here
from purerl.scale import hosts
from purerl.scale.devices import Worker, num_cores
from purerl.sweeps import planner
from purerl.sweeps.plan import CompiledGroup, GroupOutline, measured_rate, timely_blocks


class Compiler:
    """Compiles the groups of one sweep, and counts what that costs.

    Args:
        workers: Workers of this process.
        memory_limit: Bytes that a worker may use.
        chunk_blocks: The number of blocks of a chunk, if it is asked for.

    Attributes:
        seconds: Seconds that `compile` has taken so far, the timing of segments
            included.
        num_workers: The number of workers of all processes.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        memory_limit: float,
        chunk_blocks: int | None = None,
    ) -> None:
        self.seconds = 0.0
        self.num_workers = int(hosts.all_sum(np.array(len(workers))))
        self._workers, self._limit = workers, memory_limit
        self._chunk_blocks = chunk_blocks
        self._cache = current_cache()
        self._known = self._cache.compilations
        self._given: list[Program] = []

    @property
    def compilations(self) -> int:
        """Programs that were compiled so far."""
        return self._cache.compilations - self._known

    def compile(
        self,
        groups: Sequence[GroupOutline],
        is_fixed: Sequence[bool],
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[CompiledGroup]:
        """Return the first groups with their programs, lanes, chunks and rates.

        These are all groups, or as many as this process has room for: at least one. To
        make room for them, the programs that an earlier call returned are forgotten.

        Args:
            groups: Groups with members that are to be trained.
            is_fixed: Whether a group's width may not be narrowed to fit the memory, per
                group.
            is_stopped: Whether somebody asked to stop; then no further group is begun.

        Raises:
            ConfigError: a group does not fit the memory of some process.
        """
        began = time.perf_counter()
        if groups:  # After the last ones, whoever shares programs may want them again.
            self._cache.forget(self._given)
        self._given = []
        built = hosts.run_on_all(
            lambda: self._first_fitted(groups, is_fixed, is_stopped)
        )
        count = int(hosts.all_min(np.array(len(built))))
        compiled = self._alike(groups[:count], built[:count])
        self._given = [group.program for group in compiled]
        self.seconds += time.perf_counter() - began
        return compiled

    def _first_fitted(
        self,
        groups: Sequence[GroupOutline],
        is_fixed: Sequence[bool],
        is_stopped: Callable[[], bool],
    ) -> list[tuple[Program, MemoryModel, int]]:
        """Return what `_fitted` does, for as many groups as there is room for."""
        is_full = threading.Event()

        def fitted(index: int) -> tuple[Program, MemoryModel, int] | None:
            # Groups are begun in their order, so that those before have been, too.
            if index and (is_full.is_set() or cache.is_nearly_full()):
                is_full.set()
            if is_full.is_set() or is_stopped():
                return None
            return self._fitted(groups[index], is_fixed[index])

        with ThreadPoolExecutor(num_cores()) as pool:
            built = list(pool.map(as_here(fitted), range(len(groups))))
        return [entry for entry in itertools.takewhile(bool, built) if entry]

    def _fitted(
        self, group: GroupOutline, is_fixed: bool
    ) -> tuple[Program, MemoryModel, int]:
        """A program at a width that fits, its memory, and the blocks of a chunk."""
        program = BlockCompiler(self._workers, self._limit, self._cache).compile(
            group.group.bound, group.members, group.lanes, group.length, is_fixed
        )
        lanes = program.lanes
        memory = model_of(program.memory(), lanes)
        blocks = self._chunk_blocks or planner.fit_blocks(
            memory, lanes, group.num_members, self.num_workers, self._limit
        )
        return program, memory, blocks

    def _alike(
        self,
        groups: Sequence[GroupOutline],
        fitted: Sequence[tuple[Program, MemoryModel, int]],
    ) -> list[CompiledGroup]:
        """The groups with lanes and chunks that fit the memory of every process."""
        if not groups:
            return []
        least = hosts.all_min([(entry[0].lanes, entry[2]) for entry in fitted]).tolist()
        compiled: list[CompiledGroup] = []
        for group, fit, (lanes, blocks) in zip(groups, fitted, least, strict=True):
            if fit[0].lanes != lanes:
                fit = self._fitted(replace(group, lanes=lanes), is_fixed=True)
            program, memory, _ = fit
            rate = measured_rate(program, group.members, self._workers)
            if self._chunk_blocks is None:
                own = len(self._workers)
                blocks = timely_blocks(blocks, group, lanes, rate, own)
            rate *= hosts.count()
            fields = group.group, group.ids, group.members, lanes, group.length
            compiled.append(CompiledGroup(*fields, blocks, memory, rate, program))
        # Each process measures a rate of its own, and all cut the same chunks.
        cuts = hosts.all_min([group.chunk_blocks for group in compiled]).tolist()
        return [
            replace(group, chunk_blocks=blocks)
            for group, blocks in zip(compiled, cuts, strict=True)
        ]
