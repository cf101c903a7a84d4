"""The parts of an evolution, checked before anything is traced or compiled."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from purerl import serialise
from purerl.acting.environment import resolve_env
from purerl.config import (
    ConfigError,
    TrainConfig,
    nearest_divisors,
    part_kind,
)
from purerl.execution.programs import check_divides
from purerl.meta import fitness as fitness_of
from purerl.meta import strategy as strategies
from purerl.meta.genome import Genome, Names
from purerl.runner.arguments import as_seed
from purerl.runner.options import (
    BEGUN,
    FIXED,
    Saved,
    memory_limit_option,
    option,
)
from purerl.scale import hosts
from purerl.scale.devices import as_count, required
from purerl.search import fitness as kinds
from purerl.space.points import Environments, read_environments
from purerl.sweeps.groups import check_effects
from purerl.train import Bound, bind, check_may_move


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
        fitness_of.KINDS,
        f"Score of a training run, one of {', '.join(fitness_of.KINDS)}; or a function "
        "of your own, package.module:function.",
        keep=FIXED,
    )
    environments: Environments = option(
        (),
        "Environments to train in; the config's own if not given.",
        doc="Names of environments, changes of the config by name, or configs; the "
        "config's own where not given.",
        kind=tuple[str, ...],
    )
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
    devices: Any = option(
        None,
        doc="Local devices to use; all of the default backend where not given.",
    )
    snapshot_every: int = option(
        16,
        "Generations between two snapshots of the solution, 0 for none.",
        check=lambda name, value: required(name, value) if value else 0,
        keep=BEGUN,
    )


class EvolutionSetup(NamedTuple):
    """A checked evolution.

    Attributes:
        asked: The options of the evolution.
        config: The config that the population starts from.
        optimiser: The strategy and the genome.
        bounds: Config, environment and plan of each environment, E of them.
        names: Names of the environments.
        anchors: The returns of each environment that count 0 and 1, `[E, 2]`, or None
            where they must be measured.
        settings: Settings that fix the result, as plain values.
    """

    asked: EvolveOptions
    config: TrainConfig
    optimiser: strategies.Optimiser
    bounds: tuple[Bound, ...]
    names: tuple[str, ...]
    anchors: Any
    settings: dict[str, Any]

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


def make_setup(asked: EvolveOptions) -> EvolutionSetup:
    """Check what was asked for, and put it together.

    Raises:
        ConfigError: anything that cannot be evolved, or evolved so.
    """
    config = asked.config
    if asked.population < 2:
        raise ConfigError("population must be at least 2: members are compared.")
    tasks = read_environments(config, asked.environments)
    inner = (fitness_of.inner_config(task.config, asked.fitness) for task in tasks)
    bounds, names = tuple(map(bind, inner)), tuple(task.name for task in tasks)
    for bound in bounds:
        kinds.check_own(asked.fitness, bound)
    anchors = fitness_of.read_baselines(asked.baselines, names)
    strategy = strategies.read_strategy(asked.strategy)
    if len(tasks) == 1:
        config = tasks[0].config  # What is learned is for this one.
    genome = _genome(config, asked, bounds)
    cut = _cut(strategy, asked, bounds)
    optimiser = strategies.Optimiser(cut, genome, asked.population)
    settings = asked.kept(FIXED) | {
        "evolve": genome.scales,
        "strategy": strategy.to_dict(),
        "environments": [
            {name: serialise.plain(value, name) for name, value in task.changes.items()}
            for task in tasks
            if asked.environments
        ],
        "baselines": None if anchors is None else anchors.tolist(),
    }
    return EvolutionSetup(asked, config, optimiser, bounds, names, anchors, settings)


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
