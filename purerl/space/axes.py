"""Axes: what a field may take, as values or as a distribution to draw from."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.networks import modules
from purerl.space.labels import distinct_labels, plain


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
    if isinstance(axis, Uniform | LogUniform | Choice):
        return axis
    if hasattr(axis, "draw"):
        raise ConfigError(
            f"the axis {name!r} must have ends or values, got {type(axis).__name__}: "
            "use purerl.uniform, purerl.loguniform, purerl.choice or a list."
        )
    return Choice(tuple(read_values(name, axis)))


def read_values(name: str, axis: Any, may_repeat: bool = False) -> list[Any]:
    """Return an axis's values as plain Python numbers, strings, tuples, or losses.

    Raises:
        ConfigError: no list, an empty one, or the same value twice.
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
    values = [plain(value) for value in axis]
    if not values:
        raise ConfigError(f"the axis {name!r} has no values.")
    if not may_repeat:
        distinct_labels(name, values)
    return values


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
