"""Settings with names: changes of a config, whole configs, evolutions, schedules.

A setting becomes *pieces*: values by (dotted) name of a field with which the updates of
a run are made, from a first update on. All but schedules have one piece, from update 0.
Beside them: the environments of a comparison, and losses as they are given for one.
"""

import ast
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
    ENV_FIELDS,
    ConfigError,
    TrainConfig,
    check_known,
    field_names,
    is_auto,
    part_kind,
)
from purerl.losses import LOSSES, POLICY_LOSSES, VALUE_LOSSES
from purerl.meta.result import EvolutionResult, load_evolution
from purerl.population.schedules import ConfigSchedule
from purerl.serialise import parts
from purerl.space.points import with_algorithm

# A name, changes of the config by name (and `name`, what to call it), or a config.
Environments = Sequence[str | Mapping[str, Any] | TrainConfig]
# What a config that stands for an environment says to configs of other algorithms.
_CARRIED_FIELDS = (*ENV_FIELDS, "total_timesteps")


class Task(NamedTuple):
    """An environment in which all settings train.

    Attributes:
        name: The environment's name.
        config: The config that settings change, in this environment.
        changes: Fields that a whole config takes over from the environment, by name.
    """

    name: str
    config: TrainConfig
    changes: dict[str, Any]


def read_environments(config: TrainConfig, environments: Environments) -> list[Task]:
    """Return the environments in their order; the config's own where none are given.

    Raises:
        ConfigError: an entry of another kind, an unknown field, or two of one name.
    """
    if isinstance(environments, str | Mapping | TrainConfig):
        environments = [environments]
    by_name: dict[str, Task] = {}
    for entry in environments or [{}]:
        task = _read_environment(config, entry)
        if task.name in by_name:
            raise ConfigError(
                f"environments names {task.name!r} twice; give one of them a name of "
                f"its own: {{'name': '{task.name} 2', ...}}."
            )
        by_name[task.name] = task
    return list(by_name.values())


def _read_environment(config: TrainConfig, entry: Any) -> Task:
    name: str | None = None
    if isinstance(entry, str):
        changes: dict[str, Any] = {"env": entry}
        changed = config.replace(**changes)
    elif isinstance(entry, Mapping):
        changes = dict(entry)
        name = changes.pop("name", None)
        changed = config.replace(**changes)
    elif isinstance(entry, TrainConfig):
        if type(entry) is not type(config):
            raise ConfigError(
                f"environments: a {type(entry).__name__} stands among "
                f"{type(config).__name__}s; give the environment's name, or what it "
                "changes, and other algorithms as settings."
            )
        changes = {field: getattr(entry, field) for field in _CARRIED_FIELDS}
        changed = entry
    else:
        raise ConfigError(
            "environments takes names, changes of the config by name, and configs, got "
            f"{entry!r}."
        )
    return Task(str(name or serialise.env_name(changed.env)), changed, changes)


# A loss: an object, the path of a saved one, text such as "HuberError(delta=2.0)", or
# changes of the config by name, the field among them or not.
Losses = Mapping[str, Any]


def settings_of(config: TrainConfig, field: str, losses: Losses) -> dict[str, Any]:
    """Return the losses as settings: changes of the config by name, with the loss.

    Raises:
        ConfigError: a field that is no loss, no losses, or one that cannot be read.
    """
    check_field(config, field)
    if not isinstance(losses, Mapping) or not losses:
        raise ConfigError(
            "losses must map at least one name to a loss, such as "
            "{'squared': purerl.losses.SquaredError()}, got "
            f"{losses if not isinstance(losses, Mapping) else 'none'!r}."
        )
    settings = {}
    for name, value in losses.items():
        if isinstance(value, Mapping) and "type" not in value:
            settings[name] = {**value, field: value.get(field, getattr(config, field))}
        else:
            settings[name] = {field: read_loss(field, value)}
    return settings


def check_field(config: TrainConfig, field: str) -> None:
    """Refuse what is no loss of the config.

    Raises:
        ConfigError: naming the losses.
    """
    names = [name for name in field_names(config) if name.endswith("_loss")]
    known = [name for name in names if getattr(config, name) is not None]
    if not known:
        raise ConfigError(
            f"field: {type(config).__name__} has no loss that can be replaced; take an "
            "algorithm that has one, such as PPO."
        )
    check_known(str(field), known, f"field: {type(config).__name__}")


def read_loss(field: str, value: Any) -> Any:
    """Read a loss from its object, path, or text; the start of a name is enough.

    Raises:
        ConfigError: it cannot be read, or is the start of no name.
    """
    if isinstance(value, Path):
        return serialise.load_loss(value)
    if isinstance(value, str):
        value = _full_name(field, value.strip())
    return serialise.parse_part(value, "loss")


def _full_name(field: str, text: str) -> str:
    """The text with its loss's whole name, where only the start was given."""
    start, bracket, rest = text.partition("(")
    kinds = {
        "value_loss": VALUE_LOSSES,
        "policy_loss": POLICY_LOSSES,
    }
    known = list(kinds.get(field, {}))
    if not start.isidentifier() or start in LOSSES:
        return text
    matches = [name for name in known if name.lower().startswith(start.lower())]
    return f"{matches[0]}{bracket}{rest}" if len(matches) == 1 else text


# What a setting changes by (dotted) name of a field; a config of any algorithm; an
# evolution or its folder, for what it learned; or a schedule, as `purerl.pbt` finds it.
Settings = Mapping[
    str, Mapping[str, Any] | TrainConfig | EvolutionResult | ConfigSchedule | str | Path
]
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
        if not isinstance(field, str):
            raise ConfigError(f"{field!r} is no name of a field.")
        if field in _OTHERS_PLACE:
            raise ConfigError(f"it changes {field}, but {_OTHERS_PLACE[field]}.")
        is_loss = part_kind(field) == "loss"
        read = read_loss if is_loss else serialise.parse_text
        changes[field] = read(field, value)
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
    default = type(config)()
    for field in _CARRIED_FIELDS:
        mine, theirs = getattr(moved, field), getattr(task.config, field)
        # What it says itself, such as numbers to draw in training, is its own choice.
        is_own = not _is_same(mine, getattr(default, field), field)
        is_own = is_own and field not in ("env", "total_timesteps")
        if not is_own and not _is_same(mine, theirs, field):
            raise ConfigError(
                f"settings: {name} is a config of another task than the others': its "
                f"{field} is {serialise.plain(mine, field)!r}, and theirs in "
                f"{task.name} is {serialise.plain(theirs, field)!r}; give both the "
                "same, or set it for all in environments, such as "
                f"[{{'env': {task.name!r}, {field!r}: ...}}]."
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
            digest = hashlib.sha256(parts.pack(value)).hexdigest()
            texts[name] = {kind: serialise.part_text(value), "sha256": digest}
        elif count > MOST_NUMBERS:
            digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves))
            texts[name] = {"numbers": count, "sha256": digest.hexdigest()}
        else:
            texts[name] = serialise.plain(value, name)
    return texts


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings by name from `NAME: field=value; ...`.

    Raises:
        ConfigError: none, one that cannot be read, or a name that is given twice.
    """
    by_name: dict[str, Any] = {}
    for text in texts:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or not name:
            raise ConfigError(
                f"--setting {text!r}: write NAME: field=value; ..., such as "
                "'fast: learning_rate=1e-3'."
            )
        if name in by_name:
            raise ConfigError(f"--setting {text!r}: the name {name!r} is taken.")
        values = read_changes("--setting", text, split_parts(rest) if rest else [])
        by_name[name] = _whole(text, values)
    if not by_name:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    return by_name


def _whole(text: str, values: dict[str, Any]) -> Any:
    """The changes, or the whole config or evolution that one of them names."""
    if "evolution" in values:
        if len(values) > 1:
            raise ConfigError(
                f"--setting {text!r}: evolution says all of it; leave the others out."
            )
        return Path(str(values["evolution"]))
    for name, read in (("preset", presets.load), ("config", serialise.from_yaml)):
        if name in values:
            config = read(str(values.pop(name)))
            texts = values.items()
            return config.replace(**{n: serialise.parse_text(n, v) for n, v in texts})
    return values


def split_parts(text: str) -> list[str]:
    """Return the parts of a text between semicolons.

    Raises:
        ConfigError: nothing on one side of a semicolon.
    """
    pieces = [piece.strip() for piece in text.split(";")]
    if not all(pieces):
        raise ConfigError(f"{text!r} has nothing on one side of a semicolon.")
    return pieces


def read_changes(flag: str, text: str, pieces: Sequence[str]) -> dict[str, Any]:
    """Read values by name from `name=value` each.

    Raises:
        ConfigError: a part that is no `name=value`, or a name given twice.
    """
    values: dict[str, Any] = {}
    for piece in pieces:
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals:
            raise ConfigError(
                f"{flag} {text!r}: after a semicolon comes name=value, got {piece!r}."
            )
        if name in values:
            raise ConfigError(f"{flag} {text!r}: {name} is given twice.")
        try:
            values[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            values[name] = value
    return values


def take_environments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without every `--env`, and what these say.

    Raises:
        ConfigError: one without a value.
    """
    rest, texts, words = [], [], iter(argv)
    for word in words:
        if word == "--env":
            text = next(words, None)
            if text is None or text.startswith("--"):
                raise ConfigError("--env needs a value.")
            texts.append(text)
        elif word.startswith("--env="):
            texts.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, texts


def read_environment(config: TrainConfig, text: str) -> dict[str, Any]:
    """Read changes of the config from `Acrobot-v1; total_timesteps=2e5`.

    Raises:
        ConfigError: text that cannot be read, or an unknown field.
    """
    first, *others = split_parts(text)
    changes = read_changes("--env", text, others)
    changes = {"env": first, **changes}
    config.replace(**changes)  # An unknown field is refused here.
    if others:
        changes["name"] = text.strip()
    return changes
