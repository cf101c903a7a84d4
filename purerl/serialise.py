"""Configs as plain dicts and YAML, both ways, without pickle.

A loss is written as `{"type": "ClipDrift", "clip_eps": 0.2}`. On the way in a string
such as `"DPODrift(alpha=2.0, beta=0.6)"` is understood too, for command lines.
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

from purerl.config import (
    Auto,
    ConfigError,
    TrainConfig,
    check_known,
    field_names,
    is_auto,
)
from purerl.losses import artifact, registry

LEFTOVER_SECONDS = 600.0
# `.<name>.<eight characters>`, as `write_atomic` names them.
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Turn the config into plain Python values, with `algorithm` naming its class.

    A loss that is not registered is written with its class in angle brackets, which
    tells it from others, and is read only where that class is registered.

    Raises:
        ConfigError: a function or a class among the values.
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
    return cls(**{name: _parsed(fields[name], v) for name, v in values.items()})


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
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the config {str(path)!r}: {error}.") from None
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{str(path)!r} must hold a mapping of field names to values."
        )
    return from_dict(values)


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
    except BaseException:
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
    if hasattr(value, "step") and hasattr(value, "reset"):
        return _env_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value, where)
    return _plain(value, where)


def _plain_fields(value: Any, where: str) -> dict[str, Any]:
    """The fields of a loss, which says its class, or of an environment's parameters."""
    kind = {"type": registry.name_of(type(value))} if callable(value) else {}
    names = field_names(value)
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


def _parsed(field: dataclasses.Field, value: Any) -> Any:
    if field.name.endswith("_loss"):
        return parse_loss(value)
    if is_auto(value) and isinstance(field.default, Auto):
        return value
    if isinstance(value, str) and field.type in (int, float, "int", "float"):
        try:
            value = float(value)  # YAML 1.1 reads 5e5 as a string.
        except ValueError:
            raise ConfigError(
                f"{field.name} must be a number, got {value!r}."
            ) from None
    return tuple(value) if isinstance(value, list) else value


def parse_loss(value: Any) -> Any:
    """Read a loss from its dict, from `"Name(field=number, ...)"`, or as it is.

    A string that ends in `.yaml` or `.npz` names a file that `save_loss` wrote. A
    network may be given by its sizes: `MLPValueLoss(hidden_sizes=(64, 64))`, see `make`
    of its class.

    Raises:
        ConfigError: an unknown loss or field, or a file that cannot be read.
    """
    if isinstance(value, str) and value.strip().endswith(artifact.SUFFIXES):
        return load_loss(value.strip())
    if isinstance(value, str):
        value = _loss_dict(value)
    if not isinstance(value, Mapping):
        return value
    values = dict(value)
    cls = registry.class_of(values.pop("type", None))
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if hasattr(cls, "make") and "params" not in values:
        return _made(cls, values)
    for name in values:
        check_known(name, list(fields), cls.__name__)
    try:
        return cls(**{name: _loss_field(fields[name], v) for name, v in values.items()})
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cannot make the loss {cls.__name__}: {error}.") from None


def _made(cls: Any, values: dict[str, Any]) -> Any:
    """A network from its sizes."""
    known = list(inspect.signature(cls.make).parameters)
    for name in values:
        check_known(name, known, cls.__name__)
    try:
        return cls.make(**values)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cannot make the loss {cls.__name__}: {error}.") from None


def save_loss(loss: Any, path: str | Path) -> Path:
    """Write a loss, atomically: `.yaml` for people, `.npz` small and exact.

    Both come back bit for bit; nothing is pickled.

    Args:
        loss: Loss of a registered class; leaves are numbers or arrays.
        path: Path that ends in `.yaml` or `.npz`.

    Raises:
        ConfigError: another suffix, or no loss.
    """
    path = Path(path)
    if not dataclasses.is_dataclass(loss) or isinstance(loss, type):
        raise ConfigError(f"save_loss takes a loss, got {loss!r}.")
    if path.suffix not in artifact.SUFFIXES:
        raise ConfigError(
            f"a loss is written to {' or '.join(artifact.SUFFIXES)}, got {str(path)!r}."
        )
    if path.suffix == ".npz":
        write_atomic(path, artifact.pack(loss))
    else:
        write_atomic(path, yaml_text(plain(loss, "loss")))
    return path


def load_loss(path: str | Path) -> Any:
    """Read a loss that `save_loss` or a person wrote.

    Any training takes it: `config.replace(value_loss=purerl.load_loss(path))`, or on
    the command line `--value-loss path`.

    Raises:
        ConfigError: there is no such file, it is damaged, or it holds no loss.
    """
    path = Path(path)
    try:
        if path.suffix == ".npz":
            return artifact.unpack(path.read_bytes())
        values = yaml.safe_load(path.read_text())
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, yaml.YAMLError, BadZipFile) as error:
        raise ConfigError(f"cannot read the loss {str(path)!r}: {error}.") from None
    if not isinstance(values, Mapping) or "type" not in values:
        raise ConfigError(
            f"{str(path)!r} holds no loss: there is no type in it; give the file that "
            "purerl.save_loss wrote."
        )
    return parse_loss(values)


def loss_text(loss: Any) -> str:
    """Write a loss as the command line does; networks only by their name."""
    if not dataclasses.is_dataclass(loss):
        return str(loss)
    name = registry.name_of(type(loss))
    values = {f.name: getattr(loss, f.name) for f in dataclasses.fields(loss)}
    if not all(isinstance(v, int | float) for v in values.values()):
        return name
    inner = ", ".join(f"{field}={value}" for field, value in values.items())
    return f"{name}({inner})"


def _loss_dict(text: str) -> dict[str, Any]:
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            return {"type": call.id}
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        assert not call.args
        values = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise ConfigError(
            f"cannot read the loss {text!r}; write for example ClipDrift(clip_eps=0.2)."
        ) from None
    return {"type": call.func.id, **values}


def _loss_field(field: dataclasses.Field, value: Any) -> Any:
    """A field of a loss: arrays where it is a leaf, tuples where it is structure."""
    if not field.metadata.get("pytree_node", True):
        return _tuples(value)
    return _arrays(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _arrays(value: Any) -> Any:
    """Nested lists of numbers back to arrays; layers of a network stay tuples."""
    if isinstance(value, str):
        return float(value)  # YAML 1.1 reads 2e-1 as a string.
    if isinstance(value, Mapping):  # It is a loss inside a loss, or parameters by name.
        if "type" in value:
            return parse_loss(value)
        return {name: _arrays(inner) for name, inner in value.items()}
    if not isinstance(value, list | tuple):
        return value
    try:
        return np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):  # Ragged lists, or mappings, are a tuple of layers.
        return tuple(_arrays(inner) for inner in value)
