"""The training runs of an evolution, in blocks of lanes over the workers.

A run's bits depend on its key, its overrides, W and K only, so they may be spread over
chunks, devices and processes in any way.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from purerl.execution.cache import BlockCompiler
from purerl.execution.cohort import train_through
from purerl.execution.programs import Program
from purerl.meta.fitness import Accumulator, measured_anchors
from purerl.meta.population import Population, Stopped, baseline_keys, rollout_keys
from purerl.meta.setup import EvolutionSetup, baseline_of
from purerl.meta.unrolls import Unrolls
from purerl.scale import hosts
from purerl.scale.devices import Worker, default_lanes, run_blocks
from purerl.train import Bound
from purerl.types import Array, Overrides

# From one run nobody can tell whether a baseline is clear of zero.
BASELINE_ROLLOUTS = 8
# Called after every chunk with the number of runs that it held.
OnRuns = Callable[[int], None]


class Options(NamedTuple):
    """The way an evolution is carried out; only W and K change what is computed.

    Attributes:
        folder: The folder to write, or None.
        lanes: The width W that was asked for; None where it is chosen.
        segment_updates: Updates of a compiled call, K; None for the whole run.
        chunk_blocks: The number of blocks that a worker holds at a time.
        memory_limit: Bytes that a worker may use.
        checkpoint_seconds: The least time between checkpoints; see `Pace`.
        snapshot_every: The number of generations between two snapshots, or 0; None for
            that of the folder.
        progress: Whether to show the progress.
    """

    folder: Path | None
    lanes: int | None
    segment_updates: int | None
    chunk_blocks: int
    memory_limit: float
    checkpoint_seconds: float
    snapshot_every: int | None
    progress: bool


class Chunk(NamedTuple):
    """Runs that a worker trains at a time.

    Attributes:
        program: The number of the program, and so of the environment.
        rows: Numbers of the runs.
    """

    program: int
    rows: np.ndarray


class Trained(NamedTuple):
    """The fitness of a population after its training, and why runs failed.

    Attributes:
        fitness: The fitness of every run `[E, P, R]`, float32, NaN where it failed; the
            same in every process.
        reasons: Counts of the metrics that were not finite first in the runs of this
            process that failed.
    """

    fitness: np.ndarray
    reasons: Counter[str]


class Training:
    """Compiles the programs of an evolution, and trains populations with them.

    Args:
        setup: The evolution.
        key: The key of the evolution.
        workers: Workers of this process.
        options: Options of how the evolution is carried out.

    Attributes:
        lanes: The width of a block, W; chosen where none was asked for.
        is_fixed: Whether a width that does not fit is refused instead of narrowed.
        compile_seconds: Seconds that `compile` has taken.
    """

    def __init__(
        self, setup: EvolutionSetup, key: Array, workers: list[Worker], options: Options
    ) -> None:
        self.setup, self.key, self.workers = setup, key, workers
        self.segment_updates = options.segment_updates or setup.truncation
        cut = setup.truncation is not None
        self.unrolls = Unrolls(setup, key, workers) if cut else None
        self.chunk_blocks = options.chunk_blocks
        self.compiler = BlockCompiler(
            workers, options.memory_limit / options.chunk_blocks
        )
        everyone = workers * hosts.count()
        per_environment = setup.population * setup.rollouts
        self.lanes = options.lanes or default_lanes(per_environment, everyone)
        self.is_fixed = options.lanes is not None
        self.programs: list[Program] = []
        self.compile_seconds = 0.0

    def compile(self) -> None:
        """Compile the programs of a generation, at a width that fits everywhere.

        Raises:
            ConfigError: no width fits the memory, or not the one that is fixed.
        """
        began = time.perf_counter()
        genome = self.setup.optimiser.genome
        start = np.asarray(genome.start())[None]
        example = jax.tree.map(np.asarray, jax.jit(genome.decode)(start))
        keys = rollout_keys(self.key, 0, self.setup.rollouts)
        population = Population(keys, example, 1)
        self.programs = self._compiled(self.setup.bounds, population, self.lanes)
        self.lanes = self.programs[0].lanes
        self.compile_seconds = time.perf_counter() - began

    def generation(
        self,
        number: int,
        overrides: Overrides,
        on_runs: OnRuns,
        is_stopped: Callable[[], bool],
    ) -> Trained:
        """Train every member of a generation in every environment.

        Args:
            number: The number of the generation.
            overrides: Values that are evolved, leaves `[P, ...]`, on the host.
            on_runs: A function that is called after every chunk with its number of
                runs.
            is_stopped: A function that says whether somebody asked to stop.

        Raises:
            Stopped: `is_stopped` said so, in any process.
        """
        setup = self.setup
        if self.unrolls is not None:
            returns, reasons = self.unrolls.generation(
                self.programs, number, overrides, on_runs, is_stopped
            )
            split = (len(setup.bounds), setup.population, setup.rollouts)
            return Trained(returns.reshape(split), reasons)
        keys = rollout_keys(self.key, number, setup.rollouts)
        population = Population(keys, overrides, setup.population)
        return self._train(self.programs, population, on_runs, is_stopped)

    def measured_anchors(self, is_stopped: Callable[[], bool]) -> np.ndarray:
        """Return the returns `[E, 2]` that count 0 and 1, of the algorithm's own loss.

        Args:
            is_stopped: A function that says whether somebody asked to stop.

        Raises:
            ConfigError: a baseline that is no unit; see `purerl.meta.fitness`.
            Stopped: `is_stopped` said so, in any process.
        """
        genome = self.setup.optimiser.genome
        rollouts = max(self.setup.rollouts, BASELINE_ROLLOUTS)
        population = Population(baseline_keys(self.key, rollouts), {}, 1)
        bounds = [baseline_of(bound, genome) for bound in self.setup.bounds]
        lanes = min(self.lanes, default_lanes(rollouts, self.workers[:1]))
        programs = self._compiled(bounds, population, lanes)
        trained = self._train(programs, population, lambda _: None, is_stopped)
        return measured_anchors(trained.fitness[:, 0], self.setup.names)

    def _compiled(
        self, bounds: Sequence[Bound], population: Population, lanes: int
    ) -> list[Program]:
        """A program per environment, at one width that fits in every process."""
        programs = hosts.run_on_all(lambda: self._fitted(bounds, population, lanes))
        width = programs[0].lanes
        narrowest = int(hosts.all_min(width))
        if narrowest == width:
            return programs
        # Another process has less memory, and all must cut the same blocks.
        return self._fitted(bounds, population, narrowest)

    def _fitted(
        self, bounds: Sequence[Bound], population: Population, lanes: int
    ) -> list[Program]:
        """A program per environment, all as wide as the narrowest that fits here."""
        while True:
            programs = [self._program(bound, population, lanes) for bound in bounds]
            width = min(program.lanes for program in programs)
            if all(program.lanes == width for program in programs):
                return programs
            lanes = width

    def _program(self, bound: Bound, population: Population, lanes: int) -> Program:
        updates = bound.plan.num_updates
        length = min(self.segment_updates or updates, updates)
        example = population.runs(np.arange(population.rollouts))
        return self.compiler.compile(bound, example, lanes, length, self.is_fixed)

    def _train(
        self,
        programs: Sequence[Program],
        population: Population,
        on_runs: OnRuns,
        is_stopped: Callable[[], bool],
    ) -> Trained:
        """Train every member with every key in every environment.

        Under `jax.distributed` each process trains its share.
        """
        chunks = _cut(programs, population.num_runs, self.chunk_blocks)
        mine = chunks[hosts.index() :: hosts.count()]
        keys = jax.device_put(population.keys, jax.local_devices()[0])
        here = population._replace(keys=keys)
        returns = np.zeros((len(programs), population.num_runs), np.float32)
        reasons: list[str] = []

        def train_chunk(worker: Worker, chunk: Chunk) -> None:
            if is_stopped():
                return
            program, members = programs[chunk.program], here.runs(chunk.rows)
            updates = program.bound.plan.num_updates
            total = Accumulator(self.setup.fitness, members.size, updates)
            train_through(program, members, worker, total)
            returns[chunk.program, chunk.rows] = total.result()
            reasons.extend(filter(None, total.reasons))
            on_runs(members.size)

        hosts.run_on_all(lambda: run_blocks(self.workers, mine, train_chunk))
        if hosts.all_any(np.array([is_stopped()]))[0]:
            raise Stopped
        gathered = hosts.all_sum(returns)
        split = (len(programs), population.size, population.rollouts)
        return Trained(gathered.reshape(split), Counter(reasons))


def _cut(programs: Sequence[Program], num_runs: int, chunk_blocks: int) -> list[Chunk]:
    """All runs in chunks, the environments with the longest runs first."""
    order = np.argsort([-program.steps_each for program in programs], kind="stable")
    chunks = []
    for number in order.tolist():
        size = programs[number].lanes * chunk_blocks
        for start in range(0, num_runs, size):
            rows = np.arange(start, min(start + size, num_runs))
            chunks.append(Chunk(number, rows))
    return chunks
