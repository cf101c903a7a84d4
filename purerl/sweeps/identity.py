"""The identity of a member of a sweep: the values of its point, and its seed.

A loss that an axis names by its file is what the file holds, whatever it is called
there: another content is another member.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from purerl import serialise
from purerl.config import ConfigError, part_kind
from purerl.serialise import artifact
from purerl.space.stored import read_value


def member_id(point: Mapping[str, Any], seed: int) -> str:
    """Return a hash of a point's values (as they are, or as `written`), and a seed."""
    return digest([canonical(point), seed])


class MemberIds(Sequence[str]):
    """The ids of some points with some seeds each, made when they are asked for.

    A plan of a million members needs their number alone.

    Args:
        points: Points as a person gives them.
        seeds: Seeds of every point; they vary fastest.
    """

    def __init__(self, points: Sequence[Mapping[str, Any]], seeds: Sequence[int]):
        self._points, self._seeds = points, seeds

    def __len__(self) -> int:
        return len(self._points) * len(self._seeds)

    @cached_property
    def _all(self) -> tuple[str, ...]:
        return tuple(member_id(p, seed) for p in self._points for seed in self._seeds)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._all[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as they are hashed: plain Python, by name."""
    return {name: _plain(values[name], name) for name in sorted(values)}


def key_of(point: Mapping[str, Any]) -> str:
    """Return a hash of a point as it was given: of a file its name, not its content."""
    return digest({name: serialise.plain(x, name) for name, x in point.items()})


def written(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point as the manifest holds it, in the order of its axes."""
    return {name: _plain(value, name) for name, value in point.items()}


def read_point(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inverse of `written`: losses from their dicts, tuples from lists."""
    return {name: _read(value) for name, value in point.items()}


def check_files(point: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a point whose files of parts are no longer those that were trained with.

    Args:
        point: The point as a person gives it.
        known: The point as `written` described it before.

    Raises:
        ConfigError: naming the file.
    """
    for name, value in point.items():
        if _is_file(value, name) and _plain(value, name) != known[name]:
            raise ConfigError(
                f"{name}: the file {value} is gone, or is not the one that the sweep "
                "was trained with; put that one back."
            )


def digest(value: Any) -> str:
    """Return a short hash of plain values."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any, name: str) -> Any:
    if not _is_file(value, name):
        return serialise.plain(value, name)
    path = Path(value.strip())
    content = path.read_bytes() if path.is_file() else b""
    return {"file": value, "sha256": hashlib.sha256(content).hexdigest()}


def _is_file(value: Any, name: str) -> bool:
    is_text = isinstance(value, str) and part_kind(name) is not None
    return is_text and value.strip().endswith(artifact.SUFFIXES)


def _read(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"file", "sha256"}:
        return value["file"]
    return read_value(value)
