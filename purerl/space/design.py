"""The points of a design: pure arithmetic on the host.

A design makes points of axes: every combination (grid), the n-th values together (zip),
or independent draws (random).
"""

import ast
import dataclasses
import math
import operator
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.runner.arguments import as_seed
from purerl.runner.options import Repeated, option
from purerl.scale.devices import required
from purerl.space.axes import (
    Choice,
    LogUniform,
    Uniform,
    choice,
    loguniform,
    plain,
    read_axis,
    read_values,
    uniform,
)

DESIGNS = ("grid", "zip", "random")


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
    """Return how many points `expand` would make, at the most; it checks nothing."""
    if design == "random":
        try:
            return operator.index(num_points)  # type: ignore[arg-type]
        except TypeError:
            return 1
    lengths = [len(axis) if hasattr(axis, "__len__") else 1 for axis in axes.values()]
    return math.prod(lengths) if design == "grid" else max(lengths, default=1)


def expand(
    axes: Mapping[str, Any],
    design: str = "grid",
    num_points: int | None = None,
    seed: int = 0,
) -> Design:
    """Return the points of some axes.

    Raises:
        ConfigError: an unknown design, an empty axis, the same value twice, axes of
            different lengths in a zip, a distribution in a grid.
    """
    if design not in DESIGNS:
        raise ConfigError(
            f"design must be one of {', '.join(DESIGNS)}, got {design!r}."
        )
    if design == "random":
        return _random(axes, num_points, seed)
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
        return Design("grid", tuple(values), shape, tuple(points))
    if len(set(lengths.values())) > 1:
        raise ConfigError(
            f"axes of a zip must have equal lengths, got {lengths}; use design='grid' "
            "for all combinations."
        )
    num = max(lengths.values(), default=1)
    points = [{name: values[name][i] for name in values} for i in range(num)]
    return Design("zip", tuple(values), (num,), tuple(points))


def _random(axes: Mapping[str, Any], num_points: int | None, seed: int) -> Design:
    if num_points is None:
        raise ConfigError("a random design needs num_points; for example 40.")
    num_points = required("num_points", num_points)
    seed = as_seed("design_seed", seed)
    if not axes:
        raise ConfigError("a random design needs at least one axis, got none.")
    sources = {
        name: axis if _is_own(axis) else read_axis(name, axis)
        for name, axis in axes.items()
    }
    points = [
        {name: source.draw(_stream(seed, name, i)) for name, source in sources.items()}
        for i in range(num_points)
    ]
    return Design("random", tuple(axes), (num_points,), tuple(points))


def _is_own(axis: Any) -> bool:
    """Return whether an axis is a distribution of the user's own."""
    return hasattr(axis, "draw") and not isinstance(axis, Uniform | LogUniform | Choice)


def _stream(seed: int, name: str, point: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode()), point])


def _listed(name: str, axis: Any, design: str) -> list[Any]:
    if hasattr(axis, "draw"):
        raise ConfigError(
            f"the axis {name!r} is a distribution, which a {design} cannot list; give "
            "values, or design='random' and num_points."
        )
    return read_values(name, axis, may_repeat=design == "zip")


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


def read_axes(texts: Sequence[str]) -> dict[str, Any]:
    """Read axes by name, as the command line writes each.

    Raises:
        ConfigError: one that cannot be read, or given twice.
    """
    axes: dict[str, Any] = {}
    for text in texts:
        name, values = parse_axis(text)
        if name in axes:
            raise ConfigError(
                f"--axis {name} is given twice; list all its values in one, such as "
                f"{name}=1,2,3."
            )
        axes[name] = values
    return axes


def axes_option(help: str, doc: str, needed: bool = True) -> Any:
    """Return the option of the axes of a tool.

    Args:
        help: The help of the flag.
        doc: What the documentation of the keyword says.
        needed: Whether there must be at least one axis.
    """

    def read(texts: Sequence[str]) -> dict[str, Any]:
        if needed and not texts:
            raise ConfigError(
                "a search needs at least one axis, got none; for example "
                '--axis "learning_rate=loguniform(1e-4,1e-2)".'
            )
        return read_axes(texts)

    default = dataclasses.MISSING if needed else None
    return option(default, help, doc=doc, flag="axis", kind=Repeated, read=read)


def parse_axis(text: str) -> tuple[str, Any]:
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
    if function not in FUNCTIONS:
        return name, _literals(values)
    try:
        return name, FUNCTIONS[function](*_literals(inside[:-1]))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"cannot read the axis {text!r}: {error}") from None


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
    return [literal(part.strip()) for part in [*parts, current] if part.strip()]


def literal(text: str) -> Any:
    """Return the Python value that a text writes; other text as it is."""
    try:
        return plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text  # an environment, an algorithm, a loss
