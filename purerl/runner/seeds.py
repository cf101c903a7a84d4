"""Seeds as an argument: a number of them, or which."""

import contextlib
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.scale.devices import check_count

NUM_SEEDS = 2**32  # A random key is made of 32 bits.


def num_seeds(seeds: int | Sequence[int]) -> int:
    """Count the seeds that are asked for, without making any; 0 for no seeds."""
    number = _as_number(seeds)
    if number is not None:
        return number
    with contextlib.suppress(TypeError):  # An array without axes has no length.
        return len(seeds)  # type: ignore[arg-type]
    return 0


def _as_number(seeds: Any) -> int | None:
    """A whole number of Python, NumPy or JAX as an int; None of anything else."""
    if isinstance(seeds, bool):
        return None
    try:
        return operator.index(seeds)
    except TypeError:
        return None


def check_seeds(seeds: int | Sequence[int], name: str = "seeds") -> tuple[int, ...]:
    """Read the seeds as a tuple.

    Args:
        seeds: The number of seeds, or which.
        name: The name of the argument, for the sentence.

    Raises:
        ConfigError: none, negative ones, or the same one twice.
    """
    number = _as_number(seeds)
    numbers: Any = seeds if number is None else range(number)
    try:
        members = tuple(operator.index(seed) for seed in numbers)
    except TypeError:
        members = ()
    in_range = all(0 <= seed < NUM_SEEDS for seed in members)
    if not members or not in_range or len(set(members)) != len(members):
        raise ConfigError(
            f"{name} must be a positive number, or different whole numbers from 0 to "
            f"2^32 - 1, got {seeds!r}; for example 16, or [3, 5, 8]."
        )
    return members


def seeds_from(first: int, number: int, name: str = "seeds") -> range:
    """Return as many seeds as are asked for, from the first one on.

    Args:
        first: The first seed.
        number: The number of seeds.
        name: The name of the argument, for the sentence.

    Raises:
        ConfigError: no positive number.
    """
    check_count(name, number)
    return range(first, first + number)


def as_seed(name: str, seed: int) -> int:
    """Return a seed of a random key, also one of NumPy or JAX, as a number of Python.

    Args:
        name: The name of the argument, for the sentence.
        seed: The value that was given.

    Raises:
        ConfigError: naming the value.
    """
    number = _as_number(seed)
    if number is None or not 0 <= number < NUM_SEEDS:
        raise ConfigError(
            f"{name} must be a whole number from 0 to 2^32 - 1, got {seed!r}."
        )
    return number


def seeds_text(seeds: tuple[int, ...]) -> str:
    """Write seeds as a person would in a call."""
    first, end = seeds[0], seeds[0] + len(seeds)
    if seeds != tuple(range(first, end)):
        return str(list(seeds))
    return str(end) if first == 0 else f"range({first}, {end})"


def seeds_named(seeds: Sequence[int]) -> str:
    """Name the agents of a run in a sentence: `seed 0`, `seeds 0 to 7`, a list."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def split_seed(text: str) -> tuple[Path, int | None]:
    """Read `RUN` or `RUN:SEED`: the folder of a run, and the seed if there is one."""
    folder, colon, seed = text.rpartition(":")
    if colon and seed.isdigit() and not Path(text).exists():
        return Path(folder), int(seed)
    return Path(text), None
