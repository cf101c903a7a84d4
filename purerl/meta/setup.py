"""What an evolution is made of, checked before anything is traced or compiled."""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig
from purerl.execution.fit import compile_to_fit
from purerl.execution.members import crossed
from purerl.execution.programs import Program
from purerl.meta import fitness as fitness_of
from purerl.meta import store
from purerl.meta.genome import Genome, Names
from purerl.meta.optimiser import Optimiser
from purerl.meta.strategy import Strategy, read_strategy
from purerl.runner.seeds import check_seed
from purerl.scale.devices import Worker, check_count
from purerl.storage import folders
from purerl.train import Bound, bind
from purerl.types import Array, Overrides

Environments = Sequence[str | Mapping[str, Any]]


class Setup(NamedTuple):
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

    @property
    def runs(self) -> int:
        """Training runs of a generation."""
        return len(self.bounds) * self.population * self.rollouts

    @property
    def steps(self) -> int:
        """Environment steps of a generation."""
        each = [b.plan.num_updates * b.plan.steps_per_update for b in self.bounds]
        return sum(each) * self.population * self.rollouts


def make_setup(
    config: TrainConfig,
    evolve: Names,
    strategy: str | Mapping[str, Any] | Strategy,
    population: int,
    rollouts: int,
    fitness: str,
    environments: Environments,
    baselines: Any,
    seed: int,
) -> Setup:
    """Check what was asked for.

    Args:
        config: The config that members train with.
        evolve: The name of a field, several, or names with scales.
        strategy: The strategy: a name with options, a mapping, or a `Strategy`.
        population: The number of members of a generation, P.
        rollouts: The number of training runs of each member in each environment, R.
        fitness: The kind of fitness, see `purerl.meta.fitness`.
        environments: Names of environments, or changes of the config by name.
        baselines: The returns that count 1, or pairs of returns, by environment.
        seed: The seed of everything random.

    Raises:
        ConfigError: anything that cannot be evolved, or evolved so.
    """
    check_count("population", population)
    check_count("rollouts", rollouts)
    check_seed("seed", seed)
    if population < 2:
        raise ConfigError("population must be at least 2: members are compared.")
    fitness_of.check_kind(fitness)
    changes = _changes(environments)
    bounds = tuple(
        bind(fitness_of.inner_config(config.replace(**change), fitness))
        for change in changes
    )
    labels = [_label(b.config) for b in bounds]
    repeated = len(set(labels)) < len(labels)
    labels = [f"{x} #{i}" if repeated else x for i, x in enumerate(labels)]
    anchors = fitness_of.read_baselines(baselines, labels)
    chosen = read_strategy(strategy)
    if len(changes) == 1:
        config = config.replace(**changes[0])  # What is learned is for this one.
    genome = Genome(config, resolve_env(config), evolve)
    if len(changes) > 1:
        for bound in bounds:
            Genome(bound.asked, bound.env, genome.scales)  # The same fields in all.
    settings = {
        "evolve": genome.scales,
        "strategy": chosen.to_dict(),
        "population": population,
        "rollouts": rollouts,
        "fitness": fitness,
        "environments": [
            {name: serialise.plain(value, name) for name, value in change.items()}
            for change in changes
            if environments
        ],
        "baselines": None if anchors is None else anchors.tolist(),
        "seed": seed,
    }
    optimiser = Optimiser(chosen, genome, population)
    return Setup(
        config,
        optimiser,
        bounds,
        tuple(labels),
        population,
        rollouts,
        fitness,
        anchors,
        settings,
    )


def _changes(environments: Environments) -> list[dict[str, Any]]:
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


def _label(config: TrainConfig) -> str:
    return str(serialise.plain(config.env, "env"))


def baseline_of(bound: Bound, genome: Genome) -> Bound:
    """Return the same training, with the algorithm's own losses for evolved ones."""
    fields = {field.name: field for field in dataclasses.fields(bound.asked)}
    changes = {}
    for name in {name.split(".")[0] for name in genome.values}:
        if name.endswith("_loss"):
            field = fields[name]
            has_factory = field.default is dataclasses.MISSING
            changes[name] = field.default_factory() if has_factory else field.default  # type: ignore[misc]
    return bind(bound.asked.replace(**changes))


def compile_runs(
    bound: Bound,
    keys: Array,
    overrides: Overrides,
    lanes: int,
    segment_updates: int | None,
    workers: Sequence[Worker],
    limit: float,
    is_fixed: bool,
) -> Program:
    """Compile a training run for blocks of lanes that fit the memory.

    Args:
        bound: Config, environment and plan of the runs.
        keys: Keys `[R]`, an example.
        overrides: Values that are evolved, leaves `[P, ...]`, an example.
        lanes: The width of a block, W; halved until a block fits, where it is not
            fixed.
        segment_updates: Updates of a compiled call, K; the whole run where not given.
        workers: Workers to compile for.
        limit: Bytes that a block may take.
        is_fixed: Whether to refuse a width that does not fit instead of narrowing it.

    Raises:
        ConfigError: no width fits, or not the fixed one.
    """
    updates = bound.plan.num_updates
    length = min(segment_updates or updates, updates)
    example = crossed(keys, overrides, np.arange(keys.shape[0]))
    return compile_to_fit(
        bound, example, lanes, length, workers, limit, is_fixed=is_fixed
    )


def specification(setup: Setup, generations: int, run: dict[str, Any]) -> dict:
    """Return what the manifest says of an evolution.

    Args:
        setup: The evolution.
        generations: The number of generations of the whole evolution.
        run: Settings of how it is run: lanes and updates per segment.
    """
    return {
        "kind": store.KIND,
        "format": store.FORMAT,
        "config": serialise.to_dict(setup.config),
        "auto": {
            label: bound.automatic
            for label, bound in zip(setup.names, setup.bounds, strict=True)
        },
        "settings": setup.settings,
        "generations": generations,
        **run,
        **folders.made_with(),
        "evosax": metadata.version("evosax"),
    }
