"""Configs as plain dicts and YAML, both ways, without pickle.

A part of a config (a loss, an optimiser, a schedule) is written with its class, as
`{"type": "ClipDrift", "clip_eps": 0.2}`. On the way in a string such as
`"DPODrift(alpha=2.0, beta=0.6)"` is understood too, for command lines. A
network of the user's own is written with its import path: see `networks.modules`.
"""

import ast
import contextlib
import dataclasses
import inspect
import os
import re
import secrets
import time
from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np
import yaml

# So that every part has its name in files, whatever else has been imported.
import purerl.losses
import purerl.optimisers
import purerl.rules  # noqa: F401
from purerl import artifact, randomisation, registry, schedules
from purerl.config import (
    Auto,
    ConfigError,
    TrainConfig,
    as_tuples,
    check_known,
    field_names,
    is_auto,
    is_number,
    is_part,
    part_kind,
)
from purerl.networks import modules

LEFTOVER_SECONDS = 600.0
IN_FILES = ("loss", "optimiser", "rule")  # Kinds of parts that may hold a network.
# `.<name>.<eight characters>`, as `write_atomic` names them.
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Turn the config into plain Python values, with `algorithm` naming its class.

    A loss that is not registered is written with its class in angle brackets, which
    tells it from others, and is read only where that class is registered.

    Raises:
        ConfigError: a function or a class among the values, or a network that no file
            can hold.
    """
    from purerl.algorithms import name_of

    values = {
        field.name: plain(getattr(config, field.name), field.name)
        for field in dataclasses.fields(config)
    }
    return {"algorithm": name_of(config), **values}


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """Read the config that `to_dict` wrote; missing fields keep their defaults.

    Raises:
        ConfigError: an unknown algorithm, field or loss.
    """
    from purerl.algorithms import config_class

    values = dict(values)
    cls = config_class(values.pop("algorithm", "ppo"))
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        check_known(name, list(fields), cls.__name__)
    return cls(**{name: parse_value(fields[name], v) for name, v in values.items()})


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `to_dict` wrote, with the defaults of fields that are newer than it.

    Args:
        values: A config as a folder holds it. That of an algorithm that is not known
            here is returned as it is.
    """
    from purerl.algorithms import config_class

    try:
        defaults = to_dict(config_class(values.get("algorithm", "ppo"))())
    except (ConfigError, TypeError):
        return dict(values)
    return {**values, **{n: v for n, v in defaults.items() if n not in values}}


def to_yaml(config: TrainConfig, path: str | Path) -> None:
    """Write the config as YAML, atomically."""
    write_atomic(path, yaml_text(to_dict(config)))


def yaml_text(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML, in their order."""
    return yaml.safe_dump(dict(values), sort_keys=False)


def from_yaml(path: str | Path) -> TrainConfig:
    """Read a config that `to_yaml` or a person wrote (loaded safely).

    Raises:
        ConfigError: a missing file, no mapping, or anything `from_dict` refuses.
    """
    try:
        values = yaml.safe_load(Path(path).read_text())
    except UnicodeDecodeError:
        raise ConfigError(
            f"cannot read the config {str(path)!r}: it is no text. A config is a YAML "
            "file; a loss, a rule or an optimiser goes to the flag of its field."
        ) from None
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the config {str(path)!r}: {error}.") from None
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{str(path)!r} must hold a mapping of field names to values."
        )
    return from_dict(values)


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
        values = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return dict(values) if isinstance(values, Mapping) else None


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write so that a reader sees the old file or the new one, never half."""
    path = Path(path)
    # Not mkstemp's: its files are for their owner only, and the process's umask cannot
    # be asked for without setting it, which is no thread's business.
    name = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        data = content.encode() if isinstance(content, str) else content
        with name.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = str(path)  # What the user has named, and will look for.
        with contextlib.suppress(OSError):
            name.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: str | Path) -> None:
    """Remove what `write_atomic` left in a folder when its process was killed.

    Files that were touched in the last ten minutes may be another process's.
    """
    for path in Path(folder).glob(".*"):
        with contextlib.suppress(OSError):  # The file is gone, or not ours to remove.
            is_old = time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
            if is_old and _TEMPORARY.fullmatch(path.name) and path.is_file():
                path.unlink()


def plain(value: Any, where: str) -> Any:
    """Turn a config's value into plain Python; `where` it is, for messages."""
    if modules.is_module(value):
        return modules.plain(value, where)
    if hasattr(value, "step") and hasattr(value, "reset"):
        return _env_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value, where)
    return _plain(value, where)


def _plain_fields(value: Any, where: str) -> dict[str, Any]:
    """The fields of a part, which says its class, or of an environment's parameters."""
    kind = {"type": registry.name_of(type(value))} if callable(value) else {}
    names = _written_fields(value)
    return kind | {n: plain(getattr(value, n), f"{where}.{n}") for n in names}


def _written_fields(value: Any) -> list[str]:
    """Names of the fields that are written: of a choice no group where it has none."""
    names = field_names(value)
    is_alone = isinstance(value, randomisation.Distribution) and not value.group
    return [name for name in names if not (is_alone and name == "group")]


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


def _env_text(env: Any) -> str:
    """An environment object for people and comparisons; no file can rebuild it."""
    name = f"{type(env).__module__}.{type(env).__qualname__}"
    if not dataclasses.is_dataclass(env):
        return f"<{name}>"
    values = {n: getattr(env, n) for n in field_names(env)}
    simple = (bool, int, float, str, tuple)
    inner = [f"{n}={v!r}" for n, v in values.items() if isinstance(v, simple)]
    # Fields that are environments themselves (of wrappers) are described recursively.
    inner += [f"{n}={_env_text(v)}" for n, v in values.items() if hasattr(v, "step")]
    return f"<{name}({', '.join(inner)})>"


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
    if value is None or (is_auto(value) and isinstance(field.default, Auto)):
        return value
    if field.default is None and value == "None":
        return None  # as a command line writes it
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
    kind = part_kind(name)
    if kind is None and schedules.SCHEDULES.keys().isdisjoint([value.split("(")[0]]):
        return value
    return parse_part(value, kind or "schedule")


def _number(name: str, value: Any) -> Any:
    """A number from its text, or a schedule from its text or its dict."""
    if isinstance(value, Mapping):
        return parse_part(value, "schedule")
    if not isinstance(value, str):
        return value
    with contextlib.suppress(ValueError):
        return float(value)  # YAML 1.1 reads 5e5 as a string.
    if "(" in value or value.strip() in schedules.SCHEDULES:
        return parse_part(value, "schedule")
    meant = schedules.example(value)
    hint = f"; a schedule has its numbers with it, such as {meant}" if meant else ""
    raise ConfigError(f"{name} must be a number, got {value!r}{hint}.")


def parse_loss(value: Any) -> Any:
    """Read a loss from its dict, from `"Name(field=number, ...)"`, or as it is.

    A string that ends in `.yaml` or `.npz` names a file that `save_loss` wrote. A
    network may be given by its sizes: `MLPValueLoss(hidden_sizes=(64, 64))`, see `make`
    of its class.

    Raises:
        ConfigError: an unknown loss or field, or a file that cannot be read.
    """
    return parse_part(value, "loss")


def parse_part(value: Any, kind: str = "") -> Any:
    """Read a part from its dict, from `"Name(field=number, ...)"`, or as it is.

    Args:
        value: Value in a file, on a command line or in an axis. For a loss, an
            optimiser or a rule this may also be the name of a file that `save_part`
            wrote.
        kind: Noun of the part: `loss`, `optimiser`, `rule`, `schedule` or
            `distribution`; any of these where none is given.

    Raises:
        ConfigError: an unknown part or field, or a file that cannot be read.
    """
    if kind in IN_FILES and isinstance(value, str):
        if value.strip().endswith(artifact.SUFFIXES):
            return load_part(value.strip(), kind)
    if isinstance(value, str):
        value = _part_dict(value, kind)
    if not isinstance(value, Mapping):
        return value
    values = dict(value)
    cls = registry.class_of(values.pop("type", None), kind)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if hasattr(cls, "make") and "params" not in values:
        return _made(cls, values)
    for number in [name for name in values if isinstance(name, int)]:
        if number >= len(fields):
            raise ConfigError(
                f"{cls.__name__} was given more values than it has fields: "
                f"{', '.join(fields)}."
            )
        values[list(fields)[number]] = values.pop(number)  # given by its place
    for name in values:
        check_known(name, list(fields), cls.__name__)
    try:
        return cls(**{n: _part_field(cls, fields[n], v) for n, v in values.items()})
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"cannot make the {kind or 'part'} {cls.__name__}: {error}."
        ) from None


def _made(cls: Any, values: dict[str, Any]) -> Any:
    """A network from its sizes; a part may be inside, such as the base of a rule."""
    for name in [name for name in values if isinstance(name, int)]:
        known = list(inspect.signature(cls.make).parameters)
        if name >= len(known):
            raise ConfigError(
                f"{cls.__name__} was given more values than it takes: "
                f"{', '.join(known)}."
            )
        values[known[name]] = values.pop(name)  # given by its place
    known = list(inspect.signature(cls.make).parameters)
    for name in values:
        check_known(name, known, cls.__name__)
    try:
        return cls.make(**{name: _inside(value) for name, value in values.items()})
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        kind = registry.kind_of(cls)
        raise ConfigError(f"cannot make the {kind} {cls.__name__}: {error}.") from None


def _inside(value: Any) -> Any:
    is_inside = isinstance(value, Mapping) and "type" in value
    return parse_part(value) if is_inside else value


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
        raise ConfigError(f"save_{kind} takes a {kind}, got {part!r}.")
    if path.suffix not in artifact.SUFFIXES:
        raise ConfigError(
            f"a {kind} is written to {' or '.join(artifact.SUFFIXES)}, got "
            f"{str(path)!r}."
        )
    if path.suffix == ".npz":
        write_atomic(path, artifact.pack(part))
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
            part = artifact.unpack(path.read_bytes())
        else:
            part = yaml.safe_load(path.read_text())
    except ConfigError:
        raise
    except (OSError, BadZipFile, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the {kind} {str(path)!r}: {error}.") from None
    except (ValueError, KeyError):
        raise ConfigError(
            f"cannot read the {kind} {str(path)!r}: it is no file that purerl.save_"
            f"{kind} wrote, or it is damaged."
        ) from None
    if isinstance(part, Mapping):
        if "type" not in part:
            raise ConfigError(
                f"{str(path)!r} holds no {kind}: there is no type in it; give the file "
                f"that purerl.save_{kind} wrote."
            )
        return parse_part(part, asked)
    if not is_part(part) or asked not in ("", registry.kind_of(type(part))):
        what = type(part).__name__
        raise ConfigError(f"{str(path)!r} holds no {kind}: there is {what} in it.")
    return part


def save_loss(loss: Any, path: str | Path) -> Path:
    """Write a loss: see `save_part`.

    Raises:
        ConfigError: another suffix than `.yaml` and `.npz`, or no loss.
    """
    return save_part(loss, path, "loss")


def load_loss(path: str | Path) -> Any:
    """Read a loss that `save_loss` or a person wrote.

    Any training takes it: `config.replace(value_loss=purerl.load_loss(path))`, or on
    the command line `--value-loss path`.

    Raises:
        ConfigError: there is no such file, it is damaged, or it holds no loss.
    """
    return load_part(path, "loss")


def part_text(part: Any) -> str:
    """Write a part as the command line does; what is learned only by its name.

    A torso or a whole network in a config is written as `networks.modules.text` does.
    """
    if modules.is_module(part):
        return modules.text(part)
    if not dataclasses.is_dataclass(part):
        return str(part)
    name = registry.name_of(type(part))
    values = {field: getattr(part, field) for field in _written_fields(part)}
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
    return part_text(value) if isinstance(value, schedules.Schedule) else None


def _part_dict(text: str, kind: str) -> dict[Any, Any]:
    """The dict of a part's text; what is given by its place has a number for a name."""
    examples = {
        "loss": "ClipDrift(clip_eps=0.2)",
        "rule": "LPGRule(hidden_size=32, init='random')",
        "optimiser": "Adam(b1=0.95)",
        "schedule": "Linear(3e-4, 0.0)",
        "distribution": "Uniform(0.4, 0.6)",
        "": "Adam(b1=0.95)",
    }
    try:
        found = _literal(ast.parse(text.strip(), mode="eval").body)
        if isinstance(found, str):
            return {"type": found}
        assert isinstance(found, dict)
        return found
    except (SyntaxError, ValueError, AssertionError):
        raise ConfigError(
            f"cannot read the {kind or 'part'} {text!r}; write for example "
            f"{examples[kind]}."
        ) from None


def _literal(node: ast.expr) -> Any:
    """A value of a part's text: a literal, a name, or a part inside the part."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    assert isinstance(node.func, ast.Name)
    named = {str(k.arg): _literal(k.value) for k in node.keywords}
    return {"type": node.func.id, **dict(enumerate(map(_literal, node.args))), **named}


def _part_field(cls: type, field: dataclasses.Field, value: Any) -> Any:
    """A field of a part: arrays where it is a leaf, tuples where it is structure."""
    is_structure = not field.metadata.get("pytree_node", True)
    leaf_each = (schedules.Schedule, randomisation.Distribution)
    if is_structure or (issubclass(cls, leaf_each) and _is_list(value)):
        return as_tuples(value)  # The numbers of these are a leaf each.
    return _arrays(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _arrays(value: Any) -> Any:
    """Nested lists of numbers back to arrays; layers of a network stay tuples."""
    if isinstance(value, str):
        return float(value)  # YAML 1.1 reads 2e-1 as a string.
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
