"""Axes of a sweep, and the points of its design: pure arithmetic on the host.

An axis is a field's (dotted) name and its values: a list, an array, or a distribution
to draw from. A design makes points of them: every combination (grid), the n-th values
together (zip), or independent draws (random).
"""

import ast
import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.runner.seeds import check_seed
from purerl.scale.devices import check_count
from purerl.sweeps.labels import labels, plain

DESIGNS = ("grid", "zip", "random")


class Distribution(Protocol):
    """Something to draw an axis's values from."""

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one value."""
        ...


class Uniform(NamedTuple):
    """Numbers between two ends; whole ones where both ends are whole numbers."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value; whole numbers include the upper end."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return int(rng.integers(self.low, self.high + 1))
        return float(rng.uniform(self.low, self.high))


class LogUniform(NamedTuple):
    """Positive numbers whose logarithm is uniform; whole ones as in `Uniform`."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            # Every whole number gets the share of its interval [k - 1/2, k + 1/2].
            ends = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return int(np.clip(round(math.exp(rng.uniform(*ends))), *self))
        ends = math.log(self.low), math.log(self.high)
        return float(np.clip(math.exp(rng.uniform(*ends)), *self))


class Choice(NamedTuple):
    """One of some values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one value."""
        return self.values[int(rng.integers(len(self.values)))]


def uniform(low: float, high: float) -> Uniform:
    """Draw an axis's values evenly between two ends.

    Where both are whole numbers (`uniform(1, 8)`) so is what is drawn, ends included,
    unless the field is a number with a fraction: then it is as `uniform(1.0, 8.0)`.

    Raises:
        ConfigError: ends that are not finite and ascending.
    """
    _check_ends("uniform", low, high)
    return Uniform(plain(low), plain(high))


def loguniform(low: float, high: float) -> LogUniform:
    """Draw an axis's values evenly on a logarithmic scale; whole ones as in `uniform`.

    Raises:
        ConfigError: ends that are not positive, finite and ascending.
    """
    _check_ends("loguniform", low, high)
    if low <= 0:
        raise ConfigError(f"loguniform needs positive ends, got {low}; use uniform.")
    return LogUniform(plain(low), plain(high))


def choice(values: Sequence[Any]) -> Choice:
    """Draw an axis's values from some.

    Raises:
        ConfigError: there are none.
    """
    listed = tuple(plain(value) for value in values)
    if not listed:
        raise ConfigError("choice needs at least one value, got none.")
    return Choice(listed)


def _check_ends(name: str, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"{name} needs two finite ends, the lower one first, got {low} and {high}."
        )


class Design(NamedTuple):
    """The points of a sweep.

    Attributes:
        kind: The kind of design: `grid`, `zip` or `random`.
        names: Names of the axes.
        shape: The number of points along each dimension: one dimension per axis in a
            grid, else a single one.
        points: Values by name of the axis, for each point in the order of the
            dimensions, the last one fastest.
    """

    kind: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    points: tuple[dict[str, Any], ...]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        if self.kind == "grid":
            return self.names
        return ("point",)


def size_of(axes: Mapping[str, Any], design: str, num_points: int | None) -> int:
    """Return how many points `expand` would make, at the most; it checks nothing.

    Args:
        axes: Values, or a distribution, by name of the field.
        design: The kind of design: `grid`, `zip` or `random`.
        num_points: The number of points of a random design.
    """
    if design == "random":
        return num_points if isinstance(num_points, int) else 1
    lengths = [len(axis) if hasattr(axis, "__len__") else 1 for axis in axes.values()]
    return math.prod(lengths) if design == "grid" else max(lengths, default=1)


def expand(
    axes: Mapping[str, Any],
    design: str = "grid",
    num_points: int | None = None,
    seed: int = 0,
) -> Design:
    """Return the points of some axes.

    Args:
        axes: Values by name of the field; a distribution in a random design.
        design: The kind of design: `grid`, `zip` or `random`.
        num_points: The number of points of a random design.
        seed: The seed of a random design's draws. Every axis and point has a stream of
            its own: more points, or another axis, leave the others as they are.

    Raises:
        ConfigError: an unknown design, an empty axis, the same value twice, axes of
            different lengths in a zip, a distribution in a grid.
    """
    if design not in DESIGNS:
        raise ConfigError(
            f"design must be one of {', '.join(DESIGNS)}, got {design!r}."
        )
    if design == "random":
        return _told_apart(_random(axes, num_points, seed))
    if num_points is not None:
        raise ConfigError(
            f"num_points belongs to a random design, got {num_points} with {design}; "
            "leave it out, or set design='random'."
        )
    values = {name: _listed(name, axis, design) for name, axis in axes.items()}
    lengths = {name: len(axis) for name, axis in values.items()}
    if design == "grid":
        shape = tuple(lengths.values())
        points = [
            {name: values[name][i] for name, i in zip(values, index, strict=True)}
            for index in np.ndindex(*shape)
        ]
        return _told_apart(Design("grid", tuple(values), shape, tuple(points)))
    if len(set(lengths.values())) > 1:
        raise ConfigError(
            f"axes of a zip must have equal lengths, got {lengths}; use design='grid' "
            "for all combinations."
        )
    num = max(lengths.values(), default=1)
    points = [{name: values[name][i] for name in values} for i in range(num)]
    times = Counter(zip(*map(labels, values.values()), strict=True))
    twice = [point for point, number in times.items() if number > 1]
    if twice:
        raise ConfigError(
            f"the zip has {', '.join(map(str, twice))} more than once; give "
            "each point once, and more seeds for repetitions."
        )
    return _told_apart(Design("zip", tuple(values), (num,), tuple(points)))


def _told_apart(design: Design) -> Design:
    """Refuse environment objects that are written alike: members would be mixed up."""
    for name in design.names:
        known: dict[str, Any] = {}
        for point in design.points:
            env = point[name]
            if not (hasattr(env, "step") and hasattr(env, "reset")):
                continue
            text = serialise.plain(env, name)
            if known.setdefault(text, env) is not env:
                raise ConfigError(
                    f"the axis {name!r} has several objects that are written alike, "
                    f"{text}: nothing tells their results apart. Make them flax "
                    "dataclasses that differ in a number or a string, or a sweep each."
                )
    return design


def _random(axes: Mapping[str, Any], num_points: int | None, seed: int) -> Design:
    if num_points is None:
        raise ConfigError("a random design needs num_points; for example 40.")
    check_count("num_points", num_points)
    check_seed("design_seed", seed)
    if not axes:
        raise ConfigError("a random design needs at least one axis, got none.")
    sources = {
        name: axis if hasattr(axis, "draw") else Choice(tuple(_listed(name, axis, "")))
        for name, axis in axes.items()
    }
    points = [
        {name: source.draw(_stream(seed, name, i)) for name, source in sources.items()}
        for i in range(num_points)
    ]
    return Design("random", tuple(axes), (num_points,), tuple(points))


def _stream(seed: int, name: str, point: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode()), point])


def _listed(name: str, axis: Any, design: str) -> list[Any]:
    """The values of an axis as plain Python numbers, strings, tuples, or losses."""
    if hasattr(axis, "draw"):
        raise ConfigError(
            f"the axis {name!r} is a distribution, which a {design} cannot list; give "
            "values, or design='random' and num_points."
        )
    if isinstance(axis, str) or not hasattr(axis, "__iter__"):
        raise ConfigError(
            f"the axis {name!r} must be a list of values, got {axis!r}; for example "
            f"[{axis!r}]."
        )
    values = [plain(value) for value in axis]
    names = labels(values)
    if not values:
        raise ConfigError(f"the axis {name!r} has no values.")
    twice = sorted(str(x) for x, number in Counter(names).items() if number > 1)
    if twice and design != "zip":
        raise ConfigError(
            f"the axis {name!r} has {', '.join(twice)} more than once; give each value "
            "once, and more seeds for repetitions."
        )
    return values


def _geomspace(low: float, high: float, count: int) -> list[float]:
    if not (low * high > 0 and math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(
            "geomspace needs two finite ends of one sign, neither of them 0, got "
            f"{low} and {high}; use linspace."
        )
    return np.geomspace(low, high, count).tolist()


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
    if bracket and function.strip() in FUNCTIONS and values.endswith(")"):
        try:
            return name, FUNCTIONS[function.strip()](*_literals(inside[:-1]))
        except (TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"cannot read the axis {text!r}: {error}.") from None
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
