"""Flags that reach inside a part of a config: `--optimiser.b1 0.95`.

A part stands on the command line as text, `--optimiser "Adam(b1=0.95)"`. Flags with
dots are written into that text before anything else reads the words.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from purerl import serialise
from purerl.config import ConfigError, check_known, field_names, is_part, part_kind

# Name of a flag -> what follows the dot, and the text of the value.
Inside = dict[str, list[tuple[list[str], str]]]


def write_inside(defaults: Mapping[str, Any], argv: Sequence[str]) -> list[str]:
    """Return the words with every dotted flag put into the text of its part.

    Args:
        defaults: Value of every flag where it is not given, by name.
        argv: Words after the command.

    Raises:
        ConfigError: a flag without a value, a number that a part lacks, a part that has
            too many numbers for a line.
    """
    rest, inside = _take(defaults, argv)
    for name, changes in inside.items():
        given, rest = _take_flag(rest, name)
        part = defaults[name] if given is None else given
        if isinstance(part, str):
            part = serialise.parse_part(part, part_kind(name) or "schedule")
        for path, text in changes:
            part = _put(part, path, text, _flag(name, path))
        text = serialise.part_text(part)
        if "(" not in text:
            raise ConfigError(
                f"{_flag(name, changes[0][0])}: {text} has too many numbers for a "
                "command line; write it to a file."
            )
        rest += [f"--{name}", text]
    return rest


def dotted_flags(name: str, part: Any) -> str:
    """Return the flags of a part's numbers, for the help of its own flag."""
    if not is_part(part):
        return ""
    plain = [n for n in field_names(part) if isinstance(getattr(part, n), int | float)]
    flags = [_flag(name, [n]) for n in plain]
    return f" Inside it: {', '.join(flags)}." if flags else ""


def _flag(name: str, path: Sequence[str]) -> str:
    return "--" + ".".join([name, *path]).replace("_", "-")


def _take(defaults: Mapping[str, Any], argv: Sequence[str]) -> tuple[list[str], Inside]:
    """The words without dotted flags, and these."""
    rest: list[str] = []
    inside: Inside = {}
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        name, *path = flag.removeprefix("--").replace("-", "_").split(".")
        if not (word.startswith("--") and path and name in defaults):
            rest.append(word)
            continue
        text = value if equals else next(words, None)
        if text is None:
            raise ConfigError(f"{flag} needs a value.")
        inside.setdefault(name, []).append((path, text))
    return rest, inside


def _take_flag(argv: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """The last value of a flag, None where it is not given; and the other words."""
    value, rest, words = None, [], iter(argv)
    for word in words:
        flag, equals, text = word.partition("=")
        if flag.replace("-", "_") != f"__{name}":
            rest.append(word)
        else:
            value = text if equals else next(words, "")
    return value, rest


def _put(part: Any, path: Sequence[str], text: str, flag: str) -> Any:
    """The part with a value at a path."""
    if not is_part(part):
        raise ConfigError(
            f"{flag}: {part!r} has nothing inside; give a part first, such as "
            f"{flag.rpartition('.')[0]} 'Linear(3e-4, 0)' for a number that moves."
        )
    name, *rest = path
    check_known(name, field_names(part), f"{flag}: {type(part).__name__}")
    field = next(f for f in dataclasses.fields(part) if f.name == name)
    if rest:
        value = _put(getattr(part, name), rest, text, flag)
    else:
        value = _value(field, text, flag)
    return dataclasses.replace(part, **{name: value})


def _value(field: dataclasses.Field, text: str, flag: str) -> Any:
    """The value of a field inside a part: plain, or a part itself."""
    if "(" in text and field.metadata.get("pytree_node", True):
        return serialise.parse_part(text, "schedule")
    try:
        value = serialise.read_yaml(text)
    except yaml.YAMLError:
        raise ConfigError(f"cannot read the value of {flag}, got {text!r}.") from None
    if not isinstance(value, str) or not field.metadata.get("pytree_node", True):
        return value
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"{flag} must be a number, got {text!r}.") from None
