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


# What a function of an axis is given, for the message where it was given otherwise.
ARGUMENTS = {
    "linspace": "low, high, count",
    "geomspace": "low, high, count",
    "range": "stop, or start, stop, or start, stop, step",
    "uniform": "low, high",
    "loguniform": "low, high",
    "choice": "the values",
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
        try:
            return name, FUNCTIONS[function](*_literals(inside[:-1]))
        except ConfigError:
            raise
        except (TypeError, ValueError):
            raise ConfigError(
                f"cannot read the axis {text!r}: {function} takes "
                f"({ARGUMENTS[function]})."
            ) from None
    if function.islower() and not registry.is_known(function):
        raise ConfigError(
            f"cannot read the axis {text!r}: {function!r} is neither a function of an "
            f"axis ({', '.join(FUNCTIONS)}) nor a loss, an optimiser, a rule or a "
            "schedule."
        )
    return name, _literals(values)


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
    except (ValueError, SyntaxError):
        return text  # an environment, an algorithm, a loss
