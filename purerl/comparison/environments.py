"""The environments of a comparison: their names, and the fields that each changes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from purerl import serialise
from purerl.config import ENV_FIELDS, ConfigError, TrainConfig

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
        task = _read(config, entry)
        if task.name in by_name:
            raise ConfigError(
                f"environments names {task.name!r} twice; give one of them a name of "
                f"its own: {{'name': '{task.name} 2', ...}}."
            )
        by_name[task.name] = task
    tasks = list(by_name.values())
    _check_told_apart(tasks)
    return tasks


def _check_told_apart(tasks: Sequence[Task]) -> None:
    """Refuse environment objects that are written alike: scores would be mixed up.

    Raises:
        ConfigError: naming both.
    """
    known: dict[str, Task] = {}
    for task in tasks:
        env = task.config.env
        if not hasattr(env, "step"):
            continue
        other = known.setdefault(serialise.plain(env, "env"), task)
        if other.config.env is not env:
            raise ConfigError(
                f"environments: {other.name!r} and {task.name!r} are several objects "
                f"that are written alike, {serialise.plain(env, 'env')}: nothing tells "
                "their scores apart. Make them differ in an attribute that is a "
                "number, a text or an array, or make a comparison each, in a folder of "
                "its own."
            )


def _read(config: TrainConfig, entry: Any) -> Task:
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
    return Task(str(name or serialise.plain(changed.env, "env")), changed, changes)
