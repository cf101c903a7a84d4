"""The names that results give to the values of an axis."""

import json
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError


def plain(value: Any) -> Any:
    """Return a value as people write it: Python numbers, tuples for sequences."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return plain(np.asarray(value).tolist())
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value


def label(value: Any) -> Any:
    """Return a value's name in results: numbers and strings as they are, else text."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return "-".join(str(label(inner)) for inner in value)
    return serialise.part_text(value)


def labels(values: Sequence[Any]) -> list[Any]:
    """Return a name per value; losses that are written alike get numbers."""
    names = [label(value) for value in values]
    if len(set(names)) == len(names) or not any(map(callable, values)):
        return names
    return [f"{name}#{number}" for number, name in enumerate(names)]


def distinct_labels(name: str, values: Sequence[Any]) -> list[Any]:
    """Return a name per value of an axis, no two of them alike.

    Raises:
        ConfigError: the same value twice.
    """
    names = labels(values)
    keys = identities(name, values)
    times = Counter(keys)
    twice = sorted(
        {str(label(x)) for x, key in zip(values, keys, strict=True) if times[key] > 1}
    )
    if twice:
        raise ConfigError(
            f"the axis {name!r} has {', '.join(twice)} more than once; give each value "
            "once, and more seeds for repetitions."
        )
    return names


def identities(name: str, values: Sequence[Any]) -> list[Any]:
    """Return what tells the values of an axis apart: equal values have equal ones."""
    return [_key(value, name) if callable(value) else label(value) for value in values]


def variable_of(metric: str, taken: Container[str]) -> str:
    """Return the name that results give to a training metric."""
    return f"train_{metric}" if metric in taken else metric


def in_words(value: Any) -> str:
    """Return a value's label as tables show it, a fraction to four digits."""
    name = label(value)
    return f"{name:.4g}" if isinstance(name, float) else str(name)


def in_a_line(point: Mapping[str, Any]) -> str:
    """Return a point's names and values in a line."""
    return ", ".join(f"{name}={in_words(value)}" for name, value in point.items())


def column(points: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return an axis's label at every point; equal values have equal labels."""
    keys = [_key(point[name], name) for point in points]
    different = {key: point[name] for key, point in zip(keys, points, strict=True)}
    named = dict(zip(different, labels(list(different.values())), strict=True))
    return [named[key] for key in keys]


def known_label(points: Sequence[Mapping[str, Any]], name: str, value: Any) -> Any:
    """Return the label of a value of an axis; None if no point of a design has it."""
    keys = {_key(point[name], name): i for i, point in enumerate(points)}
    place = keys.get(_key(value, name))
    return None if place is None else column(points, name)[place]


def _key(value: Any, name: str) -> str:
    return json.dumps(serialise.plain(value, name), sort_keys=True)
