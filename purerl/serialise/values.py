"""Values of a config as plain Python."""

import dataclasses
import os
from collections.abc import Mapping
from functools import singledispatch
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
    if modules.is_module(value):
        return modules.plain(value, where)
    if is_env(value):
        return env_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value, where)
    return _plain(value, where)


def _plain_fields(value: Any, where: str) -> dict[str, Any]:
    """The fields of a part, which says its class, or of an environment's parameters."""
    kind = {"type": registry.name_of(type(value))} if callable(value) else {}
    names = written_fields(value)
    return kind | {n: plain(getattr(value, n), f"{where}.{n}") for n in names}


@singledispatch
def _plain(value: Any, where: str) -> Any:
    """A value by its type; what is registered below can be written and read again."""
    if callable(value):
        raise ConfigError(
            f"{where} is {value!r}, a function or class, which no file can hold: "
            "choose it by a string, or make it a flax.struct.dataclass with __call__ "
            "and give that a name with purerl.losses.register."
        )
    return repr(value)


@_plain.register(os.PathLike)
def _plain_path(value: os.PathLike, where: str) -> str:
    del where
    return str(os.fspath(value))


@_plain.register(type(None))
@_plain.register(bool)
@_plain.register(int)
@_plain.register(float)
def _plain_number(value: Any, where: str) -> Any:
    del where
    return value


@_plain.register(str)
def _plain_text(value: str, where: str) -> str:
    del where
    return str(value)  # `AUTO` is a word like others.


@_plain.register(tuple)
@_plain.register(list)
def _plain_sequence(value: Any, where: str) -> list[Any]:
    return [plain(inner, where) for inner in value]


@_plain.register(Mapping)
def _plain_mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    return {str(n): plain(inner, f"{where}.{n}") for n, inner in value.items()}


@_plain.register(np.ndarray)
@_plain.register(np.generic)
@_plain.register(jax.Array)
def _plain_array(value: Any, where: str) -> Any:
    del where
    return np.asarray(value).tolist()
