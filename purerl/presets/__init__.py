"""Published and tuned configs by name, as YAML files beside this module."""

from __future__ import annotations

import difflib
from importlib import resources
from pathlib import Path

from purerl.config import ConfigError, TrainConfig
from purerl.serialise import from_yaml


def names() -> tuple[str, ...]:
    """Return the names of the presets."""
    folder = resources.files(__name__)
    found = [Path(item.name) for item in folder.iterdir()]
    return tuple(sorted(path.stem for path in found if path.suffix == ".yaml"))


def load(name: str) -> TrainConfig:
    """Read the config of a preset.

    Raises:
        ConfigError: no such preset.
    """
    if name not in names():
        guess = difflib.get_close_matches(str(name), names(), n=1)
        hint = f" Did you mean {guess[0]!r}?" if guess else ""
        raise ConfigError(
            f"there is no preset {name!r}.{hint} Presets: {', '.join(names())}."
        )
    with resources.as_file(resources.files(__name__) / f"{name}.yaml") as path:
        return from_yaml(path)
