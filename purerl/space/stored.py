"""Axes as plain values: how manifests hold them."""

from collections.abc import Mapping
from typing import Any

from purerl import serialise
from purerl.networks import modules
from purerl.space.axes import Axis, Choice, LogUniform, Uniform
from purerl.space.labels import plain

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
