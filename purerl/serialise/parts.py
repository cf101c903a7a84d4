"""Parts of a config, which are losses, optimisers, rules, schedules and distributions.

They are read from dicts, text and files, and written to files, without pickle. A file
is one `.npz`: the arrays, and a header of JSON.
"""

import dataclasses
import inspect
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np
import yaml

import purerl.losses
import purerl.optimisers
import purerl.rules  # noqa: F401
from purerl import randomisation, registry, schedules
from purerl.atomic import DAMAGE, open_arrays, write_atomic
from purerl.config import ConfigError, as_tuples, check_known, is_part, shown
from purerl.networks import modules
from purerl.serialise.text import EXAMPLES, part_dict, part_dicts, plain
from purerl.serialise.yaml_text import read_file, read_yaml, yaml_text

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
        value = part_dict(value, kind)
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
        raise ConfigError(f"save_{kind} takes a {kind}, got {part!r}.")
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
            part = read_yaml(read_file(path))
    except ConfigError:
        raise
    except (OSError, BadZipFile, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the {kind} {str(path)!r}: {error}.") from None
    except (*DAMAGE, TypeError):  # A header of other fields is a TypeError.
        raise ConfigError(
            f"cannot read the {kind} {str(path)!r}: it is no file that purerl.save_"
            f"{kind} of this version wrote, or it is damaged."
        ) from None
    if isinstance(part, Mapping) and "type" in part:
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
