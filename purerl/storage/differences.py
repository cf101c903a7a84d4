"""The differences between a folder's specification and a new one, in words."""

from collections.abc import Callable, Mapping
from typing import Any


def differing(
    stored: Mapping[str, Any],
    new: Mapping[str, Any],
    text: Callable[[Any], str] = repr,
    label: str = "",
) -> list[str]:
    """Return the entries of two mappings that differ, in words.

    Args:
        stored: The mapping that a folder holds.
        new: The mapping that is asked for.
        text: A function that writes a value.
        label: The text that is written before the name of an entry.
    """
    pairs = {
        name: (stored.get(name), new.get(name)) for name in sorted({*stored, *new})
    }
    return [
        f"{label}{name} is {text(before)} there and {text(now)} here"
        for name, (before, now) in pairs.items()
        if before != now
    ]


def differing_widths(stored: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return lanes and segments that were asked for and are not those of the folder."""
    return [
        f"{name} is {stored[name]} there and {new[f'{name}_asked']} here"
        for name in ("lanes", "segment_updates")
        if new.get(f"{name}_asked") and stored[name] != new[f"{name}_asked"]
    ]
