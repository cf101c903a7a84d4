"""Configs as plain dicts and YAML, both ways, without pickle.

A part of a config (a loss, an optimiser, a schedule) is written with its class, as
`{"type": "ClipDrift", "clip_eps": 0.2}`. On the way in a string such as
`"DPODrift(alpha=2.0, beta=0.6)"` is understood too, for command lines. A
network of the user's own is written with its import path: see `networks.modules`.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import inspect
import io
import json
import os
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np
import yaml
from jax.core import Tracer

import purerl.losses
import purerl.optimisers
import purerl.rules  # noqa: F401
from purerl import randomisation, registry, schedules
from purerl.atomic import DAMAGE, open_arrays, write_atomic
from purerl.config import (
    AUTO,
    Auto,
    ConfigError,
    TrainConfig,
    as_tuples,
    check_known,
    field_names,
    is_auto,
    is_number,
    is_part,
    may_be_none,
    part_kind,
    shown,
)
from purerl.envs.adapters.packages import read_values
from purerl.envs.base import is_env
from purerl.fields import is_real
from purerl.networks import modules

# YAML.


def yaml_text(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML, in their order."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False)


def read_yaml(text: str) -> Any:
    """Return what is written as YAML, or as JSON (loaded safely).

    Numbers are those of YAML 1.2: `010` is ten, `1e6` a number, `1:30` text.

    Args:
        text: The text, which a person may have written.

    Raises:
        yaml.YAMLError: it is neither; a mapping in it has a key twice, so that nobody
            would know which counts; or it has an alias, of which a few lines make
            values without end.
    """
    return yaml.load(text, _Loader)  # It derives from the safe one.


def _refusal(problem: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(problem=problem)


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses aliases, and keys which are given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _refusal("it has an alias, such as *x; write the value out")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                raise _refusal(
                    f"{name} is given twice, in lines {lines[name]} and {line}; leave "
                    "one of them out"
                )
            lines[name] = line
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node).replace("_", "")
        return int(text, 0 if text.lstrip("+-")[1:2].isalpha() else 10)


class _Dumper(yaml.SafeDumper):
    """A safe dumper without aliases, with quotes around what looks like a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# The numbers of YAML 1.2, in which nothing is octal or has the base 60 by its looks.
_NUMBERS = {
    "tag:yaml.org,2002:int": r"[-+]?(0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+|[0-9][0-9_]*)",
    "tag:yaml.org,2002:float": r"""[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?
        |\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+
        |\.(inf|Inf|INF))|\.(nan|NaN|NAN)""",
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
for _cls in (_Loader, _Dumper):
    _cls.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if tag not in _NUMBERS]
        for first, rules in _cls.yaml_implicit_resolvers.items()
    }
    for _tag, _rule in _NUMBERS.items():
        _cls.add_implicit_resolver(
            _tag, re.compile(rf"^({_rule})$", re.VERBOSE), list("-+.0123456789")
        )


def read_mapping(path: str | Path) -> dict[str, Any] | None:
    """Return the mapping that a YAML file holds (loaded safely).

    Args:
        path: The file. Where there is none, or none that holds a mapping, the result is
            None.
    """
    try:
        return mapping_of(Path(path).read_text())
    except (OSError, UnicodeDecodeError):
        return None


def mapping_of(text: str) -> dict[str, Any] | None:
    """Return the mapping that is written as YAML (loaded safely); None if it is none.

    Args:
        text: The text, such as that of `yaml_text`.
    """
    try:
        values = read_yaml(text)
    except yaml.YAMLError:
        return None
    return dict(values) if isinstance(values, Mapping) else None


# Environment objects: their import path and fields, or else words. No file can rebuild
# what is written in words, but the folder of a run, a sweep or a comparison must know
# whether it goes on with the one that it began with.

# Objects inside objects: what lies deeper is not looked at.
_DEPTH = 8
# Longer texts of lists, dictionaries and the like have a digest in their place.
_LONGEST = 200
_EMPTY = types.CellType()
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), range, enum.Enum)


def plain_env(env: Any) -> dict[str, Any] | str:
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
        env: Name, object, or what `plain_env` made of one.
    """
    if is_env(env):
        env = plain_env(env)
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
    texts = [f"{name}={_said(value, (*above, env))}" for name, value in _parts_of(env)]
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


def _said(value: Any, above: tuple[Any, ...]) -> str:
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
        inside = sorted(f"{_said(key, above)}: {_said(x, above)}" for key, x in pairs)
    elif isinstance(value, list | tuple):
        name, inside = type(value).__name__, [_said(x, above) for x in value]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, name) for name in field_names(value)]
        name, inside = _name(type(value)), [_said(x, above) for x in parts]
    elif isinstance(value, types.FunctionType):
        cells = [x.cell_contents for x in value.__closure__ or () if x != _EMPTY]
        parts = [*cells, *(value.__defaults__ or ()), value.__kwdefaults__]
        name, inside = _name(value), [_said(x, above) for x in parts]
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


# Parts of a config as text, such as `DPODrift(alpha=2.0, beta=0.6)`, both ways.


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
        return plain_env(value)
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
        return env_name(part)
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


# Losses, optimisers, rules, schedules and distributions, from dicts, text and files,
# and to files. A file is one `.npz`: the arrays, and a header of JSON.

IN_FILES = ("loss", "optimiser", "rule")  # Kinds of parts that may hold a network.


def parse_part(value: Any, kind: str = "") -> Any:
    """Read a part from its dict, from `"Name(field=number, ...)"`, or as it is.

    Args:
        value: Value in a file, on a command line or in an axis. For a loss, an
            optimiser or a rule this may also be the name of a file that `save_part`
            wrote. A network may be given by its sizes, such as
            `MLPValueLoss(hidden_sizes=(64, 64))`: see `make` of its class.
        kind: Noun of the part: `loss`, `optimiser`, `rule`, `schedule` or
            `distribution`; any of these where none is given.

    Raises:
        ConfigError: an unknown part or field, or a file that cannot be read.
    """
    if kind in IN_FILES and isinstance(value, str):
        if value.strip().endswith(SUFFIXES):
            return load_part(value.strip(), kind)
    if isinstance(value, str):
        # What is given by its place has a number for a name.
        parts = part_dicts(value, kind)
        if list(parts) != [0]:
            raise ConfigError(f"the {kind or 'part'} must be one, got {value!r}.")
        value = parts[0]
    if not isinstance(value, Mapping):
        return value
    values = dict(value)
    if "type" not in values:
        raise ConfigError(
            f"the {kind or 'part'} must have a type and its fields, such as "
            f"{{type: {EXAMPLES[kind].partition('(')[0]}, ...}}, got {shown(value)}."
        )
    cls = registry.class_of(values.pop("type"), kind)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    # A network may be given by its sizes; a part may be inside, such as a rule's base.
    is_made = hasattr(cls, "make") and "params" not in values
    known = inspect.signature(cls.make).parameters if is_made else fields
    values = _named(cls, values, list(known))
    try:
        if is_made:
            return cls.make(**{name: _inside(v) for name, v in values.items()})
        return cls(**{n: _part_field(cls, fields[n], v) for n, v in values.items()})
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"cannot make the {registry.kind_of(cls)} {cls.__name__}: {error}."
        ) from None


def parse_terms(value: Any) -> Any:
    """Read the terms of `extra_loss`: one as any loss, or several by place or name.

    Raises:
        ConfigError: see `parse_part`.
    """
    is_file = isinstance(value, str) and value.strip().endswith(SUFFIXES)
    if isinstance(value, str) and not is_file:
        parts = part_dicts(value, "loss")
        is_one = list(parts) == [0]
        by_place = all(isinstance(name, int) for name in parts)
        value = parts[0] if is_one else list(parts.values()) if by_place else parts
    if isinstance(value, list | tuple):
        return tuple(parse_part(one, "loss") for one in value)
    if isinstance(value, Mapping) and "type" not in value:
        return {name: parse_part(one, "loss") for name, one in value.items()}
    return parse_part(value, "loss")


def _named(cls: type, values: dict[Any, Any], known: list[str]) -> dict[str, Any]:
    """Values by name, those that were given by their place too."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(name, int):
            if name >= len(known):
                raise ConfigError(
                    f"{cls.__name__} was given more values than it takes: "
                    f"{', '.join(known)}."
                )
            name = known[name]
        if name in found:
            raise ConfigError(f"{cls.__name__} was given {name} twice; leave one out.")
        check_known(name, known, cls.__name__)
        found[name] = value
    return found


def _inside(value: Any) -> Any:
    is_inside = isinstance(value, Mapping) and "type" in value
    return parse_part(value) if is_inside else value


def _part_field(cls: type, field: dataclasses.Field, value: Any) -> Any:
    """A field of a part: arrays where it is a leaf, tuples where it is structure."""
    is_structure = not field.metadata.get("pytree_node", True)
    leaf_each = (schedules.Schedule, randomisation.Distribution)
    if is_structure and modules.is_written(value):
        return modules.parse(field.name, value)
    if is_structure or (issubclass(cls, leaf_each) and isinstance(value, list | tuple)):
        return as_tuples(value)  # The numbers of these are a leaf each.
    return _arrays(value)


def _arrays(value: Any) -> Any:
    """Nested lists of numbers back to arrays; layers of a network stay tuples."""
    if isinstance(value, str):
        return float(value)
    if isinstance(value, Mapping):  # It is a part inside a part, or parameters by name.
        if "type" in value:
            return parse_part(value)
        return {name: _arrays(inner) for name, inner in value.items()}
    if not isinstance(value, list | tuple):
        return value
    try:
        return np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):  # Ragged lists, or mappings, are a tuple of layers.
        return tuple(_arrays(inner) for inner in value)


def save_part(part: Any, path: str | Path, kind: str = "part") -> Path:
    """Write a loss, an optimiser or a rule, atomically.

    A `.yaml` is for people, a `.npz` small and exact. Both come back bit for bit;
    nothing is pickled.

    Args:
        part: Part of a registered class; leaves are numbers or arrays.
        path: Path that ends in `.yaml` or `.npz`.
        kind: Noun for messages.

    Raises:
        ConfigError: another suffix, or no part.
    """
    path = Path(path)
    if not is_part(part):
        raise ConfigError(f"save_part takes a {kind}, got {part!r}.")
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"a {kind} is written to {' or '.join(SUFFIXES)}, got {str(path)!r}."
        )
    if path.suffix == ".npz":
        write_atomic(path, pack(part))
    else:
        write_atomic(path, yaml_text(plain(part, kind)))
    return path


def load_part(path: str | Path, kind: str = "part") -> Any:
    """Read a loss, an optimiser or a rule that `save_part` or a person wrote.

    Any training takes it: `config.replace(optimiser=purerl.load_part(path))`, or on the
    command line `--optimiser path`.

    Args:
        path: Path of a file, `.yaml` or `.npz`.
        kind: Noun of the part, `loss`, `optimiser` or `rule`; any of these where it is
            `part`.

    Raises:
        ConfigError: there is no such file, it is damaged, or it holds nothing of the
            kind.
    """
    path, asked = Path(path), "" if kind == "part" else kind
    try:
        if path.suffix == ".npz":
            part = unpack(path.read_bytes())
        else:
            part = read_yaml(Path(path).read_text())
    except ConfigError:
        raise
    except (OSError, BadZipFile, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the {kind} {str(path)!r}: {error}.") from None
    except (*DAMAGE, TypeError):  # A header of other fields is a TypeError.
        raise ConfigError(
            f"cannot read the {kind} {str(path)!r}: it is no file that "
            "purerl.save_part of this version wrote, or it is damaged."
        ) from None
    if isinstance(part, Mapping) and "type" in part:
        return parse_part(part, asked)
    if not is_part(part) or asked not in ("", registry.kind_of(type(part))):
        what = type(part).__name__
        raise ConfigError(f"{str(path)!r} holds no {kind}: there is {what} in it.")
    return part


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
    with open_arrays(io.BytesIO(content)) as file:
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


# Whole configs, and values of their fields.


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
    more = "a schedule is written with its numbers, such as Cosine(1e-3)."
    if "," in value:
        more = f"several are an axis, such as --axis {name}={value} of purerl sweep."
    raise ConfigError(f"{name} must be a number, got {value!r}; {more}")


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
        values = read_yaml(Path(path).read_text())
    except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: it is no text.
        raise ConfigError(f"cannot read the config {str(path)!r}: {error}.") from None
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{str(path)!r} must hold a mapping of field names to values."
        )
    return from_dict(values)
