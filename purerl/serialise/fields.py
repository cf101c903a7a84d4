"""Values of a config's fields, read as files and command lines write them."""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from purerl import schedules
from purerl.config import (
    AUTO,
    Auto,
    ConfigError,
    is_auto,
    is_number,
    may_be_none,
    part_kind,
)
from purerl.serialise.parts import parse_part, parse_terms


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
    meant = schedules.example(value)
    hint = f"; a schedule has its numbers with it, such as {meant}" if meant else ""
    raise ConfigError(f"{name} must be a number, got {value!r}{hint}.")
