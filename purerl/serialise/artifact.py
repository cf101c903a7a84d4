"""A part of a config as one `.npz` file: its arrays, and a header of JSON.

A part is a loss or an optimiser, with the weights of its network. Nothing is pickled.
"""

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from purerl import registry

SUFFIXES = (".yaml", ".yml", ".npz")
_HEADER = "header"
_ARRAY = "$array"


def pack(part: Any) -> bytes:
    """Return the bytes of a part's file."""
    arrays: list[np.ndarray] = []
    header = json.dumps(_out(part, arrays)).encode()
    buffer = io.BytesIO()
    named = {f"array{index}": array for index, array in enumerate(arrays)}
    np.savez(buffer, **named, **{_HEADER: np.frombuffer(header, np.uint8)})  # type: ignore[arg-type]  # numpy's stub lacks allow_pickle.
    return buffer.getvalue()


def unpack(content: bytes) -> Any:
    """Return the part of a file's bytes.

    Raises:
        ConfigError: its class is not registered.
        TypeError: its class has other fields than those that were written.
        Others of `purerl.atomic.DAMAGE`: it is no such file, or damaged.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        header = json.loads(file[_HEADER].tobytes())
        arrays = {name: file[name] for name in file.files}
    return _in(header, arrays)


def _out(value: Any, arrays: list[np.ndarray]) -> Any:
    """A value as JSON, its arrays put aside."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        inner = {name: _out(getattr(value, name), arrays) for name in names}
        return {"type": registry.name_of(type(value)), **inner}
    if isinstance(value, Mapping):
        return {str(name): _out(inner, arrays) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_out(inner, arrays) for inner in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays.append(np.asarray(value))
        return {_ARRAY: len(arrays) - 1}
    return value


def _in(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `_out`; lists come back as tuples, as networks have them."""
    if isinstance(value, list):
        return tuple(_in(inner, arrays) for inner in value)
    if not isinstance(value, Mapping):
        return value
    if _ARRAY in value:
        return arrays[f"array{value[_ARRAY]}"]
    inner = {name: _in(v, arrays) for name, v in value.items() if name != "type"}
    return registry.class_of(value["type"])(**inner) if "type" in value else inner
