"""Typed flags from dataclasses: options of tools and commands, fields of configs.

A part of a config stands on the command line as text, `--optimiser "Adam(b1=0.95)"`.
"""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import re
import warnings
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any, Literal, get_type_hints

import tyro
import yaml
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
)

from purerl import presets, randomisation, serialise
from purerl.algorithms import ALGORITHMS
from purerl.cli import EXAMPLES, IMPORT
from purerl.config import (
    Auto,
    ConfigError,
    TrainConfig,
    check_mapping,
    is_number,
    is_part,
    part_kind,
    validate_field,
)
from purerl.errors import ours_of
from purerl.networks import modules
from purerl.runner import options as tools

Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]
"""The type of an option that may be given several times."""

RunOrAgent = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(metavar="RUN[:SEED]", help="Folder of a run, or one of its agents."),
]


@dataclasses.dataclass(kw_only=True)
class Dry:
    """The flag of commands that can say what they would cost."""

    dry_run: bool = tools.option(
        False, "Say what the command would cost here, and stop."
    )


def flags_of(
    options: type, tool: str, defaults: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Return the name, type and default of the flags of a class of options, for tyro.

    Args:
        options: The dataclass of the options.
        tool: The name of the tool, which helps speak of.
        defaults: Defaults of flags in place of their own, by name of the option.
    """
    owned = {field.name: field for field in dataclasses.fields(options)}
    for name, known in tools.options_of(options).items():
        for flag in known.flags:
            kind = owned[name].type if flag.kind is None else flag.kind
            absent = owned[name].default if flag.absent is ... else flag.absent
            if kind is tools.Repeated:
                kind, absent = Repeated, ()
            text = flag.help.replace("{tool}", tool)
            about = tyro.conf.arg(name=flag.word, metavar=flag.metavar, help=text)
            default = defaults.get(name, absent)
            yield flag.flag or name, Annotated[kind, about], default


def of_call(function: Callable, without: Collection[str] = (), **own: Any) -> type:
    """Return a dataclass whose fields are the arguments of a function, for `parse`.

    Args:
        function: The function, whose documentation of an argument is the flag's help.
        without: Arguments that have no flag.
        **own: Type, and default if there is one, of flags that the function does not
            have, or has with another type.
    """
    hints, fields = get_type_hints(function, include_extras=True), {}
    for name, argument in inspect.signature(function).parameters.items():
        is_open = argument.default is argument.empty
        fields[name] = hints[name], *([] if is_open else [argument.default])
    entries = [
        (name, kind, dataclasses.field(default=(*default, dataclasses.MISSING)[0]))
        for name, (kind, *default) in {**fields, **own}.items()
        if name not in without
    ]
    named, make = {"__doc__": function.__doc__}, dataclasses.make_dataclass
    return make(function.__name__, entries, namespace=named, kw_only=True)


def command(function: Callable[..., int | None]) -> Callable[[Sequence[str]], int]:
    """Make a command of a function `main_NAME`: its arguments are the flags."""

    @functools.wraps(function)
    def main(argv: Sequence[str]) -> int:
        name = function.__name__.removeprefix("main_")
        return function(**vars(parse(of_call(function), argv, name))) or 0

    return main


@dataclasses.dataclass(kw_only=True)
class ConfigSource:
    """Options of the config that a command starts from."""

    algorithm: str = tools.option("ppo", f"Algorithm, one of {', '.join(ALGORITHMS)}.")
    preset: str | None = tools.option(
        None, f"Preset that the flags change: {', '.join(presets.names())}."
    )
    config: Path | None = tools.option(
        None, "YAML file of the config that the flags change."
    )


@dataclasses.dataclass(kw_only=True)
class Processes:
    """Options of commands that several processes run together."""

    coordinator: str | None = tools.option(
        None, "Address of process 0, host:port, where SLURM or MPI do not say it."
    )
    num_processes: int | None = tools.option(
        None, "Number of processes in all, where SLURM or MPI do not say it."
    )
    process: int | None = tools.option(
        None, "Number of this process, where SLURM or MPI do not say it."
    )


_MAPPINGS = {"env_kwargs": '{"backend": "spring"}', "env_params": '{"length": 0.5}'}


def read_options(options: type, parsed: Any) -> dict[str, Any]:
    """Return the options of a tool, by name, from the values of their flags.

    Raises:
        ConfigError: a value that cannot be read.
    """
    return {
        name: about.read(*(getattr(parsed, flag.flag or name) for flag in about.flags))
        for name, about in tools.options_of(options).items()
        if about.flags
    }


# Flags that the help of a command with a config shows first, in this order.
USUAL = (
    *("axis", "setting", "loss", "evolve", "population", "generations", "trials"),
    *("algorithm", "env", "preset", "config", "total_timesteps", "num_envs"),
    *("learning_rate", "seeds", "out", "resume", "track", "dry_run"),
)


def parser_class(
    config: TrainConfig,
    options: type,
    *more: type,
    doc: str = "",
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> type:
    """Make a dataclass of the flags of `options` and of the config, for `parse`.

    They stand in groups, which are the headings of the help.

    Raises:
        ConfigError: a value of the config that its field cannot have, and so no flag.
    """
    found: dict[str, tuple[str, Any, Any]] = {}
    tool = getattr(options, "tool", "")
    for owner in (options, *more):
        for name, kind, default in flags_of(owner, tool, defaults):
            found.setdefault(name, ("execution", kind, default))
    for field in dataclasses.fields(config):
        _check_default(field, getattr(config, field.name))
        kind, default = _flag(field, getattr(config, field.name))
        note = "" if field.metadata.get("pytree_node", True) else " (static)"
        word = "metric" if field.name == "metrics" else None
        shown = "FLOAT" if _is_leaf_number(field) else None
        text = field.metadata["help"] + note
        help_ = tyro.conf.arg(name=word, help=text, metavar=shown)
        found[field.name] = "config", Annotated[kind, help_], default
    groups: dict[str, list[Any]] = {"usual": [], "execution": [], "config": []}
    for name, (group, kind, default) in found.items():
        entry = name, kind, dataclasses.field(default=default)
        groups["usual" if name in USUAL else group].append(entry)
    groups["usual"].sort(key=lambda entry: USUAL.index(entry[0]))
    fields = [
        (name, dataclasses.make_dataclass(name, entries, kw_only=True))
        for name, entries in groups.items()
    ]
    namespace = {"__doc__": doc or options.__doc__, "__groups__": True}
    make = dataclasses.make_dataclass
    return make(options.__name__, fields, namespace=namespace, kw_only=True)


def _check_default(field: dataclasses.Field, value: Any) -> None:
    """Refuse a value that a file has given to a field which cannot have it.

    Schedules wait for the training: to look at their course would be a computation,
    before which JAX must be told how many devices there are.
    """
    if field.name in _MAPPINGS:
        check_mapping(field.name, value, _MAPPINGS[field.name])
    elif not is_part(value):
        validate_field(field, value)


def _is_leaf_number(field: dataclasses.Field) -> bool:
    return field.metadata.get("pytree_node", True) and is_number(field)


def _flag(field: dataclasses.Field, value: Any) -> tuple[Any, Any]:
    """Type and default with which a field stands on the command line."""
    if field.name in _MAPPINGS:
        return tuple[str, ...], tuple(
            f"{name}={_text(one)}" for name, one in dict(value or {}).items()
        )
    if field.name == "metrics":
        return Repeated, tuple(serialise.plain(value, field.name))
    if part_kind(field.name) is not None or field.name in modules.FIELDS:
        return str, serialise.part_text(value)
    if field.name == "env":
        return str, serialise.env_name(value)
    if _is_leaf_number(field):  # It may be a schedule, or a word.
        return str, serialise.part_text(value)
    kinds = {"int": int, "float": float, "bool": bool, "str": str}
    kind: Any = kinds.get(str(field.type), field.type)
    if kind == tuple[int, ...]:
        kind = Annotated[kind, _SIZES]
    if isinstance(field.default, Auto):
        kind = kind | Literal["auto"]
    return kind, value


def _text(value: Any) -> Any:
    """A value of a mapping as `read_mapping` reads it: YAML has lists, not tuples."""
    if isinstance(value, Mapping):
        return {name: _text(one) for name, one in value.items()}
    if randomisation.is_distribution(value):
        return serialise.part_text(value)
    return [_text(one) for one in value] if isinstance(value, tuple) else value


def read_config(parsed: Any, base: TrainConfig) -> TrainConfig:
    """Read the config that the flags ask for.

    Raises:
        ConfigError: a value that cannot be read.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(base):
        value, before = getattr(parsed, field.name), getattr(base, field.name)
        if isinstance(value, str | tuple) and value == _flag(field, before)[1]:
            value = before  # Not every value of a file is the same again as words.
        elif field.name in _MAPPINGS:
            value = read_mapping(field.name, value)
            value = value or (None if field.name == "env_params" else {})
            value = serialise.parse_value(field, value)
        elif isinstance(value, str):
            value = serialise.parse_value(field, value)
        changes[field.name] = value
    return base.replace(**changes)


def read_mapping(name: str, pairs: Sequence[str]) -> Mapping[str, Any]:
    """Read the words `name=value` of a flag.

    Raises:
        ConfigError: a word without `=`, a name given twice, or a value that cannot be
            read.
    """
    flag, values = name.replace("_", "-"), {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--{flag} takes name=value, got {pair!r}.")
        if key in values:
            both = f"{values[key]!r} and as {text}"
            raise ConfigError(f"--{flag} gives {key} twice, as {both}; leave one out.")
        try:
            values[key] = serialise.read_yaml(text)
        except yaml.YAMLError:
            raise ConfigError(f"cannot read the value of {pair!r}.") from None
    return values


def option_before_parsing(argv: Sequence[str], name: str) -> str | None:
    """Return the value of `--name` in raw arguments, on which other defaults depend.

    Of several the last one holds, as of every flag.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", dest="value")
    return parser.parse_known_args(argv)[0].value


def _read_sizes(texts: list[str]) -> tuple[int, ...]:
    """Several integers: 64 64, 64,64 or (64, 64)."""
    words = re.split(r"[\s,()\[\]]+", " ".join(texts))
    return tuple(_whole(word) for word in words if word)


_SIZES = PrimitiveConstructorSpec(
    nargs="*",
    metavar="[INT [INT ...]]",
    instance_from_str=_read_sizes,
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda value: [str(size) for size in value],
)
_REGISTRY = ConstructorRegistry()


@_REGISTRY.primitive_rule
def _whole_numbers(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """The rule by which tyro reads integers: 1000000, 1_000_000 or 1e6."""
    if kind.type is not int:
        return None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: _whole(texts[0]),
        is_instance=lambda value: type(value) is int,
        str_from_instance=lambda value: [str(value)],
    )


def _whole(text: str) -> int:
    """The integer that a text writes: 1000000, 1_000_000 or 1e6."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if float(text).is_integer():
            return int(float(text))
    raise ValueError(f"{text!r} is no whole number, such as 1000000 or 1e6")


def _check_peers(cls: type, words: Sequence[str]) -> None:
    """Refuse flags that have another name in another library, with ours.

    Args:
        cls: The dataclass of the flags.
        words: What was given, without values, and with dashes.

    Raises:
        ConfigError: with the name that is meant.
    """
    groups = get_type_hints(cls).values() if hasattr(cls, "__groups__") else [cls]
    known = {field.name for group in groups for field in dataclasses.fields(group)}
    for word in words:
        name = word.removeprefix("--").replace("-", "_").lower()
        ours = ours_of(name, known) if name not in known else ""
        if ours and word.startswith("--"):
            flag = f"--{ours.replace('_', '-')}" if ours.isidentifier() else ours
            raise ConfigError(f"there is no flag {word}; it is called {flag} here.")


def parse(cls: type, argv: Sequence[str], command: str) -> Any:
    """Parse with tyro; underscores and dashes are both understood.

    tyro prints what is wrong with a flag and exits with 2.

    Raises:
        ConfigError: an empty value, or a flag of a mapping that is given twice.
    """
    given = [word.partition("=")[0].replace("_", "-") for word in argv]
    for flag in (f"--{name.replace('_', '-')}" for name in _MAPPINGS):
        if given.count(flag) > 1:  # Its last names alone would count.
            raise ConfigError(f"{flag} is given twice; give one with all its names.")
    if any(not word.strip() or re.fullmatch(r"--[\w-]+=", word) for word in argv):
        # As a path it would be the working directory.
        raise ConfigError("a value is empty; give one, or leave its flag out.")
    _check_peers(cls, given)
    about = inspect.cleandoc(cls.__doc__ or "").partition("\n\nArgs:")[0]
    with warnings.catch_warnings():
        # One wrapper may stand for a tuple of them, and parts are texts to tyro.
        warnings.filterwarnings("ignore", "The field .* is annotated with type")
        found = tyro.cli(
            cls,
            args=list(argv),
            prog=f"purerl {command}",
            description=f"{about}\n\nExample: {EXAMPLES.get(command)}\n\n{IMPORT}",
            config=(tyro.conf.OmitArgPrefixes,),
            registry=_REGISTRY,
        )
    if not hasattr(cls, "__groups__"):
        return found
    return SimpleNamespace(**ChainMap(*map(dict, map(vars, vars(found).values()))))
