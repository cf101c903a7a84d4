"""The training runs of an evolution, in blocks of lanes over the workers.

A run's bits depend on its key, its overrides, W and K only, so they may be spread over
chunks, devices and processes in any way. All members of a generation have the same keys
(common random numbers): what tells them apart is what is evolved. The next generation
has others.

**Truncation.** Where runs are long, an evolution that waits for their end moves seldom.
Persistent evolution strategies (Vicol et al. 2021, arXiv:2112.13835) and noise-reuse
evolution strategies (Li et al. 2023, arXiv:2304.12180) move after every K updates, and
stay unbiased: the first sums the perturbations that a run has seen since it began, the
second holds one for the whole run. A generation is worth what is earned in its part:
the mean of the training curve there, where the updates before a run's first episode has
ended count when it has. So the mean over a run's generations is the fitness of the
whole run. All members begin their runs together, and all are held at once. Only what
lies between two runs is saved: who is stopped in the middle of one begins it again.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from purerl.execution.cohort import Cohort, Job, rows_of, stream, train_until
from purerl.execution.dry_run import Part
from purerl.execution.memory import require_together
from purerl.execution.programs import BlockCompiler, Members, Program, crossed
from purerl.meta.fitness import Accumulator, OwnFitness, measured_anchors
from purerl.meta.setup import EvolutionSetup, baseline_of
from purerl.scale import hosts
from purerl.scale.devices import Worker, default_lanes
from purerl.search.fitness import is_own
from purerl.train import Bound
from purerl.types import Array, Overrides

# From one run nobody can tell whether a baseline is clear of zero.
BASELINE_ROLLOUTS = 8
# What to fold into a key: streams of random numbers that never meet. 3 is that of
# held-out seeds (`purerl.comparison.api`).
_STRATEGY, _ROLLOUTS, _BASELINE, _START = 0, 1, 2, 4
# Called after every chunk with the number of runs that it held.
OnRuns = Callable[[int], None]


class Stopped(Exception):  # noqa: N818  (no error: somebody asked to stop)
    """A generation was left unfinished."""


def start_key(key: Array) -> Array:
    """Return the key of the strategy's first state."""
    return jax.random.fold_in(key, _START)


def strategy_keys(key: Array, generation: int) -> tuple[Array, Array]:
    """Return the keys of ask and tell."""
    both = jax.random.fold_in(jax.random.fold_in(key, _STRATEGY), generation)
    ask, tell = jax.random.split(both)
    return ask, tell


def rollout_keys(key: Array, generation: int, rollouts: int) -> Array:
    """Return keys `[R]` of a generation's runs, the same for every member."""
    generation_key = jax.random.fold_in(jax.random.fold_in(key, _ROLLOUTS), generation)
    return jax.random.split(generation_key, rollouts)


def baseline_keys(key: Array, rollouts: int) -> Array:
    """Return keys `[R]` of the runs that a baseline is measured with."""
    return jax.random.split(jax.random.fold_in(key, _BASELINE), rollouts)


class Population(NamedTuple):
    """Members that all train with the same keys; the rollouts of a member are fastest.

    Attributes:
        keys: Keys of the runs of each member, `[R]`.
        overrides: Values that are evolved, leaves `[P, ...]`, on the host.
        size: The number of members, P.
    """

    keys: Array
    overrides: Overrides
    size: int

    @property
    def num_runs(self) -> int:
        """The number of runs in an environment."""
        return self.size * self.keys.shape[0]

    def runs(self, rows: np.ndarray | None = None) -> Members:
        """Return some of the runs by their numbers, or all."""
        rows = np.arange(self.num_runs) if rows is None else rows
        return crossed(self.keys, self.overrides, rows)


class _Unfinished:
    """The truncated runs of all members in one environment, from their beginning on."""

    def __init__(
        self,
        program: Program,
        population: Population,
        fitness: str,
        workers: list[Worker],
    ) -> None:
        members = population.runs()
        num_blocks = -(-members.size // program.lanes)
        require_together(program.memory(), program.lanes, num_blocks, workers)
        self.cohort = Cohort(program, members, workers)
        self.cohort.init()
        updates = program.bound.plan.num_updates
        self.curve = Accumulator(fitness, members.size, updates)

    def part(self, population: Population, updates: int) -> np.ndarray:
        """Train some updates more; return the worth of each run in them, `[P * R]`."""
        self.cohort.set_overrides(population.runs().overrides)
        before = self.curve.sum.copy()
        train_until(self.cohort, self.cohort.update + updates, self.curve)
        earned = self.curve.sign * (self.curve.sum - before) / updates
        failed = self.curve.failed | ~np.isfinite(earned)
        return np.where(failed, np.nan, earned).astype(np.float32)


class Training:
    """Compiles the programs of an evolution, and trains populations with them.

    Args:
        setup: The evolution.
        key: The key of the evolution.
        workers: Workers of this process.
        memory_limit: Bytes that a worker may use.

    Attributes:
        lanes: The width of a block, W; chosen where none was asked for.
        is_fixed: Whether a width that does not fit is refused instead of narrowed.
        compile_seconds: Seconds that `compile` has taken.
    """

    def __init__(
        self,
        setup: EvolutionSetup,
        key: Array,
        workers: list[Worker],
        memory_limit: float,
    ) -> None:
        self.setup, self.key, self.workers = setup, key, workers
        asked, is_cpu = setup.asked, workers[0].device.platform == "cpu"
        self.segment_updates = asked.segment_updates or asked.truncation
        # The blocks that a worker holds at a time, which change no bit.
        self.chunk_blocks = 1 if is_cpu else 2
        self.compiler = BlockCompiler(workers, memory_limit / self.chunk_blocks)
        everyone = workers * hosts.count()
        self.lanes = asked.lanes or default_lanes(setup.runs_each, everyone)
        self.is_fixed = asked.lanes is not None
        self.programs: list[Program] = []
        self.compile_seconds = 0.0
        self._unfinished: list[_Unfinished] = []

    def compile(self) -> None:
        """Compile the programs of a generation, at a width that fits everywhere.

        Raises:
            ConfigError: no width fits the memory, or not the one that is fixed.
        """
        began = time.perf_counter()
        keys = rollout_keys(self.key, 0, self.setup.asked.rollouts)
        population = Population(keys, _example(self.setup), 1)
        self.programs = self._compiled(self.setup.bounds, population, self.lanes)
        self.lanes = self.programs[0].lanes
        self.compile_seconds = time.perf_counter() - began

    def generation(
        self,
        number: int,
        overrides: Overrides,
        on_runs: OnRuns,
        is_stopped: Callable[[], bool],
    ) -> np.ndarray:
        """Train every member of a generation in every environment.

        Args:
            number: The number of the generation.
            overrides: Values that are evolved, leaves `[P, ...]`, on the host.
            on_runs: A function that is called after every chunk with its number of
                runs.
            is_stopped: A function that says whether somebody asked to stop.

        Returns:
            The fitness of every run `[E, P, R]`, float32, NaN where it failed, the same
            in every process.

        Raises:
            Stopped: `is_stopped` said so, in any process.
        """
        setup, asked = self.setup, self.setup.asked
        run, part = divmod(number, setup.per_run)
        keys = rollout_keys(self.key, run, asked.rollouts)
        population = Population(keys, overrides, asked.population)
        if asked.truncation is None:
            return self._train(self.programs, population, on_runs, is_stopped)
        if part == 0:
            self._unfinished = []  # Their memory is needed for the new ones.
            self._unfinished = [
                _Unfinished(program, population, asked.fitness, self.workers)
                for program in self.programs
            ]
        fitness = []
        for unfinished in self._unfinished:
            if is_stopped():
                raise Stopped
            fitness.append(unfinished.part(population, asked.truncation))
            on_runs(population.num_runs)
        split = (len(setup.bounds), asked.population, asked.rollouts)
        return np.stack(fitness).reshape(split)

    def measured_anchors(self, is_stopped: Callable[[], bool]) -> np.ndarray:
        """Return the returns `[E, 2]` that count 0 and 1, of the algorithm's own loss.

        Raises:
            ConfigError: a baseline that is no unit; see `purerl.meta.fitness`.
            Stopped: `is_stopped` said so, in any process.
        """
        genome = self.setup.optimiser.genome
        rollouts = max(self.setup.asked.rollouts, BASELINE_ROLLOUTS)
        population = Population(baseline_keys(self.key, rollouts), {}, 1)
        bounds = [baseline_of(bound, genome) for bound in self.setup.bounds]
        lanes = min(self.lanes, default_lanes(rollouts, self.workers[:1]))
        programs = self._compiled(bounds, population, lanes)
        fitness = self._train(programs, population, lambda _: None, is_stopped)
        return measured_anchors(fitness[:, 0], self.setup.names)

    def _compiled(
        self, bounds: Sequence[Bound], population: Population, lanes: int
    ) -> list[Program]:
        """A program per environment, at one width that fits in every process."""
        members = population.runs()

        def fitted(lanes: int) -> list[Program]:
            """The programs, all as wide as the narrowest that fits here."""
            programs = []
            for bound in bounds:
                updates = bound.plan.num_updates
                length = min(self.segment_updates or updates, updates)
                programs.append(
                    self.compiler.compile(bound, members, lanes, length, self.is_fixed)
                )
            widths = {program.lanes for program in programs}
            return programs if len(widths) == 1 else fitted(min(widths))

        programs = hosts.run_on_all(lambda: fitted(lanes))
        width = programs[0].lanes
        narrowest = int(hosts.all_min(width))
        # Another process may have less memory, and all must cut the same blocks.
        return programs if narrowest == width else fitted(narrowest)

    def _train(
        self,
        programs: Sequence[Program],
        population: Population,
        on_runs: OnRuns,
        is_stopped: Callable[[], bool],
    ) -> np.ndarray:
        """Train every member with every key in every environment.

        Under `jax.distributed` each process trains its share.
        """
        keys = jax.device_put(population.keys, jax.local_devices()[0])
        here, kind = population._replace(keys=keys), self.setup.asked.fitness
        fitness = np.zeros((len(programs), population.num_runs), np.float32)
        # The longest runs first.
        order = np.argsort([-program.steps_each for program in programs], kind="stable")
        jobs = [
            Job(programs[number], partial(here.runs, rows), (number, rows))
            for number in order.tolist()
            for rows in rows_of(
                population.num_runs, programs[number].lanes * self.chunk_blocks
            )
        ]

        def reducer(job: Job) -> Accumulator:
            plan, size = job.program.bound.plan, len(job.key[1])
            if is_own(kind):
                return OwnFitness(kind, size, plan)
            return Accumulator(kind, size, plan.num_updates)

        def keep(job: Job, total: Accumulator, cohort: Cohort) -> None:
            fitness[job.key] = total.result()
            on_runs(cohort.size)

        mine = jobs[hosts.index() :: hosts.count()]
        hosts.run_on_all(lambda: stream(mine, self.workers, reducer, keep, is_stopped))
        if hosts.all_any(np.array([is_stopped()]))[0]:
            raise Stopped
        split = (len(programs), population.size, -1)
        return hosts.all_sum(fitness).reshape(split)


def _example(setup: EvolutionSetup) -> Overrides:
    """The overrides `[1, ...]` of a member that is the config itself, on the host."""
    genome = setup.optimiser.genome
    decoded = jax.jit(genome.decode)(np.asarray(genome.start())[None])
    return jax.tree.map(np.asarray, decoded)


def planned(setup: EvolutionSetup) -> list[Part]:
    """Return what all generations train, an environment a part, for a dry run."""
    asked, each = setup.asked, setup.runs_each
    keys = rollout_keys(jax.random.key(0), 0, asked.rollouts)
    runs = Population(keys, _example(setup), 1).runs()
    of_update = [b.plan.steps_per_update * setup.updates(b) for b in setup.bounds]
    return [
        Part(bound, each, asked.generations * each * steps, runs)
        for bound, steps in zip(setup.bounds, of_update, strict=True)
    ]
