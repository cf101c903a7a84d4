"""What an evolution is asked, checked; and its training runs, in blocks of lanes.

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

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any, ClassVar

import jax
import numpy as np

from purerl import presets, serialise
from purerl.acting.environment import resolve_env
from purerl.config import (
    ConfigError,
    TrainConfig,
    check_known,
    field_names,
    nearest_divisors,
    part_kind,
)
from purerl.execution.cohort import Cohort, Job, rows_of, stream, train_until
from purerl.execution.dry_run import Part
from purerl.execution.memory import require_together, worker_limit
from purerl.execution.programs import (
    BlockCompiler,
    Members,
    Program,
    check_divides,
    crossed,
)
from purerl.meta import strategy as strategies
from purerl.meta.fitness import (
    KINDS,
    Accumulator,
    OwnFitness,
    inner_config,
    measured_anchors,
    read_baselines,
)
from purerl.meta.genome import Genome, Names
from purerl.runner.arguments import as_seed
from purerl.runner.options import FIXED, TOLD, Saved, memory_limit_option, option
from purerl.scale import hosts
from purerl.scale.devices import Worker, as_count, default_lanes, make_workers, required
from purerl.search import fitness as kinds
from purerl.search.fitness import is_own
from purerl.space.axes import Environments, environments_option, read_environments
from purerl.sweeps.groups import check_effects
from purerl.train import Bound, bind, check_may_move
from purerl.types import Array, Overrides


@dataclasses.dataclass(frozen=True)
class EvolveOptions(Saved):
    """The options of `purerl.evolve`."""

    tool: ClassVar[str] = "evolve"

    config: TrainConfig
    evolve: Names = option(
        dataclasses.MISSING,
        "Fields to evolve, with commas between their names: value_loss; policy_loss; "
        "optimiser.params; learning_rate,entropy_coef; env_params.length.",
        doc="A field with float leaves, several, or names with scales; see "
        "`purerl.meta.genome`.",
        kind=str,
        absent="",
    )
    _: dataclasses.KW_ONLY
    strategy: str | Mapping[str, Any] | strategies.Strategy = option(
        "open-es",
        f"Evolution strategy: {', '.join(strategies.PRESETS)}, cma-es, sep-cma-es, "
        "snes, pgpe, simple-ga, or another one of evosax; options follow its name in "
        "brackets: open-es(sigma=0.05).",
        doc="The strategy: a name with options (`'cma-es(sigma=0.2)'`), a mapping, or "
        "`purerl.OpenES(...)`; see `purerl.Strategy`.",
        kind=str,
    )
    population: int = option(
        64, "Number of members of a generation.", check=required, keep=FIXED
    )
    generations: int = option(
        100,
        "Number of generations in all; what a folder holds may go on for more.",
        check=required,
    )
    rollouts: int = option(
        1,
        "Number of training runs of each member in each environment.",
        check=required,
        keep=FIXED,
    )
    fitness: Any = kinds.fitness_option(
        kinds.TRAINING_CURVE,
        KINDS,
        f"Score of a training run, one of {', '.join(KINDS)}; or a function "
        "of your own, package.module:function.",
        keep=FIXED,
    )
    environments: Environments = environments_option()
    baselines: Any = option(
        None,
        "Return of each environment that counts as 1; measured with the algorithm's "
        "own loss if not given.",
        doc="The return that counts 1 (or a pair, the returns that count 0 and 1), by "
        "environment. Measured with the algorithm's own loss where there are several "
        "environments and none are given.",
        kind=tuple[float, ...],
        absent=(),
        read=lambda values: values or None,
    )
    seed: int = option(
        0, "Seed of everything that is random.", check=as_seed, keep=FIXED
    )
    truncation: int | None = option(
        None,
        "Updates of a run that a generation trains, for persistent-es and "
        "noise-reuse-es: the next one goes on with the same runs, until they end.",
        check=as_count,
        keep=FIXED,
    )
    memory_limit: str | float | None = memory_limit_option()
    snapshot_every: int = option(
        16,
        "Generations between two snapshots of the solution, 0 for none.",
        check=lambda name, value: required(name, value) if value else 0,
        keep=TOLD,
    )


class EvolutionSetup:
    """A checked evolution.

    Args:
        asked: The options of the evolution.

    Attributes:
        asked: The options of the evolution.
        config: The config that the population starts from.
        optimiser: The strategy and the genome.
        bounds: Config, environment and plan of each environment, E of them.
        names: Names of the environments.
        anchors: The returns of each environment that count 0 and 1, `[E, 2]`, or None
            where they must be measured.
        settings: Settings that fix the result, as plain values.

    Raises:
        ConfigError: anything that cannot be evolved, or evolved so.
    """

    def __init__(self, asked: EvolveOptions) -> None:
        self.asked, self.config = asked, asked.config
        if asked.population < 2:
            raise ConfigError("population must be at least 2: members are compared.")
        tasks = read_environments(asked.config, asked.environments)
        inner = (inner_config(task.config, asked.fitness) for task in tasks)
        self.bounds: tuple[Bound, ...] = tuple(map(bind, inner))
        self.names = tuple(task.name for task in tasks)
        for bound in self.bounds:
            kinds.check_own(asked.fitness, bound)
        self.anchors = read_baselines(asked.baselines, self.names)
        strategy = strategies.read_strategy(asked.strategy)
        if len(tasks) == 1:
            self.config = tasks[0].config  # What is learned is for this one.
        genome = _genome(self.config, asked, self.bounds)
        cut = _cut(strategy, asked, self.bounds)
        self.optimiser = strategies.Optimiser(cut, genome, asked.population)
        self.settings: dict[str, Any] = asked.kept(FIXED) | {
            "evolve": genome.scales,
            "strategy": strategy.to_dict(),
            "environments": [
                {n: serialise.plain(value, n) for n, value in task.changes.items()}
                for task in tasks
                if asked.environments
            ],
            "baselines": None if self.anchors is None else self.anchors.tolist(),
        }

    @property
    def runs_each(self) -> int:
        """Training runs of a generation in an environment."""
        return self.asked.population * self.asked.rollouts

    @property
    def runs(self) -> int:
        """Training runs of a generation."""
        return len(self.bounds) * self.runs_each

    @property
    def steps(self) -> int:
        """Environment steps of a generation."""
        steps = [self.updates(b) * b.plan.steps_per_update for b in self.bounds]
        return sum(steps) * self.runs_each

    @property
    def per_run(self) -> int:
        """Generations that a training run takes part in: 1 unless it is truncated."""
        return self.bounds[0].plan.num_updates // self.updates(self.bounds[0])

    def updates(self, bound: Bound) -> int:
        """Updates of a training run in a generation."""
        return self.asked.truncation or bound.plan.num_updates


def _genome(
    config: TrainConfig, asked: EvolveOptions, bounds: Sequence[Bound]
) -> Genome:
    """The numbers that are evolved, which the config of every environment has.

    Raises:
        ConfigError: a config does not have them, nothing reads them, or they would have
            to change while agents train and cannot.
    """
    genome = Genome(config, resolve_env(config), asked.evolve)
    for bound in bounds:
        if len(bounds) > 1:
            Genome(bound.asked, bound.env, genome.scales)  # The same fields in all.
        if asked.truncation not in (None, bound.plan.num_updates):
            why = "and truncation changes numbers while agents train"
            check_may_move(bound, genome.values, why)
    runs = ((bound, genome.values) for bound in bounds)
    check_effects(runs, genome.scales, "in an evolution")
    return genome


def _cut(
    strategy: strategies.Strategy, asked: EvolveOptions, bounds: Sequence[Bound]
) -> strategies.Strategy:
    """The strategy, told how much of a run a generation trains, where runs are cut.

    Raises:
        ConfigError: runs cannot be cut so, or would stay unfinished.
    """
    updates = sorted({bound.plan.num_updates for bound in bounds})
    name, cut = strategy.name, asked.truncation
    if cut is None:
        if name in strategies.TRUNCATED:
            raise ConfigError(
                f"strategy: {name} needs truncation, the number of updates that a "
                f"generation trains: a divisor of the run's {updates[0]:,}."
            )
        return strategy
    hosts.require_one(
        "an evolution with truncation",
        "Its runs are held from generation to generation: start one per host, with a "
        "seed and a folder of its own.",
    )
    if not strategies.may_cut(name):
        raise ConfigError(
            f"truncation must be left out with {name}, which compares members with "
            "earlier ones; take persistent-es or noise-reuse-es."
        )
    if len(updates) > 1 or updates[0] % cut:
        raise ConfigError(
            f"truncation must divide the updates of a run ({updates[0]:,}), which must "
            f"be the same in all environments, got {cut:,}; take "
            f"{nearest_divisors(updates[0], cut)}, or change total_timesteps."
        )
    if asked.generations % (per_run := updates[0] // cut):
        raise ConfigError(
            f"generations must be a multiple of {per_run} with truncation={cut:,}, got "
            f"{asked.generations:,}."
        )
    reason = "a generation's part of a run is whole segments"
    check_divides(asked.segment_updates, cut, "truncation", reason)
    if asked.fitness.removeprefix(kinds.NEGATIVE) != kinds.TRAINING_CURVE:
        raise ConfigError(
            f"fitness must be {kinds.TRAINING_CURVE} with truncation, got "
            f"{asked.fitness}."
        )
    if name not in strategies.TRUNCATED:
        return strategy
    if strategy.shaping not in ("auto", "none") or strategy.sigma_decay != 1.0:
        # It adds up what the parts of a run were worth, with noise that may outlast a
        # generation.
        raise ConfigError(
            f"strategy: shaping must be none and sigma_decay 1 with {name}, got "
            f"{strategy.shaping!r} and {strategy.sigma_decay:g}."
        )
    options = {**strategy.options, "T": updates[0], "K": cut}
    return dataclasses.replace(strategy, options=options)


def baseline_of(bound: Bound, genome: Genome) -> Bound:
    """Return the same training, with the algorithm's own parts for evolved ones."""
    defaults = type(bound.asked)()
    changes = {
        name: getattr(defaults, name)
        for name in {name.split(".")[0] for name in genome.values}
        if part_kind(name) in ("loss", "rule")
    }
    return bind(bound.asked.replace(**changes))


_PRESETS = resources.files(presets) / "evolve"


def preset_names() -> tuple[str, ...]:
    """Return the names of evolutions, for `purerl evolve --preset NAME`."""
    return presets.names_in(_PRESETS)


def load_preset(name: str) -> dict[str, Any]:
    """Return arguments of `purerl.evolve`, the config among them.

    Raises:
        ConfigError: no such preset.
    """
    text = presets.find(name, _PRESETS, "evolution preset").read_text()
    values = serialise.read_yaml(text)
    for entry in values:
        check_known(str(entry), field_names(EvolveOptions), name)
    return {**values, "config": serialise.from_dict(values["config"])}


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


def all_runs(keys: Array, overrides: Overrides, size: int) -> Members:
    """Return the runs of `size` members with the same keys; rollouts are fastest."""
    return crossed(keys, overrides, np.arange(size * keys.shape[0]))


class _Unfinished:
    """The truncated runs of all members in one environment, from their beginning on."""

    def __init__(
        self, program: Program, members: Members, fitness: str, workers: list[Worker]
    ) -> None:
        num_blocks = -(-members.size // program.lanes)
        require_together(program.memory(), program.lanes, num_blocks, workers)
        self.cohort = Cohort(program, members, workers)
        self.cohort.init()
        updates = program.bound.plan.num_updates
        self.curve = Accumulator(fitness, members.size, updates)

    def part(self, overrides: Overrides, updates: int) -> np.ndarray:
        """Train some updates more; return the worth of each run in them, `[P * R]`."""
        self.cohort.set_overrides(overrides)
        before = self.curve.curve.sum(1)
        train_until(self.cohort, self.cohort.update + updates, self.curve)
        earned = self.curve.sign * (self.curve.curve.sum(1) - before) / updates
        failed = self.curve.failed | ~np.isfinite(earned)
        return np.where(failed, np.nan, earned).astype(np.float32)


class Training:
    """Compiles the programs of an evolution, and trains populations with them.

    Args:
        setup: The evolution.
        key: The key of the evolution.

    Attributes:
        lanes: The width of a block, W; chosen where none was asked for.
        is_fixed: Whether a width that does not fit is refused instead of narrowed.
        compile_seconds: Seconds that `compile` has taken.
    """

    def __init__(self, setup: EvolutionSetup, key: Array) -> None:
        self.setup, self.key, self.workers = setup, key, make_workers()
        workers = self.workers
        limit = worker_limit(setup.asked.memory_limit, workers)
        asked, is_cpu = setup.asked, workers[0].device.platform == "cpu"
        self.segment_updates = asked.segment_updates or asked.truncation
        # The blocks that a worker holds at a time, which change no bit.
        self.chunk_blocks = 1 if is_cpu else 2
        self.compiler = BlockCompiler(workers, limit / self.chunk_blocks)
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
        members = all_runs(keys, _example(self.setup), 1)
        self.programs = self._compiled(self.setup.bounds, members, self.lanes)
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
        population = keys, overrides, asked.population
        if asked.truncation is None:
            return self._train(self.programs, *population, on_runs, is_stopped)
        members = all_runs(*population)
        if part == 0:
            self._unfinished = []  # Their memory is needed for the new ones.
            self._unfinished = [
                _Unfinished(program, members, asked.fitness, self.workers)
                for program in self.programs
            ]
        fitness = []
        for unfinished in self._unfinished:
            if is_stopped():
                raise Stopped
            fitness.append(unfinished.part(members.overrides, asked.truncation))
            on_runs(members.size)
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
        keys = baseline_keys(self.key, rollouts)
        bounds = [baseline_of(bound, genome) for bound in self.setup.bounds]
        lanes = min(self.lanes, default_lanes(rollouts, self.workers[:1]))
        programs = self._compiled(bounds, all_runs(keys, {}, 1), lanes)
        fitness = self._train(programs, keys, {}, 1, lambda _: None, is_stopped)
        return measured_anchors(fitness[:, 0], self.setup.names)

    def _compiled(
        self, bounds: Sequence[Bound], members: Members, lanes: int
    ) -> list[Program]:
        """A program per environment, at one width that fits in every process."""

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
        keys: Array,
        overrides: Overrides,
        size: int,
        on_runs: OnRuns,
        is_stopped: Callable[[], bool],
    ) -> np.ndarray:
        """Train every member with every key in every environment.

        Under `jax.distributed` each process trains its share.
        """
        here, kind = (
            jax.device_put(keys, jax.local_devices()[0]),
            self.setup.asked.fitness,
        )
        num_runs = size * keys.shape[0]
        fitness = np.zeros((len(programs), num_runs), np.float32)
        # The longest runs first.
        order = np.argsort([-program.steps_each for program in programs], kind="stable")
        jobs = [
            Job(
                programs[number],
                partial(crossed, here, overrides, rows),
                (number, rows),
            )
            for number in order.tolist()
            for program in [programs[number]]
            for rows in rows_of(num_runs, program.lanes * self.chunk_blocks)
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
        split = (len(programs), size, -1)
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
    runs = all_runs(keys, _example(setup), 1)
    of_update = [b.plan.steps_per_update * setup.updates(b) for b in setup.bounds]
    return [
        Part(bound, each, asked.generations * each * steps, runs)
        for bound, steps in zip(setup.bounds, of_update, strict=True)
    ]
