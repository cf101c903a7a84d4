"""Configs as plain dicts and YAML, both ways, without pickle.

A loss is written as `{"type": "ClipDrift", "clip_eps": 0.2}`. On the way in a string
such as `"DPODrift(alpha=2.0, beta=0.6)"` is understood too, for command lines.
"""

import ast
import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import yaml

from purerl import losses
from purerl.config import ConfigError, TrainConfig, _check_known, field_names


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """The config as plain Python values, with `algorithm` naming its class."""
    from purerl.algorithms import name_of

    values = {
        field.name: _plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
    }
    return {"algorithm": name_of(config), **values}


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """The config that `to_dict` wrote; missing fields keep their defaults.

    Raises:
        ConfigError: an unknown algorithm, field or loss.
    """
    from purerl.algorithms import config_class

    values = dict(values)
    cls = config_class(values.pop("algorithm", "ppo"))
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in values:
        _check_known(name, list(fields), cls.__name__)
    return cls(**{name: _parsed(fields[name], v) for name, v in values.items()})


def to_yaml(config: TrainConfig, path: str | Path) -> None:
    """Write the config as YAML, atomically."""
    text = yaml.safe_dump(to_dict(config), sort_keys=False)
    write_atomic(path, text)


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


def write_atomic(path: str | Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never half."""
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp's files are for their owner only; these are ordinary ones.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _plain(value: Any) -> Any:
    if type(value).__name__ in losses.LOSSES and dataclasses.is_dataclass(value):
        names = field_names(value)
        return {
            "type": type(value).__name__,
            **{name: _plain(getattr(value, name)) for name in names},
        }
    if hasattr(value, "step") and hasattr(value, "reset"):
        # An environment object: its name, for people; from_dict cannot rebuild it.
        return f"<{type(value).__module__}.{type(value).__qualname__}>"
    if dataclasses.is_dataclass(value):  # environment parameters
        return {name: _plain(getattr(value, name)) for name in field_names(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return np.asarray(value).tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def _parsed(field: dataclasses.Field, value: Any) -> Any:
    if field.name.endswith("_loss"):
        return parse_loss(value)
    if isinstance(value, str) and field.type in (int, float, "int", "float"):
        try:
            value = float(value)  # YAML 1.1 reads 5e5 as a string.
        except ValueError:
            raise ConfigError(
                f"{field.name} must be a number, got {value!r}."
            ) from None
    return tuple(value) if isinstance(value, list) else value


def parse_loss(value: Any) -> Any:
    """A loss from its dict, from `"Name(field=number, ...)"`, or as it is."""
    if isinstance(value, str):
        value = _loss_dict(value)
    if not isinstance(value, Mapping):
        return value
    fields = dict(value)
    name = fields.pop("type", None)
    if name not in losses.LOSSES:
        raise ConfigError(
            f"there is no loss {name!r}. Losses: {', '.join(losses.LOSSES)}."
        )
    cls = losses.LOSSES[name]
    for field in fields:
        _check_known(field, field_names(cls), name)
    return cls(**{field: _arrays(inner) for field, inner in fields.items()})


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


def _arrays(value: Any) -> Any:
    """Nested lists of numbers back to arrays; layers of a network stay tuples."""
    if isinstance(value, str):
        return float(value)  # YAML 1.1 reads 2e-1 as a string.
    if not isinstance(value, list | tuple):
        return value
    try:
        return np.asarray(value, dtype=np.float32)
    except ValueError:  # ragged: a tuple of layers
        return tuple(_arrays(inner) for inner in value)
