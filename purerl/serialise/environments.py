"""An environment object in words, for people and to tell it from others.

No file can rebuild such an object, but the folder of a run, a sweep or a comparison
must know whether it goes on with the one that it began with.
"""

import dataclasses
import enum
import functools
import hashlib
import types
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from purerl.config import field_names

# Objects inside objects: what lies deeper is not looked at.
_DEPTH = 8
# Longer texts of lists, dictionaries and the like have a digest in their place.
_LONGEST = 200
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), range)


def is_env(value: Any) -> bool:
    """Return whether a value is an environment, and not a class of them."""
    is_class = isinstance(value, type)
    return not is_class and hasattr(value, "step") and hasattr(value, "reset")


def env_text(env: Any, above: tuple[Any, ...] = ()) -> str:
    """Return the class of an environment, and what it holds.

    Numbers, texts and environments inside are written out. Arrays, data classes and
    long lists have a digest of their contents, and so have functions of the user's own,
    which depends on the version of Python. Of any other object the class is all that is
    written, so that two that differ only there are written alike. Attributes that begin
    with an underscore count where they are numbers, texts, arrays or environments:
    others may be caches.

    Args:
        env: Environment.
        above: Objects in which it lies, which are not written again.
    """
    name, above = _class_name(type(env)), (*above, env)
    fields = list(_fields_of(env))
    # As they were always written: texts of folders are compared.
    simple = [(n, v) for n, v in fields if isinstance(v, (*_SIMPLE, tuple))]
    inside = [(n, v) for n, v in fields if is_env(v)]
    known = {n for n, _ in (*simple, *inside)}
    others = [(n, v) for n, v in fields if n not in known]
    texts = [f"{n}={_text(v, above)}" for n, v in (*simple, *inside, *others)]
    if not texts and not dataclasses.is_dataclass(env):
        return f"<{name}>"
    return f"<{name}({', '.join(texts)})>"


def _fields_of(env: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of what an environment consists of."""
    fields = field_names(env) if dataclasses.is_dataclass(env) else []
    yield from ((name, getattr(env, name)) for name in fields)
    # A class that inherits from a dataclass may have attributes beside its fields.
    for name, value in sorted(_attributes(env).items()):
        made_later = getattr(type(env), name, None)
        if name in fields or isinstance(made_later, functools.cached_property):
            continue
        # What a physics engine computes differs from machine to machine in the last
        # bits: of an environment that is made by its name that and its options count.
        if name == "wrapped" and getattr(type(env), "made_by_name", False):
            continue
        is_plain = isinstance(value, (*_SIMPLE, tuple)) or _is_array(value)
        if is_plain or is_env(value) or not name.startswith("_"):
            yield name, value


def _attributes(env: Any) -> dict[str, Any]:
    """The attributes of an object, those of slots among them."""
    slots = {
        name
        for cls in type(env).__mro__
        for name in _names_of(cls.__dict__.get("__slots__", ()))
        if not name.startswith("__") and hasattr(env, name)
    }
    return {name: getattr(env, name) for name in slots} | dict(
        getattr(env, "__dict__", {})
    )


def _names_of(slots: Iterable[str] | str) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _text(value: Any, above: tuple[Any, ...]) -> str:
    """A value in words; what is long has a digest in its place."""
    if isinstance(value, enum.Enum):
        return f"{_class_name(type(value))}.{value.name}"
    if isinstance(value, _SIMPLE):
        return repr(value)
    if len(above) > _DEPTH or any(value is other for other in above):
        return _class_name(type(value))
    if is_env(value):
        return env_text(value, above)
    if _is_array(value):
        return _array_text(np.asarray(value), above)
    above = (*above, value)
    is_record = dataclasses.is_dataclass(value) or hasattr(value, "_fields")
    if is_record and not isinstance(value, type):
        names = getattr(value, "_fields", None) or field_names(value)
        parts = [f"{n}={_text(getattr(value, n), above)}" for n in names]
        return f"{_class_name(type(value))}:{_digest(*(p.encode() for p in parts))}"
    text = _callable_text(value, above) if callable(value) else _group(value, above)
    return text if len(text) <= _LONGEST else f"{type(value).__name__}:{_digest(text)}"


def _array_text(array: np.ndarray, above: tuple[Any, ...]) -> str:
    """The type and shape of an array, and a digest of its numbers."""
    shape = f"{array.dtype}{list(array.shape)}"
    if array.dtype == object:
        return f"{shape}:{_digest(_text(array.tolist(), (*above, array)))}"
    return f"{shape}:{_digest(shape, array.tobytes())}"


def _group(value: Any, above: tuple[Any, ...]) -> str:
    """A list, tuple, dictionary or set in words; of anything else the class."""
    if isinstance(value, Mapping):
        pairs = [f"{_text(key, above)}: {_text(value[key], above)}" for key in value]
        return f"{{{', '.join(sorted(pairs))}}}"
    if isinstance(value, Set):
        return f"{{{', '.join(sorted(_text(part, above) for part in value))}}}"
    if isinstance(value, list | tuple):
        texts = [_text(part, above) for part in value]
        if isinstance(value, list):
            return f"[{', '.join(texts)}]"
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"
    return _class_name(type(value))


def _callable_text(value: Any, above: tuple[Any, ...]) -> str:
    """A function, a class or a method by its name, and by the code that it has."""
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return f"partial({', '.join(_text(part, above) for part in parts)})"
    if isinstance(value, types.MethodType):
        return f"{_text(value.__self__, above)}.{value.__name__}"
    if isinstance(value, types.FunctionType):
        return _function_text(value, above)
    if hasattr(value, "__wrapped__"):  # as functions of `jax.jit` have
        return f"{type(value).__name__}({_text(value.__wrapped__, above)})"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return _class_name(type(value))
    return f"{getattr(value, '__module__', None) or type(value).__name__}.{name}"


def _function_text(function: types.FunctionType, above: tuple[Any, ...]) -> str:
    """The name of a function; of the user's own a digest of what it does, too."""
    name = f"{function.__module__}.{function.__qualname__}"
    if "site-packages" in function.__code__.co_filename:
        return name
    cells = function.__closure__ or ()
    closed = [x.cell_contents for x in cells if x != types.CellType()]
    around = [*closed, *(function.__defaults__ or ()), function.__kwdefaults__]
    texts = [_text(value, above) for value in around]
    return f"{name}:{_digest(*_code_parts(function.__code__), *texts)}"


def _code_parts(code: types.CodeType) -> Iterator[bytes | str]:
    """The code of a function, without where it was written."""
    yield code.co_code
    yield repr(code.co_names)
    for constant in code.co_consts:
        yield from _constant_parts(constant)


def _constant_parts(constant: Any) -> Iterator[bytes | str]:
    if isinstance(constant, types.CodeType):
        yield from _code_parts(constant)
    elif isinstance(constant, frozenset):  # Its order differs between processes.
        yield repr(sorted(map(repr, constant)))
    elif isinstance(constant, tuple):
        for part in constant:
            yield from _constant_parts(part)
    else:
        yield repr(constant)


def _is_array(value: Any) -> bool:
    """Return whether the numbers of a value can be had: a trace's cannot."""
    if isinstance(value, Tracer) or not isinstance(
        value, np.ndarray | np.generic | jax.Array
    ):
        return False
    return not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _digest(*parts: bytes | str) -> str:
    """Twelve digits that differ where the parts do."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()[:12]
