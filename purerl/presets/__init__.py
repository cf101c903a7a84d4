"""Published and tuned configs by name, as YAML files beside this module."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from purerl.config import ConfigError, TrainConfig
from purerl.envs.options import guess
from purerl.serialise import from_yaml


def names() -> tuple[str, ...]:
    """Return the names of the presets."""
    return names_in(resources.files(__name__))


def load(name: str) -> TrainConfig:
    """Read the config of a preset.

    Raises:
        ConfigError: no such preset.
    """
    with resources.as_file(find(name, resources.files(__name__), "preset")) as path:
        return from_yaml(path)


def names_in(folder: Traversable) -> tuple[str, ...]:
    """Return the names of the presets in a folder of a package.

    Args:
        folder: The folder, in which every preset is a YAML file.
    """
    found = [Path(item.name) for item in folder.iterdir()]
    return tuple(sorted(path.stem for path in found if path.suffix == ".yaml"))


def find(name: str, folder: Traversable, noun: str) -> Traversable:
    """Return the file of a preset.

    Args:
        name: Name of the preset.
        folder: The folder of a package in which the presets are, see `names_in`.
        noun: The noun for such a preset, for the message.

    Raises:
        ConfigError: no such preset, with a guess at what was meant.
    """
    known = names_in(folder)
    if name not in known:
        raise ConfigError(
            f"there is no {noun} {name!r}.{guess(name, known)} Presets: "
            f"{', '.join(known)}."
        )
    return folder / f"{name}.yaml"
