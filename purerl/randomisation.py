"""Domain randomisation: numbers of an environment that are drawn for every episode.

A distribution stands where `env_params` has a number. It is a callable pytree:
`distribution(key)` draws, and its own numbers are leaves, which can be swept, vmapped
and evolved under names such as `env_params.length.low`. Tobin et al. (2017), "Domain
randomization for transferring deep neural networks from simulation to the real world".
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from purerl import schedules
from purerl.config import (
    POSITIVE,
    Check,
    ConfigError,
    as_float32,
    dynamic,
    static,
    validate_field,
)
from purerl.envs.wrappers.randomised import Distribution as Distribution
from purerl.envs.wrappers.randomised import drawn_params as drawn_params
from purerl.registry import Registry
from purerl.types import Array

_NAME = Check(lambda x: isinstance(x, str), 'must be a name, such as "robots"')


@struct.dataclass
class Uniform(Distribution):
    """A distribution in which every number between two ends is equally likely.

    Attributes:
        low: Smallest number.
        high: Largest number.
    """

    low: float = dynamic(0.0, "Smallest number.")
    high: float = dynamic(1.0, "Largest number.")

    def __call__(self, key: Array) -> Array:
        """Draw a number, `[]` float32; the key is consumed."""
        # If both ends are equal, the draw is that number bit for bit.
        share = jax.random.uniform(key)
        return self.low + share * (jnp.asarray(self.high) - self.low)

    def ends(self) -> tuple[Any, Any]:
        """Return `low` and `high`."""
        return self.low, self.high


@struct.dataclass
class LogUniform(Distribution):
    """A distribution in which every order of magnitude between two ends is as likely.

    Attributes:
        low: Smallest number, greater than 0.
        high: Largest number.
    """

    low: float = dynamic(0.1, "Smallest number.", POSITIVE)
    high: float = dynamic(10.0, "Largest number.", POSITIVE)

    def __call__(self, key: Array) -> Array:
        """Draw a number, `[]` float32; the key is consumed."""
        # With both ends equal it is that number bit for bit: 1 to any power is 1.
        share = jax.random.uniform(key)
        return self.low * (jnp.asarray(self.high) / self.low) ** share

    def ends(self) -> tuple[Any, Any]:
        """Return `low` and `high`."""
        return self.low, self.high


@struct.dataclass
class Choice(Distribution):
    """One of some numbers, all of them equally likely.

    Choices of one group are the columns of a table, of which a row is drawn: each of
    them takes the number at the same place.

    Attributes:
        values: Numbers; one that stands there twice is twice as likely.
        group: Name of the table whose column this is; empty for a draw of its own.
    """

    values: tuple[float, ...] = dynamic((0.0, 1.0), "Numbers that are drawn from.")
    group: str = static("", "Name of the table whose column it is.", _NAME)

    def __post_init__(self) -> None:
        values: Any = self.values
        if isinstance(values, int | float):
            values = (values,)
        if isinstance(values, list | np.ndarray):
            values = tuple(np.ravel(values).tolist())
        object.__setattr__(self, "values", values)
        if isinstance(self.values, tuple) and not self.values:
            raise ConfigError(
                "Choice needs at least one number, got none; for example "
                "Choice((0.25, 0.5, 1.0))."
            )

    def __call__(self, key: Array) -> Array:
        """Draw a number, `[]` float32; the key is consumed."""
        index = jax.random.randint(key, (), 0, len(self.values))
        return jnp.stack([jnp.asarray(x, jnp.float32) for x in self.values])[index]

    def ends(self) -> tuple[Any, Any]:
        """Return the smallest and the largest of the numbers."""
        if any(isinstance(value, Tracer) for value in self.values):
            numbers = jnp.stack([jnp.asarray(x, jnp.float32) for x in self.values])
            return numbers.min(), numbers.max()
        return min(self.values), max(self.values)


DISTRIBUTIONS: dict[str, type] = {
    cls.__name__: cls for cls in (Uniform, LogUniform, Choice)
}
_registry = Registry(
    "distribution",
    "distributions",
    "purerl.randomisation.register",
    DISTRIBUTIONS,
    Distribution,
)


def register(name: str, cls: type) -> None:
    """Let configs with a distribution of class `cls` be written to files and read back.

    Args:
        name: Name in files and on command lines, such as `"Triangular"`.
        cls: A `flax.struct.dataclass` that derives from `Distribution`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    _registry.register(name, cls)


def is_distribution(value: Any) -> bool:
    """Return whether a value is a distribution."""
    return isinstance(value, Distribution)


def is_random(tree: Any) -> bool:
    """Return whether there is a distribution anywhere in the parameters."""
    return any(map(is_distribution, jax.tree.leaves(tree, is_leaf=is_distribution)))


def check_distribution(distribution: Distribution, owner: str) -> None:
    """Check the numbers of a distribution, as far as they are known before tracing.

    Args:
        distribution: The distribution.
        owner: Name of what the distribution is of, for the message.

    Raises:
        ConfigError: a number that is none, or a low end above the high one.
    """
    for field in dataclasses.fields(distribution):  # type: ignore[arg-type]
        value = getattr(distribution, field.name)
        if "help" in field.metadata and field.name != "values":
            validate_field(field, value, f"{owner}.{field.name}")
    if schedules.is_moving(distribution):
        raise ConfigError(
            f"{owner}: the numbers of a distribution cannot follow a schedule, got "
            f"{distribution!r}: evaluations would be of a task that moves. Give "
            "numbers; for a range that widens, train in several runs, each with "
            "start= from the one before."
        )
    numbers = jax.tree.leaves(distribution)
    if any(isinstance(number, Tracer) for number in numbers):
        return
    if any(np.shape(x) != () or not np.isfinite(as_float32(x)) for x in numbers):
        raise ConfigError(
            f"{owner} must be a distribution of finite single numbers, got "
            f"{distribution!r}. To train one agent per value, use jax.vmap(train, "
            "in_axes=(None, 0))(key, overrides)."
        )
    low, high = distribution.ends()
    if low > high:
        raise ConfigError(
            f"{owner}: low must not be greater than high, got {low!r} and {high!r}."
        )


def check_groups(distributions: Mapping[str, Distribution], owner: str) -> None:
    """Refuse choices of one group that have not equally many values.

    Args:
        distributions: Distributions by the names of their parameters.
        owner: Name of what the parameters are of, for the message.

    Raises:
        ConfigError: naming two of the group, and the numbers of their values.
    """
    firsts: dict[str, tuple[str, int]] = {}
    for name, choice in distributions.items():
        if not isinstance(choice, Choice) or not choice.group:
            continue
        number = len(choice.values)
        first, rows = firsts.setdefault(choice.group, (name, number))
        if number != rows:
            raise ConfigError(
                f"{owner}: {name} must have as many values as {first}, which is of the "
                f"same group {choice.group!r} ({rows}), got {number}: a row of the "
                "table has one of each. Give every row its number, or name another "
                "group."
            )
