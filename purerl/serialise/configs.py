"""Whole configs as plain dicts and YAML files, both ways, and values as text."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from purerl import schedules
from purerl.atomic import write_atomic
from purerl.config import (
    AUTO,
    Auto,
    ConfigError,
    TrainConfig,
    check_known,
    is_auto,
    is_number,
    may_be_none,
    part_kind,
)
from purerl.config.fields import is_real
from purerl.networks import modules
from purerl.serialise.parts import parse_part, parse_terms
from purerl.serialise.text import plain
from purerl.serialise.yaml_text import read_file, read_yaml, yaml_text


def parse_value(field: dataclasses.Field, value: Any) -> Any:
    """Read the value of a config's field as files and command lines write it.

    Args:
        field: Field of the config, which says what it holds.
        value: Value: a part by its dict or text, a number (or its text), or as it is.

    Raises:
        ConfigError: no such part, or no number.
    """
    kind = part_kind(field.name)
    if field.name == "env_params":
        return parse_params(value)
    if field.name == "env" and isinstance(value, Mapping):
        return modules.parse("env", value)
    if isinstance(field.default, Auto) and is_auto(value):
        return AUTO
    if value is None:
        return value
    if value == "None" and (field.default is None or may_be_none(field)):
        return None  # as a command line writes it
    if field.name == "extra_loss":
        return parse_terms(value)
    if kind is not None:
        return parse_part(value, kind)
    if is_number(field) or field.type in (int, "int"):
        return _number(field.name, value)
    return tuple(value) if isinstance(value, list) else value


def parse_params(value: Any) -> Any:
    """Read parameters of an environment, distributions among them, at any depth.

    Args:
        value: Mapping of names to values, a value, or the text or dict of a
            distribution.

    Raises:
        ConfigError: a distribution that cannot be read.
    """
    if isinstance(value, str) and "(" in value:
        return parse_part(value, "distribution")
    if not isinstance(value, Mapping):
        return None if value == "None" else value
    if "type" in value:
        return parse_part(value, "distribution")
    return {name: parse_params(inner) for name, inner in value.items()}


def parse_text(name: str, value: Any) -> Any:
    """Read a value of which only the field's name is known; others stay as they are.

    Args:
        name: Name of a field of a config.
        value: Value: text of an optimiser or of a schedule, or anything else.

    Raises:
        ConfigError: a part that cannot be read.
    """
    if not isinstance(value, str):
        return value
    if name == "extra_loss":
        return parse_terms(value)
    kind = part_kind(name)
    if kind is None and schedules.SCHEDULES.keys().isdisjoint([value.split("(")[0]]):
        return value
    return parse_part(value, kind or "schedule")


def _number(name: str, value: Any) -> Any:
    """A number from its text, or a schedule from its text or its dict."""
    if isinstance(value, Mapping) and "type" in value:
        return parse_part(value, "schedule")
    if not isinstance(value, str):
        return value
    with contextlib.suppress(ValueError):
        return float(value)
    if "(" in value or value.strip() in schedules.SCHEDULES:
        return parse_part(value, "schedule")
    raise ConfigError(
        f"{name} must be a number, got {value!r}; a schedule is written with its "
        "numbers, such as Cosine(1e-3)."
    )


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Turn the config into plain Python values, with `algorithm` naming its class.

    A part that is not registered is written with the import path of its class, and is
    read where that module has been imported.

    Raises:
        ConfigError: a function or a class among the values, or a network that no file
            can hold.
    """
    from purerl.algorithms import name_of

    _check_kwargs(config.env_kwargs, "env_kwargs")
    values = {
        field.name: plain(getattr(config, field.name), field.name)
        for field in dataclasses.fields(config)
    }
    return {"algorithm": name_of(config), **values}


def _check_kwargs(value: Any, where: str) -> None:
    """Refuse options of an environment that would be others when they are read again.

    Raises:
        ConfigError: naming the option.
    """
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        for name, inner in value.items():
            _check_kwargs(inner, f"{where}.{name}")
        return
    if isinstance(value, list | tuple):
        for inner in value:
            _check_kwargs(inner, where)
        return
    if not (
        isinstance(value, str | float | int | os.PathLike | None) or is_real(value)
    ):
        kind = type(value).__name__
        kind += " whose keys are not texts" * isinstance(value, Mapping)
        raise ConfigError(
            f"{where} holds a value of type {kind}, which no file can hold: give "
            "numbers, texts and lists of such from which the environment makes it, or "
            "the environment itself as env."
        )


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """Read the config that `to_dict` wrote; missing fields keep their defaults.

    Raises:
        ConfigError: an unknown algorithm, field or loss, or a name that is no text.
    """
    from purerl.algorithms import config_class

    values = dict(values)
    odd = [name for name in values if not isinstance(name, str)]
    if odd:
        raise ConfigError(
            f"the names of a config's fields are texts, got {odd[0]!r}; leave it out, "
            "or put the name in quotes where it was meant as a text."
        )
    cls = config_class(values.pop("algorithm", "ppo"))
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        check_known(name, list(fields), cls.__name__)
    return cls(**{name: parse_value(fields[name], v) for name, v in values.items()})


def to_yaml(config: TrainConfig, path: str | Path) -> None:
    """Write the config as YAML, atomically."""
    write_atomic(path, yaml_text(to_dict(config)))


def from_yaml(path: str | Path) -> TrainConfig:
    """Read a config that `to_yaml` or a person wrote (loaded safely).

    Raises:
        ConfigError: a missing file, no mapping, a key twice, or anything that
            `from_dict` refuses.
    """
    try:
        values = read_yaml(read_file(path))
    except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: it is no text.
        raise ConfigError(f"cannot read the config {str(path)!r}: {error}.") from None
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{str(path)!r} must hold a mapping of field names to values."
        )
    return from_dict(values)
