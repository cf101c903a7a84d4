"""Scores of several environments on one scale, as statistics over tasks take them."""

from collections.abc import Mapping, Sequence

import numpy as np

from purerl.config import ConfigError, shown
from purerl.report.statistics.missing import as_numbers

# One for all environments, one for each in their order, or by their names.
Numbers = float | Sequence[float] | Mapping[str, float]


def normalise(
    scores: np.ndarray, environments: Sequence[str], low: Numbers, high: Numbers
) -> np.ndarray:
    """Return scores of which `low` is 0 and `high` is 1 in every environment.

    Args:
        scores: Scores `[N, S, E]`.
        environments: Names of the environments, E of them.
        low: The returns that become 0.
        high: The returns that become 1.

    Raises:
        ConfigError: an environment has no number, or `high` is not above `low`.
    """
    lows, highs = (
        read_numbers(name, numbers, environments)
        for name, numbers in (("low", low), ("high", high))
    )
    for environment, least, most in zip(environments, lows, highs, strict=True):
        if not least < most:
            raise ConfigError(
                f"high must be above low in every environment, got {most:g} and "
                f"{least:g} for {environment}; give for example the return of a good "
                "policy as high, and that of a random one as low."
            )
    return (scores - lows) / (highs - lows)


def read_numbers(
    field: str, numbers: Numbers, environments: Sequence[str]
) -> np.ndarray:
    """Read a finite number for each environment, `[E]`.

    Args:
        field: Name of the argument, for the message.
        numbers: What was given.
        environments: Names of the environments, E of them.

    Raises:
        ConfigError: an environment has none, or there is one too many.
    """
    values = numbers
    if isinstance(numbers, Mapping):
        if set(numbers) != set(environments):
            raise ConfigError(
                f"{field} must have a number for each of {', '.join(environments)}, "
                f"got {', '.join(map(str, numbers)) or 'none'}."
            )
        values = [numbers[name] for name in environments]
    found = as_numbers(field, values)
    if found.shape not in ((), (len(environments),)) or not np.isfinite(found).all():
        example = ", ".join(f"{name!r}: 0.0" for name in environments)
        raise ConfigError(
            f"{field} must be a finite number, or one for each environment, got "
            f"{shown(numbers)}; give for example {{{example}}}."
        )
    return np.broadcast_to(found, len(environments))
