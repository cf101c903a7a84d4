"""Plain values as YAML, both ways, loaded safely."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def yaml_text(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML, in their order."""
    return yaml.safe_dump(dict(values), sort_keys=False)


def read_yaml(text: str) -> Any:
    """Return what is written as YAML, or as JSON (loaded safely).

    Args:
        text: The text, which a person may have written.

    Raises:
        yaml.YAMLError: it is neither, or a mapping in it has a key twice: of two values
            one would count, and nobody would know which.
    """
    return yaml.load(text, _Loader)  # It derives from the safe one.


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses keys which are given twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where dictionaries are made, as `<<` has put keys in by then.
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in lines:
                both = sorted({lines[name], line})
                where = f"lines {both[0]} and {both[1]}" if both[1:] else f"line {line}"
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is given twice, in {where}; leave one of "
                    "them out"
                )
            lines[name] = line
        return node


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
