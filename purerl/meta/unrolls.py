"""Training runs that are cut into parts, a part of all of them a generation.

Where runs are long, an evolution that waits for their end moves seldom. Persistent
evolution strategies (Vicol et al. 2021, arXiv:2112.13835) and noise-reuse evolution
strategies (Li et al. 2023, arXiv:2304.12180) move after every K updates, and stay
unbiased: the first sums the perturbations that a run has seen since it began, the
second holds one for the whole run.

A generation is worth what is earned in its part: the mean of the training curve there,
where the updates before a run's first episode has ended count when it has. So the mean
over a run's generations is the fitness of the whole run. All members begin their runs
together, with common random numbers, and all are held at once. Only what lies between
two runs is saved: who is stopped in the middle of one begins it again.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np

from purerl.config import ConfigError
from purerl.execution.cohort import Cohort, train_until
from purerl.execution.memory import require_together
from purerl.execution.programs import Program, check_divides
from purerl.meta.fitness import Accumulator
from purerl.meta.population import Population, Stopped, rollout_keys
from purerl.meta.setup import EvolutionSetup
from purerl.scale import hosts
from purerl.scale.devices import Worker
from purerl.types import Array, Overrides


class Run:
    """The runs of all members in one environment, from their beginning on.

    Args:
        program: The program of the environment.
        population: The members, with the keys of their runs.
        fitness: The kind of fitness.
        workers: Workers of this process.
    """

    def __init__(
        self,
        program: Program,
        population: Population,
        fitness: str,
        workers: list[Worker],
    ) -> None:
        members = population.runs(np.arange(population.num_runs))
        num_blocks = -(-members.size // program.lanes)
        require_together(program.memory(), program.lanes, num_blocks, workers)
        self.population = population
        self.cohort = Cohort(program, members, workers)
        self.cohort.init()
        updates = program.bound.plan.num_updates
        self.curve = Accumulator(fitness, members.size, updates)

    def part(self, overrides: Overrides, updates: int) -> np.ndarray:
        """Train some updates more; return the worth of each run in them, `[P * R]`.

        Args:
            overrides: Values that are evolved, leaves `[P, ...]`.
            updates: The number of updates, K.
        """
        population = self.population._replace(overrides=overrides)
        rows = np.arange(population.num_runs)
        self.cohort.set_overrides(population.runs(rows).overrides)
        before = self.curve.sum.copy()
        train_until(self.cohort, self.cohort.update + updates, self.curve)
        earned = self.curve.sign * (self.curve.sum - before) / updates
        failed = self.curve.failed | ~np.isfinite(earned)
        return np.where(failed, np.nan, earned).astype(np.float32)


class Unrolls:
    """The running runs of an evolution, in all its environments.

    Args:
        setup: The evolution, which has a truncation.
        key: The key of the evolution.
        workers: Workers of this process.
    """

    def __init__(
        self, setup: EvolutionSetup, key: Array, workers: list[Worker]
    ) -> None:
        assert setup.truncation is not None
        self.setup, self.key, self.workers = setup, key, workers
        self.updates: int = setup.truncation
        self.runs: list[Run] = []

    def generation(
        self,
        programs: list[Program],
        number: int,
        overrides: Overrides,
        on_runs: Callable[[int], None],
        is_stopped: Callable[[], bool],
    ) -> tuple[np.ndarray, Counter[str]]:
        """Train the part of a generation of every member in every environment.

        Args:
            programs: The programs of the environments.
            number: The number of the generation; the first begins runs, and every
                `setup.per_run`-th after it.
            overrides: Values that are evolved, leaves `[P, ...]`, on the host.
            on_runs: A function that is called after every environment with its number
                of runs.
            is_stopped: A function that says whether somebody asked to stop.

        Returns:
            The worth of every run `[E, P * R]`, NaN where it failed, and counts of the
            metrics that were not finite first in those.

        Raises:
            Stopped: `is_stopped` said so.
        """
        run, part = divmod(number, self.setup.per_run)
        if part == 0:
            self.runs = []  # Their memory is needed for the new ones.
            keys = rollout_keys(self.key, run, self.setup.rollouts)
            population = Population(keys, overrides, self.setup.population)
            fitness = self.setup.fitness
            self.runs = [Run(p, population, fitness, self.workers) for p in programs]
        returns = []
        for member_runs in self.runs:
            if is_stopped():
                raise Stopped
            returns.append(member_runs.part(overrides, self.updates))
            on_runs(member_runs.population.num_runs)
        reasons = Counter(filter(None, (r for x in self.runs for r in x.curve.reasons)))
        return np.stack(returns), reasons


def check_whole_runs(
    setup: EvolutionSetup, generations: int, segment_updates: int | None
) -> None:
    """Refuse truncated runs that would end within a generation, or stay unfinished.

    Args:
        setup: The evolution.
        generations: Number of generations.
        segment_updates: Updates between two checkpoints within a generation, if given.

    Raises:
        ConfigError: naming the number and its constraint; or there are several
            processes.
    """
    if setup.truncation is None:
        return
    hosts.require_one(
        "an evolution with truncation",
        "Its runs are held from generation to generation: start one per host, with a "
        "seed and a folder of its own.",
    )
    if generations % setup.per_run:
        raise ConfigError(
            f"generations must be a multiple of {setup.per_run} with truncation="
            f"{setup.truncation:,}, so that the last runs end, got {generations:,}."
        )
    reason = "a generation's part of a run is whole segments"
    check_divides(segment_updates, setup.truncation, "truncation", reason)
