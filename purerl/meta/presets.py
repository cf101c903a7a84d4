"""Evolutions by name, as YAML files; `purerl evolve --preset NAME`."""

from importlib import resources
from typing import Any

from purerl import presets, serialise
from purerl.config import check_known, field_names
from purerl.meta.setup import EvolveOptions

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
    values = serialise.read_yaml(text)
    for entry in values:
        check_known(str(entry), field_names(EvolveOptions), name)
    return {**values, "config": serialise.from_dict(values["config"])}
