"""Environment objects in files: their import path and fields, or else words.

No file can rebuild what is written in words, but the folder of a run, a sweep or a
comparison must know whether it goes on with the one that it began with.
"""

import dataclasses
import enum
import functools
import hashlib
import json
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from purerl.config import field_names
from purerl.envs.base import is_env
from purerl.networks import modules

# Objects inside objects: what lies deeper is not looked at.
_DEPTH = 8
# Longer texts of lists, dictionaries and the like have a digest in their place.
_LONGEST = 200
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), range, enum.Enum)


def plain(env: Any) -> dict[str, Any] | str:
    """Return an environment as its import path and fields, in words where it has none.

    It has these where its class stands at the top level of a module, and what the class
    is called with are attributes of these names that make an equal one again.
    """
    try:
        values = modules.plain(env, "env")
        if _text_of(type(env), json.dumps(values)) == env_text(env):
            return values
    except Exception:  # Whatever the user's class makes of its own attributes.
        pass
    return env_text(env)


@functools.lru_cache(maxsize=256)
def _text_of(cls: type, values: str) -> str:
    """The words of the environment that values make; physics takes seconds to make."""
    del cls  # A notebook may define another class of the same name.
    return env_text(modules.parse("env", json.loads(values)))


def env_name(env: Any) -> str:
    """Return what titles and tables call the environment of a config.

    Args:
        env: Name, object, or what `plain` made of one.
    """
    if is_env(env):
        env = plain(env)
    if not isinstance(env, Mapping):
        return str(env)
    inner = [f"{name}={_word(env[name])}" for name in env if name != "type"]
    return f"{env['type']}({', '.join(inner)})" if inner else env["type"]


def _word(value: Any) -> str:
    if isinstance(value, Mapping) and "type" in value:
        return env_name(value)
    if isinstance(value, Mapping) and modules.IMPORT in value:
        return value[modules.IMPORT]
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_word, value))}{',' * (len(value) == 1)})"
    return repr(value)


def env_text(env: Any, above: tuple[Any, ...] = ()) -> str:
    """Return the class of an environment, and what it holds.

    Numbers, texts and environments inside are written out. Arrays and long groups have
    a digest of their contents. A function has its name and the values that it closes
    over, and any other object its class alone, so that two that differ only elsewhere
    are written alike. Attributes that begin with an underscore count where they are
    numbers, texts, arrays or environments: others may be caches.

    Args:
        env: Environment.
        above: Objects in which it lies, which are not written again.
    """
    above = (*above, env)
    texts = [f"{name}={_text(value, above)}" for name, value in _fields_of(env)]
    is_alone = not texts and not dataclasses.is_dataclass(env)
    inside = "" if is_alone else f"({', '.join(texts)})"
    return f"<{_class_name(type(env))}{inside}>"


def _fields_of(env: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of what an environment is made of."""
    fields = field_names(env) if dataclasses.is_dataclass(env) else []
    yield from ((name, getattr(env, name)) for name in fields)
    # A class that inherits from a dataclass may have attributes beside its fields.
    for name, value in sorted(getattr(env, "__dict__", {}).items()):
        made_later = getattr(type(env), name, None)
        if name in fields or isinstance(made_later, functools.cached_property):
            continue
        # What a physics engine computes differs from machine to machine in the last
        # bits: of an environment that is made by its name that and its options count.
        if name == "wrapped" and getattr(env, "made_as", None):
            continue
        is_plain = isinstance(value, (*_SIMPLE, tuple)) or _is_array(value)
        if is_plain or is_env(value) or not name.startswith("_"):
            yield name, value


def _text(value: Any, above: tuple[Any, ...]) -> str:
    if isinstance(value, _SIMPLE):
        return repr(value)
    if len(above) > _DEPTH or any(value is other for other in above):
        return _class_name(type(value))
    if is_env(value):
        return env_text(value, above)
    if _is_array(value):
        array = np.asarray(value)
        shape = f"{array.dtype}{list(array.shape)}"
        is_numbers = array.dtype != object
        content = array.tobytes() if is_numbers else repr(array.tolist()).encode()
        return f"{shape}:{_digest(shape.encode() + content)}"
    name, inside = _parts(value)
    if inside is None:
        return name
    if isinstance(inside, Mapping):
        texts = [
            f"{_text(key, above)}: {_text(inside[key], (*above, value))}"
            for key in inside
        ]
        texts.sort()
    else:
        texts = [_text(each, (*above, value)) for each in inside]
    text = f"{name}({', '.join(texts)})"
    return text if len(text) <= _LONGEST else f"{name}:{_digest(text.encode())}"


def _parts(value: Any) -> tuple[str, Any]:
    """The name of a group of values, of a record or of a function, and its parts."""
    if isinstance(value, Mapping):
        return "dict", value
    if isinstance(value, list | tuple):
        return type(value).__name__, value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, name) for name in field_names(value)]
        return _class_name(type(value)), fields
    value = getattr(value, "__wrapped__", value)  # Functions of `jax.jit` have one.
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if name is None:
        return _class_name(type(value)), None
    name = f"{getattr(value, '__module__', None) or type(value).__name__}.{name}"
    if not isinstance(value, types.FunctionType):
        return name, None
    if "site-packages" in value.__code__.co_filename:
        return name, None
    cells = [x.cell_contents for x in value.__closure__ or () if x != types.CellType()]
    return name, [*cells, *(value.__defaults__ or ()), value.__kwdefaults__]


def _is_array(value: Any) -> bool:
    if isinstance(value, Tracer) or not isinstance(
        value, np.ndarray | np.generic | jax.Array
    ):
        return False
    return not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
