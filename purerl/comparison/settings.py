"""Settings with names, and the environments in which they are compared.

A setting is changes of a config, a whole config, an evolution or a schedule. It becomes
*pieces*: values by (dotted) name of a field with which the updates of a run are made,
from a first update on. All but schedules have one piece, from update 0.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import presets, serialise
from purerl.algorithms import name_of
from purerl.config import (
    ConfigError,
    TrainConfig,
    check_known,
    field_names,
    is_auto,
    part_kind,
)
from purerl.meta.result import EvolutionResult, load_evolution
from purerl.population.schedules import ConfigSchedule
from purerl.serialise import parts
from purerl.space.axes import literal
from purerl.space.points import CARRIED_FIELDS, Task, with_algorithm

# What a setting changes by (dotted) name of a field; a config of any algorithm; an
# evolution or its folder, for what it learned; or a schedule, as `purerl.pbt` finds it.
Settings = Mapping[
    str, Mapping[str, Any] | TrainConfig | EvolutionResult | ConfigSchedule | str | Path
]
# A loss: an object, the path of a saved one, text such as "HuberError(delta=2.0)", or
# changes of the config by name, the field among them or not.
Losses = Mapping[str, Any]
# A value of at most so many numbers is written as it is, a larger one by its hash.
MOST_NUMBERS = 16
_KINDS = (
    "changes of the config by name, such as {'learning_rate': 1e-3}, a config, an "
    "evolution or its folder, or a purerl.ConfigSchedule"
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
        evaluations: Any = {"num_evaluations": task.config.num_evaluations}
        moved = self.config.replace(**task.changes, **evaluations)
        _check_task(moved, task)
        values = {f.name: getattr(moved, f.name) for f in dataclasses.fields(moved)}
        # No number can be `auto` beside others that are not: the program differs.
        automatic = {name: value for name, value in values.items() if is_auto(value)}
        start = with_algorithm(task.config, name_of(moved)).replace(**automatic)
        changed = {
            name: value
            for name, value in values.items()
            if not _is_same(value, getattr(start, name), name)
        }
        return start, (Piece(0, changed),)


def _check_task(config: TrainConfig, task: Task) -> None:
    """Refuse a whole config for another environment or number of steps."""
    default = type(config)()
    for field in CARRIED_FIELDS:
        mine, theirs = getattr(config, field), getattr(task.config, field)
        # What it says itself, such as numbers to draw in training, is its own choice.
        is_own = not _is_same(mine, getattr(default, field), field)
        is_own = is_own and field not in ("env", "total_timesteps")
        if not is_own and not _is_same(mine, theirs, field):
            raise ConfigError(
                f"it is a config of another task than the others': its {field} is "
                f"{serialise.plain(mine, field)!r}, and theirs in {task.name} is "
                f"{serialise.plain(theirs, field)!r}; give both the same, or set it "
                "for all in environments."
            )


def _is_same(one: Any, other: Any, name: str) -> bool:
    if hasattr(one, "step") or hasattr(other, "step"):  # environments as objects
        # Equal is not alike: a class inherits a dataclass's comparison of its fields.
        if one is other or not one == other:
            return one is other
    return serialise.plain(one, name) == serialise.plain(other, name)


def read_settings(settings: Settings) -> list[Setting]:
    """Return the settings in their order, losses read.

    Raises:
        ConfigError: none of them, a name that is none, one of another kind, a loss or
            an evolution that cannot be read, or a change of the environment.
    """
    if not isinstance(settings, Mapping) or not settings:
        raise ConfigError(
            "settings must map at least one name to what it changes, such as "
            f"{{'fast': {{'learning_rate': 1e-3}}}}, got {settings!r}."
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
    if isinstance(value, ConfigSchedule):
        value.check()
        values = map(_changes, value.values)
        return Setting(name, tuple(map(Piece, value.first_updates, values)))
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
        if field in _OTHERS_PLACE:
            raise ConfigError(f"it changes {field}, but {_OTHERS_PLACE[field]}.")
        is_loss = part_kind(str(field)) == "loss"
        read = read_loss(value) if is_loss else serialise.parse_text(field, value)
        changes[field] = read
    return changes


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


def read_loss(value: Any) -> Any:
    """Read a loss from its object, path, or text.

    Raises:
        ConfigError: it cannot be read.
    """
    if isinstance(value, Path):
        return serialise.load_loss(value)
    return serialise.parse_part(value, "loss")


def settings_of(config: TrainConfig, field: str, losses: Losses) -> dict[str, Any]:
    """Return the losses as settings: changes of the config by name, with the loss.

    Raises:
        ConfigError: a field that is no loss, no losses, or one that cannot be read.
    """
    known = [
        name
        for name in field_names(config)
        if part_kind(name) == "loss" and getattr(config, name) is not None
    ]
    check_known(str(field), known, f"field: {type(config).__name__}'s losses: it")
    if not isinstance(losses, Mapping) or not losses:
        raise ConfigError(
            "losses must map at least one name to a loss, such as "
            f"{{'squared': purerl.losses.SquaredError()}}, got {losses!r}."
        )
    settings = {}
    for name, value in losses.items():
        if isinstance(value, Mapping) and "type" not in value:
            settings[name] = {field: getattr(config, field), **value}
        else:
            settings[name] = {field: read_loss(value)}
    return settings


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
            digest = hashlib.sha256(parts.pack(value)).hexdigest()
            texts[name] = {kind: serialise.part_text(value), "sha256": digest}
        elif count > MOST_NUMBERS:
            digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves))
            texts[name] = {"numbers": count, "sha256": digest.hexdigest()}
        else:
            texts[name] = serialise.plain(value, name)
    return texts


# Settings and environments as the command line writes them.


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings by name from `NAME: field=value; ...`.

    Raises:
        ConfigError: none, one that cannot be read, or a name that is given twice.
    """
    by_name: dict[str, Any] = {}
    for text in texts:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or not name or name in by_name:
            raise ConfigError(
                f"--setting {text!r}: write NAME: field=value; ..., such as "
                "'fast: learning_rate=1e-3', with another NAME each time."
            )
        by_name[name] = _whole(_read_changes("--setting", text, rest))
    if not by_name:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    return by_name


def _whole(values: dict[str, Any]) -> Any:
    """The changes, or the whole config or evolution that one of them names."""
    if set(values) == {"evolution"}:
        return Path(str(values["evolution"]))
    for name, read in (("preset", presets.load), ("config", serialise.from_yaml)):
        if name in values:
            config = read(str(values.pop(name)))
            texts = values.items()
            return config.replace(**{n: serialise.parse_text(n, v) for n, v in texts})
    return values


def parse_environments(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Read environments such as `Acrobot-v1; total_timesteps=2e5`.

    Raises:
        ConfigError: one that cannot be read.
    """
    environments = []
    for text in texts:
        env, _, rest = text.partition(";")
        changes = _read_changes("--environment", text, rest)
        named = {"name": text.strip()} if changes else {}
        environments.append({"env": env.strip(), **changes, **named})
    return environments


def _read_changes(flag: str, text: str, changes: str) -> dict[str, Any]:
    """Read values by name from `name=value; name=value`."""
    values: dict[str, Any] = {}
    for piece in filter(None, map(str.strip, changes.split(";"))):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or name in values:
            raise ConfigError(
                f"{flag} {text!r}: between semicolons stands name=value, each name "
                f"once, got {piece!r}."
            )
        values[name] = literal(value)
    return values
