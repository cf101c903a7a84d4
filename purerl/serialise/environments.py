"""An environment object in words, for people and to tell it from others.

No file can rebuild such an object, but the folder of a run, a sweep or a comparison
must know whether it goes on with the one that it began with.
"""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from purerl.config import field_names

# Objects inside objects: what lies deeper is not looked at.
_DEPTH = 8
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


def env_text(env: Any, depth: int = _DEPTH) -> str:
    """Return the class of an environment, and what its fields hold.

    Numbers, texts and environments inside are written out. Arrays, functions and groups
    of numbers have a digest of their contents; of a function it depends on the version
    of Python. Of any other object the class is all that is written, and so two that
    differ only there are written alike. Attributes that begin with an underscore count
    where they are numbers, texts or arrays: others may be caches.

    Args:
        env: Environment.
        depth: Objects inside objects that are looked at.
    """
    name = _class_name(type(env))
    fields = list(_fields_of(env))
    # As they were always written: texts of folders are compared.
    simple = [(n, v) for n, v in fields if isinstance(v, (*_SIMPLE, tuple))]
    inside = [(n, v) for n, v in fields if _is_env(v)]
    known = {n for n, _ in (*simple, *inside)}
    others = [(n, v) for n, v in fields if n not in known]
    texts = [f"{n}={_text(v, depth - 1)}" for n, v in (*simple, *inside, *others)]
    if not texts and not dataclasses.is_dataclass(env):
        return f"<{name}>"
    return f"<{name}({', '.join(texts)})>"


def _fields_of(env: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of what an environment consists of."""
    fields = field_names(env) if dataclasses.is_dataclass(env) else []
    yield from ((name, getattr(env, name)) for name in fields)
    # A class that inherits from a dataclass may have attributes beside its fields.
    held = {n: v for n, v in getattr(env, "__dict__", {}).items() if n not in fields}
    # What a physics engine computes differs from machine to machine in the last bits.
    is_made_by_name = "options" in held and "wrapped" in held
    for name, value in sorted(held.items()):
        if is_made_by_name and name == "wrapped":
            continue
        made_later = getattr(type(env), name, None)
        if isinstance(made_later, functools.cached_property):
            continue
        is_plain = isinstance(value, (*_SIMPLE, tuple)) or _is_array(value)
        if is_plain or not name.startswith("_"):
            yield name, value


def _text(value: Any, depth: int) -> str:
    """A value in words; what is long has a digest in its place."""
    if isinstance(value, _SIMPLE):
        return repr(value)
    if depth < 0:
        return _class_name(type(value))
    if _is_env(value):
        return env_text(value, depth)
    if isinstance(value, type):
        return _class_name(value)
    if _is_array(value):
        array = np.asarray(value)
        shape = f"{array.dtype}{list(array.shape)}"
        return f"{shape}:{_digest(shape.encode(), array.tobytes())}"
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return f"partial({', '.join(_text(part, depth - 1) for part in parts)})"
    if isinstance(value, types.FunctionType):
        return _function_text(value, depth)
    if isinstance(value, types.MethodType):
        return f"{_class_name(type(value.__self__))}.{value.__name__}"
    if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
        names = getattr(value, "_fields", None) or field_names(value)
        parts = [f"{n}={_text(getattr(value, n), depth - 1)}" for n in names]
        return f"{_class_name(type(value))}:{_digest(*(p.encode() for p in parts))}"
    return _group_text(value, depth)


def _group_text(value: Any, depth: int) -> str:
    """A list, tuple, dictionary or set in words; of anything else the class."""
    if isinstance(value, Mapping):
        pairs = [(repr(key), _text(value[key], depth - 1)) for key in value]
        return f"{{{', '.join(f'{key}: {text}' for key, text in sorted(pairs))}}}"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(_text(part, depth - 1) for part in value))}}}"
    if isinstance(value, list | tuple):
        texts = [_text(part, depth - 1) for part in value]
        if isinstance(value, list):
            return f"[{', '.join(texts)}]"
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"
    return _class_name(type(value))


def _function_text(function: types.FunctionType, depth: int) -> str:
    """The name of a function, and a digest of its code and of what it closes over."""
    cells = function.__closure__ or ()
    closed = [x.cell_contents for x in cells if x != types.CellType()]
    around = [*closed, *(function.__defaults__ or ()), function.__kwdefaults__]
    texts = [_text(value, depth - 1).encode() for value in around]
    name = f"{function.__module__}.{function.__qualname__}"
    return f"{name}:{_digest(*_code_parts(function.__code__), *texts)}"


def _code_parts(code: types.CodeType) -> Iterator[bytes]:
    """The code of a function, without where it was written."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_parts(constant)
        else:
            yield repr(constant).encode()


def _is_env(value: Any) -> bool:
    is_class = isinstance(value, type)
    return not is_class and hasattr(value, "step") and hasattr(value, "reset")


def _is_array(value: Any) -> bool:
    """Return whether the numbers of a value can be had: a trace's cannot."""
    if isinstance(value, Tracer) or not isinstance(
        value, np.ndarray | np.generic | jax.Array
    ):
        return False
    return not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _digest(*parts: bytes) -> str:
    """Twelve digits that differ where the parts do."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()[:12]
