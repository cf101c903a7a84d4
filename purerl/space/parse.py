"""Axes as the command line writes them."""

import ast
import math
from typing import Any

import numpy as np

from purerl import registry
from purerl.config import ConfigError
from purerl.space.axes import choice, loguniform, uniform
from purerl.space.labels import plain


def _geomspace(low: float, high: float, count: int) -> list[float]:
    if not (low * high > 0 and math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(
            "geomspace needs two finite ends of one sign, neither of them 0, got "
            f"{low} and {high}; use linspace."
        )
    return np.geomspace(low, high, count).tolist()


# Functions of an axis that take so many values, and what these are.
ARGUMENTS = {
    "linspace": "low, high, count",
    "geomspace": "low, high, count",
    "uniform": "low, high",
    "loguniform": "low, high",
}
FUNCTIONS = {
    "linspace": lambda a, b, n: np.linspace(a, b, n).tolist(),
    "geomspace": _geomspace,
    "range": lambda *ends: list(range(*ends)),
    "uniform": uniform,
    "loguniform": loguniform,
    "choice": lambda *values: choice(values),
}


def parse(text: str) -> tuple[str, Any]:
    """Read an axis from `NAME=VALUES`, as the command line writes it.

    VALUES is a list such as `1e-4,3e-4` or `(64,64),(256,256)`, or a call such as
    `geomspace(1e-4, 1e-2, 8)`, `linspace`, `range`, `uniform`, `loguniform`, `choice`.

    Raises:
        ConfigError: it cannot be read.
    """
    name, equals, values = text.partition("=")
    name, values = name.strip().replace("-", "_"), values.strip()
    if not (name and equals and values):
        raise ConfigError(
            f"--axis takes NAME=VALUES, got {text!r}; for example "
            "learning_rate=1e-4,3e-4 or learning_rate=geomspace(1e-4,1e-2,8)."
        )
    function, bracket, inside = values.partition("(")
    function = function.strip()
    if not (bracket and function.isidentifier() and values.endswith(")")):
        return name, _literals(values)
    if function in FUNCTIONS:
        return name, _called(function, _literals(inside[:-1]), text)
    close = registry.closest(function, list(FUNCTIONS))
    if close and not registry.is_known(function):
        raise ConfigError(
            f"cannot read the axis {text!r}: there is no function {function!r}. Did "
            f"you mean {close!r}? Functions: {', '.join(FUNCTIONS)}."
        )
    return name, _literals(values)


def _called(function: str, values: list[Any], text: str) -> Any:
    """Return what a function of an axis makes of its values."""
    wanted = ARGUMENTS.get(function, "")
    if wanted and len(values) != wanted.count(",") + 1:
        raise ConfigError(
            f"cannot read the axis {text!r}: {function} takes ({wanted}), got "
            f"{len(values)} of them."
        )
    try:
        return FUNCTIONS[function](*values)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cannot read the axis {text!r}: {error}.") from None


def _literals(text: str) -> list[Any]:
    """Comma-separated numbers, tuples, words; commas in brackets do not separate."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [_literal(part.strip()) for part in [*parts, current] if part.strip()]


def _literal(text: str) -> Any:
    try:
        return plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text  # an environment, an algorithm, a loss
