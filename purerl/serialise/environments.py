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
_EMPTY = types.CellType()
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
    texts = [f"{name}={_text(value, (*above, env))}" for name, value in _parts_of(env)]
    is_alone = not texts and not dataclasses.is_dataclass(env)
    inside = "" if is_alone else f"({', '.join(texts)})"
    return f"<{_name(type(env))}{inside}>"


def _parts_of(env: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of what an environment is made of."""
    fields = field_names(env) if dataclasses.is_dataclass(env) else []
    yield from ((name, getattr(env, name)) for name in fields)
    # A class that inherits from a dataclass may have attributes beside its fields.
    for name, value in sorted(getattr(env, "__dict__", {}).items()):
        made_later = getattr(type(env), name, None)
        # What a physics engine computes differs from machine to machine in the last
        # bits: of an environment that is made by its name that and its options count.
        is_made = name == "wrapped" and getattr(env, "made_as", None)
        is_cached = isinstance(made_later, functools.cached_property)
        if name in fields or is_cached or is_made:
            continue
        is_plain = isinstance(value, (*_SIMPLE, tuple)) or _is_array(value)
        if is_plain or is_env(value) or not name.startswith("_"):
            yield name, value


def _text(value: Any, above: tuple[Any, ...]) -> str:
    if isinstance(value, _SIMPLE):
        return repr(value)
    if len(above) > _DEPTH or any(value is other for other in above):
        return _name(type(value))
    if is_env(value):
        return env_text(value, above)
    above = (*above, value)
    if _is_array(value):
        array = np.asarray(value)
        is_numbers = array.dtype != object
        content = array.tobytes() if is_numbers else repr(array.tolist()).encode()
        shape = f"{array.dtype}{list(array.shape)}"
        return f"{shape}:{_digest(shape.encode() + content)}"
    value = getattr(value, "__wrapped__", value)  # Functions of `jax.jit` have one.
    if isinstance(value, Mapping):
        name, pairs = "dict", value.items()
        inside = sorted(f"{_text(key, above)}: {_text(x, above)}" for key, x in pairs)
    elif isinstance(value, list | tuple):
        name, inside = type(value).__name__, [_text(x, above) for x in value]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, name) for name in field_names(value)]
        name, inside = _name(type(value)), [_text(x, above) for x in parts]
    elif isinstance(value, types.FunctionType):
        cells = [x.cell_contents for x in value.__closure__ or () if x != _EMPTY]
        parts = [*cells, *(value.__defaults__ or ()), value.__kwdefaults__]
        name, inside = _name(value), [_text(x, above) for x in parts]
    else:
        return _name(value if hasattr(value, "__qualname__") else type(value))
    text = f"{name}({', '.join(inside)})"
    return text if len(text) <= _LONGEST else f"{name}:{_digest(text.encode())}"


def _is_array(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array)
    if not is_array or isinstance(value, Tracer):
        return False
    return not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def _name(value: Any) -> str:
    """Module and name of a class or a function."""
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
