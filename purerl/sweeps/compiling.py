"""A program per group of a sweep, at a width and in chunks that fit the memory."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from purerl.execution.cache import current_cache
from purerl.execution.fit import BlockCompiler, MemoryModel, model_of
from purerl.execution.programs import Program
from purerl.scale import hosts
from purerl.scale.devices import Worker, num_cores
from purerl.sweeps import planner
from purerl.sweeps.plan import CompiledGroup, GroupOutline, measured_rate


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
        self._known = len(self._cache)

    @property
    def compilations(self) -> int:
        """Programs that were compiled so far."""
        return len(self._cache) - self._known

    def compile(
        self, groups: Sequence[GroupOutline], is_fixed: Sequence[bool]
    ) -> list[CompiledGroup]:
        """Return the groups with their programs, lanes, chunks and rates.

        Args:
            groups: Groups with members that are to be trained.
            is_fixed: Whether a group's width may not be narrowed to fit the memory, per
                group.

        Raises:
            ConfigError: a group does not fit the memory of some process.
        """
        began = time.perf_counter()
        with ThreadPoolExecutor(num_cores()) as pool:
            built = hosts.run_on_all(
                lambda: list(pool.map(self._fitted, groups, is_fixed))
            )
        compiled = self._alike(groups, built)
        self.seconds += time.perf_counter() - began
        return compiled

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
        compiled = []
        for group, fit, (lanes, blocks) in zip(groups, fitted, least, strict=True):
            if fit[0].lanes != lanes:
                fit = self._fitted(replace(group, lanes=lanes), is_fixed=True)
            program, memory, _ = fit
            rate = measured_rate(program, group.members, self._workers) * hosts.count()
            fields = group.group, group.ids, group.members, lanes, group.length
            compiled.append(CompiledGroup(*fields, blocks, memory, rate, program))
        return compiled
