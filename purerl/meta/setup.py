"""The parts of an evolution, checked before anything is traced or compiled."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

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
from purerl.meta import store
from purerl.meta.genome import Genome, Names
from purerl.meta.optimiser import Optimiser
from purerl.meta.strategy import COMPARING, TRUNCATED, Strategy, read_strategy
from purerl.runner.arguments import as_seed
from purerl.scale import hosts
from purerl.scale.devices import as_count, required
from purerl.search.fitness import NEGATIVE, TRAINING_CURVE, check_fitness
from purerl.storage import folders
from purerl.sweeps.effects import check_effects
from purerl.train import Bound, bind, check_may_move

Environments = Sequence[str | Mapping[str, Any]]


class EvolutionSettings(NamedTuple):
    """The settings that fix the result of an evolution, beside its config.

    The folder keeps them by these names, as plain values.

    Attributes:
        evolve: The name of a field, several, or names with scales.
        strategy: The strategy: a name with options, a mapping, or a `Strategy`.
        population: The number of members of a generation, P.
        rollouts: The number of training runs of each member in each environment, R.
        fitness: The kind of fitness, see `purerl.meta.fitness`.
        environments: Names of environments, or changes of the config by name.
        baselines: The returns that count 1, or pairs of returns, by environment.
        seed: The seed of everything random.
        truncation: Updates of a run that a generation trains, K; None for whole runs.
    """

    evolve: Names
    strategy: str | Mapping[str, Any] | Strategy
    population: int
    rollouts: int
    fitness: str
    environments: Environments = ()
    baselines: Any = None
    seed: int = 0
    truncation: int | None = None


class EvolutionSetup(NamedTuple):
    """A checked evolution.

    Attributes:
        config: The config that the population starts from.
        optimiser: The strategy and the genome.
        bounds: Config, environment and plan of each environment, E of them.
        names: Names of the environments.
        population: The number of members, P.
        rollouts: The number of training runs of a member in each environment, R.
        fitness: The kind of fitness of a run.
        anchors: The returns of each environment that count 0 and 1, `[E, 2]`, or None
            where they must be measured.
        settings: Settings that fix the result, as plain values.
        truncation: Updates of a run that a generation trains; None for whole runs.
    """

    config: TrainConfig
    optimiser: Optimiser
    bounds: tuple[Bound, ...]
    names: tuple[str, ...]
    population: int
    rollouts: int
    fitness: str
    anchors: Any
    settings: dict[str, Any]
    truncation: int | None = None

    @property
    def runs(self) -> int:
        """Training runs of a generation."""
        return len(self.bounds) * self.population * self.rollouts

    @property
    def steps(self) -> int:
        """Environment steps of a generation."""
        steps = [self.updates(b) * b.plan.steps_per_update for b in self.bounds]
        return sum(steps) * self.population * self.rollouts

    @property
    def per_run(self) -> int:
        """Generations that a training run takes part in: 1 unless it is truncated."""
        return self.bounds[0].plan.num_updates // self.updates(self.bounds[0])

    def updates(self, bound: Bound) -> int:
        """Updates of a training run in a generation."""
        return self.truncation or bound.plan.num_updates


def make_setup(config: TrainConfig, settings: EvolutionSettings) -> EvolutionSetup:
    """Check what was asked for, and put it together.

    Raises:
        ConfigError: anything that cannot be evolved, or evolved so.
    """
    settings = settings._replace(
        population=required("population", settings.population),
        rollouts=required("rollouts", settings.rollouts),
        seed=as_seed("seed", settings.seed),
        truncation=as_count("truncation", settings.truncation),
        fitness=check_fitness(settings.fitness, fitness_of.KINDS),
    )
    if settings.population < 2:
        raise ConfigError("population must be at least 2: members are compared.")
    changes = _changes(settings.environments)
    bounds = tuple(
        bind(fitness_of.inner_config(config.replace(**change), settings.fitness))
        for change in changes
    )
    names = _names(bounds)
    anchors = fitness_of.read_baselines(settings.baselines, names)
    strategy = read_strategy(settings.strategy)
    if len(changes) == 1:
        config = config.replace(**changes[0])  # What is learned is for this one.
    if settings.truncation is not None:
        truncated = _truncated(strategy, settings, bounds)
    elif strategy.name in TRUNCATED:
        raise ConfigError(
            f"strategy: {strategy.name} needs truncation, the number of updates that a "
            "generation trains: a divisor of the run's "
            f"{min(bound.plan.num_updates for bound in bounds):,}."
        )
    else:
        truncated = strategy
    genome = _genome(config, settings, bounds)
    optimiser = Optimiser(truncated, genome, settings.population)
    compares = strategy.name in COMPARING or not optimiser.is_distribution
    if settings.truncation is not None and compares:
        raise ConfigError(
            f"truncation must be left out with {strategy.name}, which compares members "
            "with earlier ones, and so the end of a run with its beginning; take "
            "persistent-es or noise-reuse-es."
        )
    plain = settings._replace(
        evolve=genome.scales,
        strategy=strategy.to_dict(),
        environments=[
            {name: serialise.plain(value, name) for name, value in change.items()}
            for change in changes
            if settings.environments
        ],
        baselines=None if anchors is None else anchors.tolist(),
    )._asdict()
    return EvolutionSetup(
        config=config,
        optimiser=optimiser,
        bounds=bounds,
        names=names,
        population=settings.population,
        rollouts=settings.rollouts,
        fitness=settings.fitness,
        anchors=anchors,
        settings=plain,
        truncation=settings.truncation,
    )


def _changes(environments: Environments) -> list[dict[str, Any]]:
    """Changes of the config, for each environment."""
    if isinstance(environments, str | Mapping):
        environments = [environments]
    changes = []
    for entry in environments:
        if not isinstance(entry, str | Mapping):
            raise ConfigError(
                "environments: each is an id, or a mapping of fields of the config "
                f"that change, such as {{'env': 'Acrobot-v1'}}, got {entry!r}."
            )
        changes.append({"env": entry} if isinstance(entry, str) else dict(entry))
    return changes or [{}]


def _names(bounds: Sequence[Bound]) -> tuple[str, ...]:
    """Names of the environments, numbered where two are the same."""
    names = [str(serialise.plain(bound.config.env, "env")) for bound in bounds]
    if len(set(names)) < len(names):
        names = [f"{name} #{number}" for number, name in enumerate(names)]
    return tuple(names)


def _genome(
    config: TrainConfig, settings: EvolutionSettings, bounds: Sequence[Bound]
) -> Genome:
    """The numbers that are evolved, which the config of every environment has.

    Raises:
        ConfigError: a config does not have them, nothing reads them, or they would have
            to change while agents train and cannot.
    """
    genome = Genome(config, resolve_env(config), settings.evolve)
    for bound in bounds:
        if len(bounds) > 1:
            Genome(bound.asked, bound.env, genome.scales)  # The same fields in all.
        if settings.truncation not in (None, bound.plan.num_updates):
            asked = "and truncation changes numbers while agents train"
            check_may_move(bound, genome.values, asked)
    runs = ((bound, genome.values) for bound in bounds)
    check_effects(runs, genome.scales, "in an evolution")
    return genome


def _truncated(
    strategy: Strategy, settings: EvolutionSettings, bounds: Sequence[Bound]
) -> Strategy:
    """The strategy, told how long runs are and how much of them a generation trains.

    Raises:
        ConfigError: runs cannot be cut so.
    """
    updates = sorted({bound.plan.num_updates for bound in bounds})
    name, cut = strategy.name, settings.truncation
    assert cut is not None
    if name in TRUNCATED and strategy.shaping not in ("auto", "none"):
        raise ConfigError(
            f"strategy: shaping must be none with {name}, which adds up what the parts "
            f"of a run were worth, got {strategy.shaping!r}."
        )
    if name in TRUNCATED and strategy.sigma_decay != 1.0:
        raise ConfigError(
            f"strategy: sigma_decay must be 1 with {name}, whose noise may outlast a "
            f"generation, got {strategy.sigma_decay:g}."
        )
    if len(updates) > 1 or updates[0] % cut:
        lengths = ", ".join(f"{number:,}" for number in updates)
        near = f"take {nearest_divisors(updates[0], cut)}, or "
        raise ConfigError(
            f"truncation must divide the updates of a run ({lengths}), which must be "
            f"the same in all environments, got {cut:,}; "
            f"{near if len(updates) == 1 else ''}change total_timesteps, num_envs or "
            "num_steps."
        )
    if settings.fitness.removeprefix(NEGATIVE) != TRAINING_CURVE:
        raise ConfigError(
            "fitness must be training_curve or negative_training_curve with "
            f"truncation, got {settings.fitness}: a generation is worth what is "
            "earned in it."
        )
    given = [option for option in ("T", "K") if option in strategy.options]
    if given:
        raise ConfigError(
            f"strategy: {given[0]} follows from total_timesteps and truncation; leave "
            "it out."
        )
    if name not in TRUNCATED:
        return strategy
    options = {**strategy.options, "T": updates[0], "K": cut}
    return dataclasses.replace(strategy, options=options)


def check_whole_runs(
    setup: EvolutionSetup, generations: int, segment_updates: int | None
) -> None:
    """Refuse truncated runs that would end within a generation, or stay unfinished.

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


def baseline_of(bound: Bound, genome: Genome) -> Bound:
    """Return the same training, with the algorithm's own parts for evolved ones."""
    defaults = type(bound.asked)()
    changes = {
        name: getattr(defaults, name)
        for name in {name.split(".")[0] for name in genome.values}
        if part_kind(name) in ("loss", "rule")
    }
    return bind(bound.asked.replace(**changes))


def specification(setup: EvolutionSetup, generations: int, run: dict[str, Any]) -> dict:
    """Return what the manifest says of an evolution.

    Args:
        setup: The evolution.
        generations: The number of generations of the whole evolution.
        run: Settings of how it is run: lanes and updates per segment.
    """
    automatic = [bound.automatic for bound in setup.bounds]
    return {
        "kind": store.KIND,
        "format": store.FORMAT,
        "config": serialise.to_dict(setup.config),
        "auto": dict(zip(setup.names, automatic, strict=True)),
        "settings": setup.settings,
        "generations": generations,
        **run,
        **folders.made_with(),
        "evosax": metadata.version("evosax"),
    }
