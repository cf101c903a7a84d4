"""Values of a config as plain Python."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from purerl import registry
from purerl.config import ConfigError
from purerl.networks import modules
from purerl.serialise.environments import env_text, is_env
from purerl.serialise.text import written_fields


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
        return env_text(value)
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
