"""A program per group of a sweep, at a width and in chunks that fit the memory."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from purerl.execution.cache import current_cache
from purerl.execution.fit import BlockCompiler, model_of
from purerl.scale import hosts
from purerl.scale.devices import Worker, num_cores
from purerl.sweeps.plan import GroupPlan, fit, timed


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
        self, groups: Sequence[GroupPlan], is_fixed: Sequence[bool]
    ) -> list[GroupPlan]:
        """Return the groups with their programs, lanes, chunks and rates.

        Args:
            groups: Groups with members that are to be trained.
            is_fixed: Whether a group's width may not be narrowed to fit the memory, per
                group.

        Raises:
            ConfigError: a group does not fit the memory of some process.
        """
        began = time.perf_counter()
        built = hosts.run_on_all(lambda: self._side_by_side(groups, is_fixed))
        found = [self._timed(group) for group in self._alike(built)]
        self.seconds += time.perf_counter() - began
        return found

    def _side_by_side(
        self, groups: Sequence[GroupPlan], is_fixed: Sequence[bool]
    ) -> list[GroupPlan]:
        with ThreadPoolExecutor(num_cores()) as pool:
            return list(pool.map(self._fitted, groups, is_fixed))

    def _fitted(self, group: GroupPlan, is_fixed: bool) -> GroupPlan:
        """The group compiled, at a width and in chunks that fit."""
        compiler = BlockCompiler(self._workers, self._limit, self._cache)
        program = compiler.compile(
            group.group.bound, group.members, group.lanes, group.length, is_fixed
        )
        fitted = fit(
            group._replace(lanes=program.lanes),
            model_of(program.memory(), program.lanes),
            self._limit,
            self.num_workers,
            is_fixed=is_fixed,
            chunk_blocks=self._chunk_blocks,
        )
        return fitted._replace(program=program)

    def _alike(self, groups: Sequence[GroupPlan]) -> list[GroupPlan]:
        """The groups with lanes and chunks that fit the memory of every process."""
        if not groups:
            return []
        sizes = hosts.all_min([(group.lanes, group.chunk_blocks) for group in groups])
        found = []
        for group, (lanes, blocks) in zip(groups, sizes, strict=True):
            if lanes != group.lanes:
                group = self._fitted(group._replace(lanes=int(lanes)), is_fixed=True)
            found.append(group._replace(chunk_blocks=int(blocks)))
        return found

    def _timed(self, group: GroupPlan) -> GroupPlan:
        """The group with its rate, from one segment of one block."""
        group = timed(group, self._workers, group.program)
        assert group.steps_per_second is not None
        return group._replace(steps_per_second=group.steps_per_second * hosts.count())
