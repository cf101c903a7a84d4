"""Settings with names: changes of a config, whole configs, evolutions, schedules.

A setting becomes *pieces*: values by (dotted) name of a field with which the updates of
a run are made, from a first update on. All but schedules have one piece, from update 0.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.algorithms import name_of
from purerl.comparison.environments import Task
from purerl.comparison.losses import read_loss
from purerl.config import (
    ENV_FIELDS,
    ConfigError,
    TrainConfig,
    field_names,
    is_auto,
    part_kind,
)
from purerl.meta.result import EvolutionResult, load_evolution
from purerl.population.schedule import Schedule
from purerl.serialise import artifact
from purerl.space.points import with_algorithm

# What a setting changes by (dotted) name of a field; a config of any algorithm; an
# evolution or its folder, for what it learned; or a schedule, as `purerl.pbt` finds it.
Settings = Mapping[
    str, Mapping[str, Any] | TrainConfig | EvolutionResult | Schedule | str | Path
]
# A value of at most so many numbers is written as it is, a larger one by its hash.
MOST_NUMBERS = 16
_KINDS = (
    "changes of the config by name, such as {'learning_rate': 1e-3}, a config, an "
    "evolution or its folder, or a purerl.Schedule"
)
_OTHERS_PLACE = {
    "env": "all settings are compared in the same environments; list those in "
    "environments",
    "num_evaluations": "the measures decide that; leave it out, and ask for the "
    "measure 'evaluation'",
}


class Piece(NamedTuple):
    """Values with which some updates of a run are made.

    Attributes:
        first: The number of the first update that is made with the values.
        values: The values by (dotted) name of a field.
    """

    first: int
    values: dict[str, Any]


class Setting(NamedTuple):
    """One of the settings that a comparison compares.

    Attributes:
        name: The setting's name.
        pieces: The pieces that the setting changes, in the order of a run; none for a
            whole config.
        config: The whole config, where one was given.
    """

    name: str
    pieces: tuple[Piece, ...]
    config: TrainConfig | None = None

    def within(self, task: Task) -> tuple[TrainConfig, tuple[Piece, ...]]:
        """Return the config that the setting changes in an environment, and its pieces.

        A whole config is what it changes of the task's one, in the algorithm of its
        own: so several of an algorithm that differ in numbers are one program.

        Raises:
            ConfigError: a whole config for another environment or number of steps.
        """
        if self.config is None:
            return task.config, self.pieces
        moved = _moved(self.name, self.config, task)
        start = with_algorithm(task.config, name_of(moved))
        # No number can be `auto` beside others that are not: the program differs.
        automatic = {n: v for n, v in _fields(moved).items() if is_auto(v)}
        start = start.replace(**automatic)
        before = _fields(start)
        changed = {
            name: value
            for name, value in _fields(moved).items()
            if not _is_same(value, before[name], name)
        }
        return start, (Piece(0, changed),)


def read_settings(settings: Settings) -> list[Setting]:
    """Return the settings in their order, losses read.

    Raises:
        ConfigError: none of them, a name that is none, one of another kind, a loss or
            an evolution that cannot be read, or a change of the environment.
    """
    if not isinstance(settings, Mapping) or not settings:
        raise ConfigError(
            "settings must map at least one name to what it changes, such as "
            "{'fast': {'learning_rate': 1e-3}}, got "
            f"{settings if not isinstance(settings, Mapping) else 'none'!r}."
        )
    entries = []
    for name, value in settings.items():
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ConfigError(f"settings: {name!r} is no name; give a word for tables.")
        try:
            entries.append(_read(name, value))
        except ConfigError as error:
            raise ConfigError(f"settings: {name}: {error}") from None
    return entries


def _read(name: str, value: Any) -> Setting:
    if isinstance(value, TrainConfig):
        return Setting(name, (), value)
    if isinstance(value, Schedule):
        values = map(_changes, value.values)
        pieces = map(Piece, value.first_updates, values)
        return Setting(name, _checked(tuple(pieces)))
    if isinstance(value, str | Path):
        value = Path(value).expanduser()
        if not value.is_dir():
            raise ConfigError(f"{str(value)!r} is no folder; give {_KINDS}.")
        value = load_evolution(value)
    if isinstance(value, EvolutionResult):
        value = _evolved(value)
    if not isinstance(value, Mapping):
        raise ConfigError(f"a setting is {_KINDS}, got {value!r}.")
    return Setting(name, (Piece(0, _changes(value)),))


def _changes(values: Mapping[str, Any]) -> dict[str, Any]:
    changes = {}
    for field, value in values.items():
        if not isinstance(field, str):
            raise ConfigError(f"{field!r} is no name of a field.")
        if field in _OTHERS_PLACE:
            raise ConfigError(f"it changes {field}, but {_OTHERS_PLACE[field]}.")
        is_loss = part_kind(field) == "loss"
        read = read_loss if is_loss else serialise.parse_text
        changes[field] = read(field, value)
    return changes


def _checked(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    firsts = [piece.first for piece in pieces]
    if not firsts or firsts[0] != 0 or sorted(set(firsts)) != firsts:
        raise ConfigError(f"a schedule begins at update 0 and ascends, got {firsts}.")
    if any(set(piece.values) != set(pieces[0].values) for piece in pieces):
        names = [sorted(piece.values) for piece in pieces]
        raise ConfigError(
            f"every piece of a schedule must set the same fields, got {names}."
        )
    return pieces


def _evolved(result: EvolutionResult) -> dict[str, Any]:
    """Return the learned fields as they are now, and learned parameters by name."""
    changes = {}
    for name, value in result.solution.items():
        field = name.split(".")[0]
        if field == "env_params":  # An environment may set others of them.
            changes[name] = value
        else:
            changes[field] = getattr(result.learned, field)
    return changes


def _moved(name: str, config: TrainConfig, task: Task) -> TrainConfig:
    """A whole config in an environment, with as many steps as all others there."""
    known = field_names(config)
    for field in task.changes:
        if field not in known:
            raise ConfigError(
                f"settings: {name} is a {type(config).__name__}, which has no field "
                f"{field!r} that the environment {task.name!r} changes; take it out "
                "of environments, and set it in the settings that have it."
            )
    moved = config.replace(
        **task.changes, **{"num_evaluations": task.config.num_evaluations}
    )
    if not _is_same(moved.env, task.config.env, "env"):
        raise ConfigError(
            f"settings: {name} is a config of another environment "
            f"({serialise.plain(moved.env, 'env')}) than {task.name}; name it in "
            f"environments, such as environments=[{task.name!r}], for all settings."
        )
    # What it says itself, such as numbers to draw in training, is its own choice.
    default = type(config)()
    for field in ENV_FIELDS:
        mine, theirs = getattr(moved, field), getattr(task.config, field)
        is_default = _is_same(mine, getattr(default, field), field)
        if is_default and not _is_same(mine, theirs, field):
            raise ConfigError(
                f"settings: {name} is a config of another environment than the "
                f"others': its {field} is {serialise.plain(mine, field)!r}, the "
                f"default, and theirs is {serialise.plain(theirs, field)!r}; give "
                "both the same, or set it for all in environments."
            )
    if moved.total_timesteps != task.config.total_timesteps:
        raise ConfigError(
            f"settings: {name} is a config of {moved.total_timesteps:,} steps, and "
            f"config has {task.config.total_timesteps:,}; give both the same "
            "total_timesteps, or set it for all in environments, such as "
            f"{{'env': {task.name!r}, 'total_timesteps': ...}}."
        )
    return moved


def _fields(config: TrainConfig) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}


def _is_same(one: Any, other: Any, name: str) -> bool:
    if hasattr(one, "step") or hasattr(other, "step"):  # environments as objects
        # Equal is not alike: a class inherits a dataclass's comparison of its fields.
        if one is other or not one == other:
            return one is other
    return serialise.plain(one, name) == serialise.plain(other, name)


def described(setting: Setting) -> dict[str, Any]:
    """Return what a setting is, as plain values for people and for files."""
    if setting.config is not None:
        return serialise.to_dict(setting.config)
    if len(setting.pieces) == 1:
        return _described(setting.pieces[0].values)
    pieces = setting.pieces
    return {"schedule": {str(p.first): _described(p.values) for p in pieces}}


def _described(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name: what is long by a digest that tells networks apart."""
    texts = {}
    for name, value in values.items():
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(value)]
        count = sum(leaf.size for leaf in leaves)
        kind = part_kind(name)
        if kind in ("loss", "rule") or (kind == "optimiser" and count > MOST_NUMBERS):
            digest = hashlib.sha256(artifact.pack(value)).hexdigest()
            texts[name] = {kind: serialise.part_text(value), "sha256": digest}
        elif count > MOST_NUMBERS:
            digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves))
            texts[name] = {"numbers": count, "sha256": digest.hexdigest()}
        else:
            texts[name] = serialise.plain(value, name)
    return texts
