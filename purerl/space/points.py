"""A point in a config: which fields it sets, and what config comes of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from purerl import serialise
from purerl.algorithms import config_class, name_of
from purerl.config import (
    TASK_FIELDS,
    ConfigError,
    TrainConfig,
    apply_overrides,
    check_known,
    field_names,
)
from purerl.randomisation import is_random
from purerl.types import Overrides


def split(
    config: TrainConfig, point: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a point sets of static and of dynamic fields, parts parsed.

    Raises:
        ConfigError: a name that is no field.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}
    static, dynamic = {}, {}
    for name, value in point.items():
        first = name.split(".")[0]
        if name != "algorithm":
            check_known(first, list(fields), type(config).__name__)
        if name == "algorithm" or not fields[first].metadata.get("pytree_node", True):
            static[name] = value
        elif isinstance(value, str):
            dynamic[name] = _read(fields[first], name, value)
        else:
            dynamic[name] = value
    return static, dynamic


def _read(field: dataclasses.Field, name: str, text: str) -> Any:
    """Return the value of a text: a part, a number, or inside a part either of them."""
    if name == field.name:
        return serialise.parse_value(field, text)
    if field.name == "env_params":
        return serialise.parse_params(text)
    return serialise.parse_part(text)


def with_static(config: TrainConfig, static: Mapping[str, Any]) -> TrainConfig:
    """Return a config with static fields set; one dot reaches into a mapping.

    Raises:
        ConfigError: a dot into a field that holds no mapping.
    """
    for name, value in static.items():
        if name == "algorithm":
            continue
        first, dot, inner = name.partition(".")
        if dot:
            mapping = getattr(config, first)
            if not isinstance(mapping, Mapping):
                raise ConfigError(
                    f"the axis {name!r}: {first} has nothing inside; sweep {first}."
                )
            value = {**mapping, inner: value}
        config = config.replace(**{first: value})
    return config


def with_randomised(config: TrainConfig, dynamic: Mapping[str, Any]) -> TrainConfig:
    """Return a config whose environment is randomised if it is under the overrides.

    Whether numbers of an environment are drawn is structure: a program is made for
    drawn or for given ones.

    Args:
        config: Config, its static fields set.
        dynamic: Values of dynamic fields by name.
    """
    named = {n: v for n, v in dynamic.items() if n.split(".")[0] == "env_params"}
    if not named:
        return config
    params = apply_overrides(config, named).env_params
    if is_random(params) == is_random(config.env_params):
        return config
    return config.replace(env_params=params)


def resolve_point(
    config: TrainConfig, point: Mapping[str, Any]
) -> tuple[TrainConfig, Overrides]:
    """Return the config of a point's group, and the point's overrides of it."""
    base = with_algorithm(config, point.get("algorithm", name_of(config)))
    static, dynamic = split(base, point)
    return with_randomised(with_static(base, static), dynamic), dynamic


def config_at(config: TrainConfig, point: Mapping[str, Any]) -> TrainConfig:
    """Return the whole config of a point, as `purerl.run` takes it."""
    base, overrides = resolve_point(config, point)
    return apply_overrides(base, overrides)


def with_algorithm(config: TrainConfig, name: str) -> TrainConfig:
    """Return another algorithm's config for the task of `config`.

    The environment, the number of steps and the evaluations stay as they are; only
    where there are no wrappers, those without which an algorithm cannot train are
    added. Another field that both have is carried over where it is not its class's
    default; where it is, it takes the other class's default.

    Raises:
        ConfigError: no such algorithm.
    """
    if name == name_of(config):
        return config
    cls = config_class(name)
    shared = {
        field: getattr(config, field)
        for field in field_names(cls)
        if field in field_names(config)
        and (field in TASK_FIELDS or not _is_default(config, field))
    }
    if not shared["env_wrappers"]:  # PLR brings the wrapper that it needs.
        del shared["env_wrappers"]
    return cls(**shared)


def _is_default(config: TrainConfig, name: str) -> bool:
    default = serialise.plain(getattr(type(config)(), name), name)
    return serialise.plain(getattr(config, name), name) == default
