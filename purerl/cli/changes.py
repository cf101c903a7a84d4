"""Environments and changes of a config as flags say them."""

import ast
from collections.abc import Sequence
from typing import Any

from purerl.config import ConfigError, TrainConfig


def take_environments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without every `--env`, and what these say.

    Raises:
        ConfigError: one without a value.
    """
    rest, texts, words = [], [], iter(argv)
    for word in words:
        if word == "--env":
            text = next(words, None)
            if text is None or text.startswith("--"):
                raise ConfigError("--env needs a value.")
            texts.append(text)
        elif word.startswith("--env="):
            texts.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, texts


def read_environment(config: TrainConfig, text: str) -> dict[str, Any]:
    """Read changes of the config from `Acrobot-v1; total_timesteps=2e5`.

    Raises:
        ConfigError: text that cannot be read, or an unknown field.
    """
    first, *others = split(text)
    changes = read_changes("--env", text, others)
    changes = {"env": first, **changes}
    config.replace(**changes)  # An unknown field is refused here.
    if others:
        changes["name"] = text.strip()
    return changes


def split(text: str) -> list[str]:
    """Return the parts of a text between semicolons.

    Raises:
        ConfigError: nothing on one side of a semicolon.
    """
    pieces = [piece.strip() for piece in text.split(";")]
    if not all(pieces):
        raise ConfigError(f"{text!r} has nothing on one side of a semicolon.")
    return pieces


def read_changes(flag: str, text: str, pieces: Sequence[str]) -> dict[str, Any]:
    """Read values by name from `name=value` each.

    Args:
        flag: The flag that the values stand in, for error messages.
        text: The whole text of the flag, for error messages.
        pieces: The parts to read.

    Raises:
        ConfigError: a part that is no `name=value`, or a name given twice.
    """
    values: dict[str, Any] = {}
    for piece in pieces:
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals:
            raise ConfigError(
                f"{flag} {text!r}: after a semicolon comes name=value, got {piece!r}."
            )
        if name in values:
            raise ConfigError(f"{flag} {text!r}: {name} is given twice.")
        try:
            values[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            values[name] = value
    return values
