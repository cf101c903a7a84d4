"""Plain values as YAML, both ways, loaded safely."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def yaml_text(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML, in their order."""
    return yaml.safe_dump(dict(values), sort_keys=False)


def read_mapping(path: str | Path) -> dict[str, Any] | None:
    """Return the mapping that a YAML file holds (loaded safely).

    Args:
        path: The file. Where there is none, or none that holds a mapping, the result is
            None.
    """
    try:
        return mapping_of(Path(path).read_text())
    except (OSError, UnicodeDecodeError):
        return None


def mapping_of(text: str) -> dict[str, Any] | None:
    """Return the mapping that is written as YAML (loaded safely); None if it is none.

    Args:
        text: The text, such as that of `yaml_text`.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return dict(values) if isinstance(values, Mapping) else None
