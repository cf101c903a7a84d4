"""Evolutions by name, as YAML files; `purerl evolve --preset NAME`."""

import difflib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from purerl import serialise
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
_FOLDER = "purerl.presets"


def names() -> tuple[str, ...]:
    """Return the names of the presets."""
    folder = resources.files(_FOLDER) / "evolve"
    paths = [Path(item.name) for item in folder.iterdir()]
    return tuple(sorted(path.stem for path in paths if path.suffix == ".yaml"))


def load(name: str) -> dict[str, Any]:
    """Return arguments of `purerl.evolve`, the config among them.

    Raises:
        ConfigError: no such preset.
    """
    if name not in names():
        guess = difflib.get_close_matches(str(name), names(), n=1)
        hint = f" Did you mean {guess[0]!r}?" if guess else ""
        raise ConfigError(
            f"there is no evolution preset {name!r}.{hint} Presets: "
            f"{', '.join(names())}."
        )
    text = (resources.files(_FOLDER) / "evolve" / f"{name}.yaml").read_text()
    return read(yaml.safe_load(text), name)


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
