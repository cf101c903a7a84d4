"""Axes over the fields of a config."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.acting.environment import bind_params, resolve_env
from purerl.config import (
    ConfigError,
    TrainConfig,
    check_apart,
    check_mapping,
    is_number,
)
from purerl.runner.arguments import check_call
from purerl.space import stored
from purerl.space.axes import Axis, Choice, LogUniform, Uniform, read_axis
from purerl.space.labels import labels
from purerl.space.points import config_at

AXES = '{"learning_rate": purerl.loguniform(1e-4, 1e-2)}'


class FieldAxes:
    """The axes of a search: at least one, over the fields of a config.

    Attributes:
        config: The config of everything that is trained, where no axis says otherwise.
        axes: Distributions by (dotted) name of the field; a list is a choice.
        names: Labels of each choice's values, by axis.
    """

    def __init__(self, config: TrainConfig, axes: Mapping[str, Any]) -> None:
        check_call("a search", config)
        check_mapping("axes", axes, AXES)
        if not axes:
            raise ConfigError(
                f"a search needs at least one axis, got none; for example {AXES}."
            )
        self.config = config
        read = {name: read_axis(name, axis) for name, axis in axes.items()}
        self.axes: dict[str, Axis] = for_fields(config, read)
        self.names: dict[str, list[Any]] = {
            name: labels(axis.values)
            for name, axis in self.axes.items()
            if isinstance(axis, Choice)
        }

    def config_at(self, point: Mapping[str, Any]) -> TrainConfig:
        """Return the whole config of a point, as `purerl.run` takes it."""
        return config_at(self.config, point)

    def to_dict(self) -> dict[str, Any]:
        """Return the axes as plain values."""
        return stored.to_dict(self.axes)


def for_fields(config: TrainConfig, axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes, where distributions over fields with a fraction draw fractions.

    `uniform(0, 1)` of a learning rate is not 0 or 1, as it is of a number of layers.

    Raises:
        ConfigError: the name of an axis is inside another's.
    """
    check_apart(axes, "the axes name")
    found = dict(axes)
    for name, axis in axes.items():
        is_drawn = isinstance(axis, Uniform | LogUniform)
        if is_drawn and _has_fraction(config, name):
            found[name] = type(axis)(float(axis.low), float(axis.high))
    return found


def value_at(config: TrainConfig, name: str) -> Any:
    """Return the config's value under a dotted name; None if it has none.

    Numbers of the environment are those that it has with the config's put in.

    Args:
        config: The config.
        name: A name such as `learning_rate` or `env_params.length`.
    """
    first, *rest = name.split(".")
    value = getattr(config, first, None)
    if first == "env_params":
        value = bind_params(resolve_env(config), config.env_params)
    for part in rest:
        if isinstance(value, Mapping):
            value = value.get(part)
        else:
            value = getattr(value, part, None)
    return value


def _has_fraction(config: TrainConfig, name: str) -> bool:
    """Return whether a number under a dotted name may have a fraction."""
    above, _, last = name.rpartition(".")
    if _is_fraction(value_at(config, name)):
        return True
    if name.split(".")[0] == "env_params":
        return False  # A parameter keeps its dtype, whatever its class declares.
    owner = value_at(config, above) if above else config
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    # A value such as 1, None or `auto` does not say what may take its place.
    return any(
        field.name == last and (is_number(field) or _is_fraction(field.default))
        for field in fields
    )


def _is_fraction(value: Any) -> bool:
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return jnp.issubdtype(value.dtype, jnp.floating)
    return isinstance(value, float)
