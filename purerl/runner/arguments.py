"""Checks of arguments that trained things take: config, folder, times, seeds."""

import contextlib
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.algorithms import entry_of
from purerl.config import ConfigError, shown
from purerl.storage.folders import is_begun
from purerl.tracing import refuse_traced

# Debugging switches of JAX with which nothing can be trained; docs/faq.md names the
# others. NaN stands for numbers that are not known, as where no episode has ended, and
# programs and results move between host and devices.
SWITCHES = (
    "jax_disable_jit",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_transfer_guard_host_to_device",
    "jax_transfer_guard_device_to_host",
    "jax_transfer_guard_device_to_device",
)


def check_call(who: str, config: Any) -> None:
    """Refuse what is no config, a switch of JAX, and a call while JAX traces.

    Args:
        who: What compiles and trains, as a sentence begins.
        config: The config that was given.

    Raises:
        ConfigError: naming what was given, or what to call instead.
    """
    entry_of(config)
    for name in SWITCHES:
        value = getattr(jax.config, name)
        if value is True or str(value).startswith("disallow"):
            raise ConfigError(
                f"{who} cannot train where JAX's {name} is {value}; switch it off."
            )
    refuse_traced(who, config)


def as_switch(name: str, value: Any) -> bool:
    """Return what is True or False, and refuse what is not, such as a number of steps.

    Raises:
        ConfigError: with what was given.
    """
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def as_folder(name: str, value: str | Path | None) -> Path | None:
    """Return a folder that was given, or None where none was; `~` is the user's home.

    Raises:
        ConfigError: the value is no path, an empty text, which would be the working
            directory, or begins with the home of a user who has none; or nobody can
            look there, as the path is too long or lies in a folder of somebody else.
    """
    if value is None:
        return None
    try:
        # An empty text would be the working directory; no path has a zero byte.
        if str(value).strip() and "\0" not in str(value):
            folder = Path(value).expanduser()
            is_begun(folder)
            return folder
    except OSError as error:
        raise ConfigError(
            f"{name}: cannot look into {value} ({error.strerror or error}). Give "
            "another folder."
        ) from None
    except (TypeError, RuntimeError):  # `~` of a user without a home.
        pass
    raise ConfigError(
        f"{name} must be the path of a folder, got {shown(value)}; for example "
        "runs/first."
    )


def stored_folder(value: str | Path) -> Path:
    """Return the folder of results that is to be read; `~` is the user's home.

    Raises:
        ConfigError: the value is no path.
    """
    if value is None:
        raise ConfigError("folder must be the path of a folder, got None.")
    return as_folder("folder", value) or Path()


def as_seconds(name: str, value: float) -> float:
    """Return a time of 0 s or more, which may be infinite.

    Raises:
        ConfigError: the value is negative, not a number, or none at all.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= 0:
        raise ConfigError(
            f"{name} must be a number of seconds, 0 or more, got {value!r}; for "
            "example 30."
        )
    return value


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


def as_seed(name: str, seed: int) -> int:
    """Return a seed of a random key, also one of NumPy or JAX, as a number of Python.

    Args:
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


def seeds_named(seeds: Sequence[int]) -> str:
    """Name the agents of a run in a sentence: `seed 0`, `seeds 0 to 7`, a list."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def split_seed(text: str, asked: Any = None, name: str = "seed") -> tuple[Path, Any]:
    """Read `RUN` or `RUN:SEED`: the folder of a run, and the seed if there is one.

    Args:
        text: The words.
        asked: What else says which agents are taken, returned where the words do not.
        name: Its name.

    Raises:
        ConfigError: both name agents.
    """
    folder, colon, seed = text.rpartition(":")
    if not colon or not seed.isdigit() or Path(text).exists():
        return Path(text), asked
    if asked is not None:
        raise ConfigError(
            f"{name} is {asked!r}, and {text} names a seed already; give one of them."
        )
    return Path(folder), int(seed)
