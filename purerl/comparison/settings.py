"""Settings with names, and the environments in which they are compared.

A setting is changes of a config, a whole config, or an evolution. It becomes values by
(dotted) name of a field.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import presets, serialise
from purerl.config import ConfigError, TrainConfig, check_mapping, part_kind
from purerl.meta.result import EvolutionResult, load_evolution
from purerl.space.axes import literal
from purerl.space.points import CARRIED_FIELDS, Task

# What a setting changes by (dotted) name of a field; a config of any algorithm; or an
# evolution or its folder, for what it learned.
Settings = Mapping[str, Mapping[str, Any] | TrainConfig | EvolutionResult | str | Path]
# A value of at most so many numbers is written as it is.
MOST_NUMBERS = 16
_KINDS = (
    "changes of the config by name, such as {'learning_rate': 1e-3}, a config, or an "
    "evolution or its folder"
)
_OTHERS_PLACE = {
    "env": "all settings are compared in the same environments; list those in "
    "environments",
    "num_evaluations": "the measures decide that; leave it out, and ask for the "
    "measure 'evaluation'",
}


class Setting(NamedTuple):
    """One of the settings that a comparison compares.

    Attributes:
        name: The setting's name.
        values: The values that it changes, by (dotted) name of a field.
        config: The whole config, where one was given.
    """

    name: str
    values: dict[str, Any]
    config: TrainConfig | None = None

    def within(self, task: Task) -> tuple[TrainConfig, dict[str, Any]]:
        """Return the config that the setting changes in an environment, and its values.

        A whole config is itself, with what the environment says, and changes nothing.

        Raises:
            ConfigError: a whole config for another environment or number of steps.
        """
        if self.config is None:
            return task.config, self.values
        evaluations: Any = {"num_evaluations": task.config.num_evaluations}
        moved = self.config.replace(**task.changes, **evaluations)
        _check_task(moved, task)
        return moved, {}


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
    check_mapping("settings", settings, "{'fast': {'learning_rate': 1e-3}}")
    if not settings:
        raise ConfigError("settings must map at least one name to what it changes.")
    entries = []
    for name, value in settings.items():
        if not name.strip() or not name.isprintable():
            raise ConfigError(f"settings: {name!r} is no name; give a word for tables.")
        try:
            entries.append(_read(name, value))
        except ConfigError as error:
            raise ConfigError(f"settings: {name}: {error}") from None
    return entries


def _read(name: str, value: Any) -> Setting:
    if isinstance(value, TrainConfig):
        return Setting(name, {}, value)
    if isinstance(value, str | Path):
        folder = Path(value).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{str(folder)!r} is no folder; give {_KINDS}.")
        value = load_evolution(folder)
    if isinstance(value, EvolutionResult):
        # Fields as they are now; of an environment, which may set others, by name.
        learned, solution = value.learned, value.solution
        fields = {name: name.split(".")[0] for name in solution}
        value = {
            field: getattr(learned, field)
            for field in fields.values()
            if field != "env_params"
        } | {n: solution[n] for n, field in fields.items() if field == "env_params"}
    if not isinstance(value, Mapping):
        raise ConfigError(f"a setting is {_KINDS}, got {value!r}.")
    return Setting(name, _changes(value))


def _changes(values: Mapping[str, Any]) -> dict[str, Any]:
    changes = {}
    for field, value in values.items():
        if field in _OTHERS_PLACE:
            raise ConfigError(f"it changes {field}, but {_OTHERS_PLACE[field]}.")
        if part_kind(str(field)) != "loss":
            changes[field] = serialise.parse_text(field, value)
        elif isinstance(value, Path):
            changes[field] = serialise.load_part(value, "loss")
        else:
            changes[field] = serialise.parse_part(value, "loss")
    return changes


def described(setting: Setting) -> dict[str, Any]:
    """Return what a setting is, as plain values for people and for files."""
    if setting.config is not None:
        return serialise.to_dict(setting.config)
    texts = {}
    for name, value in setting.values.items():
        count = sum(map(np.size, jax.tree.leaves(value)))
        if part_kind(name) is not None and callable(value):
            texts[name] = serialise.part_text(value)
        elif count > MOST_NUMBERS:
            texts[name] = f"{count:,} numbers"
        else:
            texts[name] = serialise.plain(value, name)
    return texts


# Settings and environments as the command line writes them.


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read settings by name from `NAME: field=value; ...`.

    Raises:
        ConfigError: none, one that cannot be read, or a name that is given twice.
    """
    if not texts:
        raise ConfigError(
            "say what to compare, such as --setting 'own:' --setting "
            "'fast: learning_rate=1e-3'."
        )
    by_name: dict[str, Any] = {}
    for text in texts:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or not name or name in by_name:
            raise ConfigError(
                f"--setting {text!r}: write NAME: field=value; ..., such as "
                "'fast: learning_rate=1e-3', with another NAME each time."
            )
        values: Any = _read_changes("--setting", text, rest)
        if set(values) == {"evolution"}:
            values = Path(str(values["evolution"]))
        elif "preset" in values or "config" in values:
            is_preset = "preset" in values
            source = str(values.pop("preset" if is_preset else "config"))
            config = presets.load(source) if is_preset else serialise.from_yaml(source)
            changes = values.items()
            values = config.replace(
                **{n: serialise.parse_text(n, value) for n, value in changes}
            )
        by_name[name] = values
    return by_name


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
