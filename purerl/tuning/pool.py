"""The pool that all batches of a study share: seeds, lanes, programs, devices."""

import gc
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from purerl.config import ConfigError, TrainConfig
from purerl.execution import cache
from purerl.execution.cache import current_cache
from purerl.execution.format import format_bytes
from purerl.execution.members import every
from purerl.execution.programs import Program, segment_length
from purerl.scale.devices import Worker, default_lanes, make_workers, run_blocks
from purerl.search.fitness import FINAL_RETURN, TRAINING_CURVE
from purerl.sweeps.groups import Group
from purerl.sweeps.planner import worker_limit

KINDS = (FINAL_RETURN, TRAINING_CURVE)
ACCELERATOR_LANES = 64


class TrialSettings(NamedTuple):
    """The settings that all batches of a study share.

    Attributes:
        config: The config of every trial, where no axis says otherwise.
        seeds: Seeds of every trial.
        fitness: The kind of fitness, `final_return` for the last score or
            `training_curve` for the mean of all scores along the way.
        reports: Times at which trials are looked at; the segments of a run.
        lanes: The width of a block, W.
    """

    config: TrainConfig
    seeds: tuple[int, ...]
    fitness: str
    reports: int
    lanes: int


def choose_lanes(members: int, seeds: int, workers: Sequence[Worker]) -> int:
    """Return a width at which stopping trials saves work without slowing the others.

    On a CPU a block holds about one trial. An accelerator takes as long for few lanes
    as for `ACCELERATOR_LANES`; wider batches are cut in about four blocks.

    Args:
        members: The number of members of a batch: trials times seeds.
        seeds: The number of seeds of a trial.
        workers: Workers of this process.
    """
    widest = default_lanes(members, workers)
    if workers[0].device.platform != "cpu":
        quarter = 1 << max(0, (-(-members // 4) - 1).bit_length())
        return min(widest, max(ACCELERATOR_LANES, quarter))
    return min(widest, max(4, 1 << (seeds - 1).bit_length()))


class Pool:
    """Compiled programs of a study by group; the devices' workers.

    Attributes:
        programs: The programs of the last batch, and those of earlier ones as far as
            this process has room for them.
        compilations: Number of programs compiled so far.
        compile_seconds: Seconds spent compiling so far.
        calls: Calls of `advance` so far, each of a block and a segment: the work that
            was done.
        env_steps: Environment steps trained, without those of lanes that only fill a
            block.
    """

    def __init__(self, settings: TrialSettings) -> None:
        self.settings = settings
        self.workers = make_workers()
        self.programs: dict[str, Program] = {}
        self.compile_seconds = 0.0
        self.calls = self.env_steps = self.compilations = 0

    def compile(self, groups: Sequence[Group]) -> dict[str, str]:
        """Compile what is new, several programs at a time.

        Args:
            groups: The groups of a batch.

        Returns:
            Why a group cannot be trained, by its name: an agent does not fit the
            memory.
        """
        started = time.perf_counter()
        if cache.is_nearly_full():
            names = {group.name for group in groups}
            self.programs = {n: p for n, p in self.programs.items() if n in names}
            gc.collect()
        missing = [group for group in groups if group.name not in self.programs]
        shared = current_cache()

        def compile_one(worker: Worker, group: Group) -> Program | ConfigError:
            del worker
            members = every(group.overrides, len(group.points), self.settings.seeds)
            example = members.block(0, self.settings.lanes)
            length = segment_length(group.bound, segments=self.settings.reports)
            try:
                return shared.get(group.bound, example, length, self.workers)
            except ConfigError as error:
                return error

        refused: dict[str, str] = {}
        built = run_blocks(self.workers, missing, compile_one)
        for group, program in zip(missing, built, strict=True):
            if isinstance(program, ConfigError):
                refused[group.name] = str(program)
            else:
                self.programs[group.name] = program
        self.compilations += len(missing) - len(refused)
        self.compile_seconds += time.perf_counter() - started
        return refused

    def check_memory(self, blocks: Mapping[str, int], num_seeds: int) -> None:
        """Refuse a batch whose states do not fit.

        Raises:
            ConfigError: with the sizes.
        """
        memories = {name: self.programs[name].memory() for name in blocks}
        num = len(self.workers)
        states = sum(memories[name].state * count for name, count in blocks.items())
        working = max(memory.working + memory.code for memory in memories.values())
        free = worker_limit(None, self.workers) * num
        if states + working * num > free:
            raise ConfigError(
                f"a batch of these trials with {num_seeds} seeds needs "
                f"{format_bytes(states + working * num)} for training, "
                f"{format_bytes(free)} are free; ask for smaller batches (batch) or "
                "fewer seeds."
            )
