"""Evolutions by name, as YAML files; `purerl evolve --preset NAME`."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

from purerl import presets, serialise
from purerl.config import ConfigError, check_known

# What a file may hold beside the config: arguments of `purerl.evolve`.
ARGUMENTS = (
    "evolve",
    "strategy",
    "population",
    "generations",
    "rollouts",
    "fitness",
    "environments",
    "baselines",
    "seed",
)
_FOLDER = resources.files(presets) / "evolve"


def names() -> tuple[str, ...]:
    """Return the names of the presets."""
    return presets.names_in(_FOLDER)


def load(name: str) -> dict[str, Any]:
    """Return arguments of `purerl.evolve`, the config among them.

    Raises:
        ConfigError: no such preset.
    """
    text = presets.find(name, _FOLDER, "evolution preset").read_text()
    return read(serialise.read_yaml(text), name)


def read(values: Any, name: str) -> dict[str, Any]:
    """Return arguments of `purerl.evolve` from a mapping of the file's layout.

    Raises:
        ConfigError: it is no mapping, lacks the config, or has an unknown entry.
    """
    if not isinstance(values, Mapping) or "config" not in values:
        raise ConfigError(f"{name} must hold a mapping with config and evolve in it.")
    for entry in values:
        check_known(str(entry), ["config", *ARGUMENTS], name)
    return {**values, "config": serialise.from_dict(values["config"])}
