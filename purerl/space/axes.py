"""Axes: what a field may take, as values or as a distribution to draw from.

And the names that results give to the values of an axis.
"""

import json
import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, part_kind
from purerl.envs.base import is_env
from purerl.networks import modules
from purerl.serialise import parts


class Uniform(NamedTuple):
    """Numbers between two ends; whole ones where both ends are whole numbers."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value; whole numbers include the upper end."""
        if is_whole(self):
            return int(rng.integers(int(self.low), int(self.high) + 1))
        return float(rng.uniform(self.low, self.high))


class LogUniform(NamedTuple):
    """Positive numbers whose logarithm is uniform; whole ones as in `Uniform`."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value."""
        if is_whole(self):
            # Every whole number gets the share of its interval [k - 1/2, k + 1/2].
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return int(np.clip(round(math.exp(rng.uniform(low, high))), *self))
        low, high = math.log(self.low), math.log(self.high)
        return float(np.clip(math.exp(rng.uniform(low, high)), *self))


class Choice(NamedTuple):
    """One of some values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one value."""
        return self.values[int(rng.integers(len(self.values)))]


# What a search can move along; a sweep draws from whatever has `draw(rng)`.
Axis = Uniform | LogUniform | Choice


def uniform(low: float, high: float) -> Uniform:
    """Draw an axis's values evenly between two ends.

    Where both are whole numbers (`uniform(1, 8)`) so is what is drawn, ends included,
    unless the field is a number with a fraction: then it is as `uniform(1.0, 8.0)`.

    Raises:
        ConfigError: ends that are not finite and ascending.
    """
    _check_ends("uniform", low, high)
    return Uniform(plain(low), plain(high))


def loguniform(low: float, high: float) -> LogUniform:
    """Draw an axis's values evenly on a logarithmic scale; whole ones as in `uniform`.

    Raises:
        ConfigError: ends that are not positive, finite and ascending.
    """
    _check_ends("loguniform", low, high)
    if low <= 0:
        raise ConfigError(f"loguniform needs positive ends, got {low}; use uniform.")
    return LogUniform(plain(low), plain(high))


def choice(values: Sequence[Any]) -> Choice:
    """Draw an axis's values from some.

    Raises:
        ConfigError: there are none.
    """
    listed = tuple(plain(value) for value in values)
    if not listed:
        raise ConfigError("choice needs at least one value, got none.")
    return Choice(listed)


def _check_ends(name: str, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"{name} needs two finite ends, the lower one first, got {low} and {high}."
        )


def is_whole(axis: Uniform | LogUniform) -> bool:
    """Return whether an axis has whole numbers only."""
    return isinstance(axis.low, int) and isinstance(axis.high, int)


def ends(axis: Axis) -> tuple[Any, ...]:
    """Return what stands for a whole axis: its two ends, or all values of a choice."""
    return axis.values if isinstance(axis, Choice) else tuple(axis)


def read_axis(name: str, axis: Any) -> Axis:
    """Return an axis that a search can move along; a list is a choice.

    Raises:
        ConfigError: another distribution, or see `read_values`.
    """
    if isinstance(axis, Uniform | LogUniform):
        return axis
    if isinstance(axis, Choice):
        return Choice(tuple(read_values(name, axis.values, may_repeat=True)))
    if hasattr(axis, "draw"):
        raise ConfigError(
            f"the axis {name!r} must have ends or values, got {type(axis).__name__}: "
            "use purerl.uniform, purerl.loguniform, purerl.choice or a list."
        )
    return Choice(tuple(read_values(name, axis)))


def check_apart(name: str, values: Sequence[Any]) -> None:
    """Refuse environment objects that are written alike: members would be mixed up."""
    known: dict[str, Any] = {}
    for env in filter(is_env, values):
        text = serialise.env_text(env)
        if known.setdefault(text, env) is not env:
            raise ConfigError(
                f"the axis {name!r} has several objects that are written alike, "
                f"{text}: nothing tells their results apart."
            )


def read_values(name: str, axis: Any, may_repeat: bool = False) -> list[Any]:
    """Return an axis's values as plain Python numbers, strings, tuples, or losses.

    Raises:
        ConfigError: no list, an empty one, the same value twice, or environment objects
            that nothing tells apart.
    """
    if isinstance(axis, str) or not hasattr(axis, "__iter__"):
        raise ConfigError(
            f"the axis {name!r} must be a list of values, got {axis!r}; for example "
            f"[{axis!r}]."
        )
    if isinstance(axis, set | frozenset):
        raise ConfigError(
            f"the axis {name!r} must be a list of values, got a set, whose order may "
            "differ from process to process."
        )
    values = [_of_file(name, plain(value)) for value in axis]
    if not values:
        raise ConfigError(f"the axis {name!r} has no values.")
    check_apart(name, values)
    if not may_repeat:
        distinct_labels(name, values)
    return values


def _of_file(name: str, value: Any) -> Any:
    """Return the part that a file holds, which may change; other values as they are."""
    kind = part_kind(name) if isinstance(value, str) else None
    is_file = kind is not None and value.strip().endswith(parts.SUFFIXES)
    return serialise.parse_part(value, kind or "") if is_file else value


_KINDS = {"uniform": Uniform, "loguniform": LogUniform}


def to_dict(axes: Mapping[str, Axis]) -> dict[str, Any]:
    """Return axes as plain values, by name.

    Raises:
        ConfigError: a value that no file can hold.
    """
    return {name: _written(name, axis) for name, axis in axes.items()}


def from_dict(stored: Mapping[str, Any]) -> dict[str, Axis]:
    """Return the axes that `to_dict` wrote."""
    return {name: _read(axis) for name, axis in stored.items()}


def read_value(value: Any) -> Any:
    """Return a value of an axis that `serialise.plain` wrote.

    Dictionaries of parts and networks are these again, distributions among parameters
    of an environment too, and lists are tuples. Other text stays text: the name of an
    algorithm, say, or a loss as a person wrote it.
    """
    if modules.is_written(value):
        return modules.parse("axis", value)
    if isinstance(value, Mapping) and "type" in value:
        return serialise.parse_part(value)
    if isinstance(value, Mapping):
        return {name: read_value(inner) for name, inner in value.items()}
    return plain(value)


def _written(name: str, axis: Axis) -> dict[str, Any]:
    if isinstance(axis, Choice):
        values = [serialise.plain(value, name) for value in axis.values]
        return {"kind": "choice", "values": values}
    kind = next(kind for kind, cls in _KINDS.items() if isinstance(axis, cls))
    return {"kind": kind, "low": axis.low, "high": axis.high}


def _read(stored: Mapping[str, Any]) -> Axis:
    if stored["kind"] == "choice":
        return Choice(tuple(map(read_value, stored["values"])))
    return _KINDS[stored["kind"]](stored["low"], stored["high"])


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
    """Return what tells the values of an axis apart: equal values have equal ones.

    An environment object is itself; those that are written alike a design refuses.
    """

    def identity(value: Any) -> Any:
        if hasattr(value, "step"):
            return id(value)
        return _key(value, name) if callable(value) else label(value)

    return list(map(identity, values))


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
