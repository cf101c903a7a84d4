"""Parts of a config as text, such as `DPODrift(alpha=2.0, beta=0.6)`, both ways."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from purerl import randomisation, registry, schedules
from purerl.config import ConfigError, field_names
from purerl.envs.adapters.packages import read_values
from purerl.envs.base import is_env
from purerl.networks import modules
from purerl.serialise import environments


def plain(value: Any, where: str) -> Any:
    """Turn a config's value into plain Python; `where` it is, for messages."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)  # `AUTO` is a word like others.
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if modules.is_module(value):
        return modules.plain(value, where)
    if is_env(value):
        return environments.plain(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # A part says its class; an environment's parameters are their numbers alone.
        kind = {"type": registry.name_of(type(value))} if callable(value) else {}
        names = written_fields(value)
        return kind | {n: plain(getattr(value, n), f"{where}.{n}") for n in names}
    if isinstance(value, tuple | list):
        return [plain(inner, where) for inner in value]
    if isinstance(value, Mapping):
        return {str(n): plain(inner, f"{where}.{n}") for n, inner in value.items()}
    if callable(value) and where == "metrics":
        return _path(value, where)
    if callable(value):
        raise ConfigError(
            f"{where} is {value!r}, a function or class, which no file can hold: "
            "choose it by a string, or make it a flax.struct.dataclass with __call__ "
            "and give that a name with purerl.losses.register."
        )
    return repr(value)


def _path(function: Any, where: str) -> str:
    """The import path of a function."""
    if not modules.is_importable(function):
        raise ConfigError(
            f"{where} is {function!r}, which no file can hold: give a function that is "
            "defined at the top level of a module."
        )
    return modules.path_of(function)


# How a part of a kind is written; "" stands for any.
EXAMPLES = {
    "loss": "ClipDrift(clip_eps=0.2)",
    "rule": "LPGRule(hidden_size=32, init='random')",
    "optimiser": "Adam(b1=0.95)",
    "schedule": "Linear(3e-4, 0.0)",
    "distribution": "Uniform(0.4, 0.6)",
    "": "Adam(b1=0.95)",
}


def part_text(part: Any) -> str:
    """Write a part as the command line does; what is learned only by its name.

    A torso or a whole network in a config is written as `networks.modules.text` does,
    an environment, and what is not known here, as `env_name` does; several terms of
    `extra_loss` with their names, `near=Smooth(coef=0.1), far=...`.
    """
    if modules.is_module(part):
        return modules.text(part)
    if is_env(part) or modules.is_written(part):
        return environments.env_name(part)
    if isinstance(part, Mapping):
        return ", ".join(f"{name}={part_text(one)}" for name, one in part.items())
    if not dataclasses.is_dataclass(part):
        return str(part)
    name = registry.name_of(type(part))
    values = {field: getattr(part, field) for field in written_fields(part)}
    written = {field: _text(value) for field, value in values.items()}
    if None in written.values():
        return name
    inner = ", ".join(f"{field}={text}" for field, text in written.items())
    return f"{name}({inner})"


def _text(value: Any) -> str | None:
    """A number or a name in a part, some numbers, or a schedule; None for an array."""
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple) and all(isinstance(x, int | float) for x in value):
        return str(value)
    is_written = isinstance(value, schedules.Schedule) or modules.is_module(value)
    return part_text(value) if is_written else None


def written_fields(value: Any) -> list[str]:
    """Names of the fields that are written: of a choice no group where it has none."""
    names = field_names(value)
    is_alone = isinstance(value, randomisation.Distribution) and not value.group
    return [name for name in names if not (is_alone and name == "group")]


def part_dict(text: str, kind: str) -> dict[Any, Any]:
    """The dict of a part's text; what is given by its place has a number for a name."""
    parts = part_dicts(text, kind)
    if list(parts) != [0]:
        raise ConfigError(f"the {kind or 'part'} must be one, got {text!r}.")
    return parts[0]


def part_dicts(text: str, kind: str) -> dict[Any, dict[Any, Any]]:
    """The dicts of several parts by place or name: `A(x=1), b=mypackage.parts:B()`."""
    try:
        found = read_values(text)
    except ValueError:
        found = {}
    found = {n: {"type": x} if isinstance(x, str) else x for n, x in found.items()}
    if not found or not all(isinstance(x, dict) for x in found.values()):
        raise ConfigError(
            f"cannot read the {kind or 'part'} {text!r}; write for example "
            f"{EXAMPLES[kind]}."
        )
    return found
