"""Axes: what a field may take, as values or as a distribution; and points of them.

A design makes points of axes: every combination (grid), the n-th values together (zip),
or independent draws (random). It is pure arithmetic on the host. Results name the
values of an axis by their labels. A point sets fields of a config: `config_at` returns
the config that comes of it.
"""

import ast
import dataclasses
import itertools
import json
import math
import operator
import zlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import serialise
from purerl.acting.environment import bind_params, resolve_env
from purerl.algorithms import config_class, name_of
from purerl.config import (
    ENV_FIELDS,
    TASK_FIELDS,
    ConfigError,
    TrainConfig,
    apply_overrides,
    check_apart,
    check_known,
    check_mapping,
    field_names,
    is_number,
    part_kind,
)
from purerl.envs.base import Environment, is_env
from purerl.networks import modules
from purerl.randomisation import is_random
from purerl.report.sweep_data import significant
from purerl.runner.arguments import as_seed, check_call
from purerl.runner.options import Repeated, option
from purerl.scale.devices import required
from purerl.types import Overrides


class Uniform(NamedTuple):
    """Numbers between two ends; whole ones where both ends are whole numbers."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value; whole numbers include the upper end."""
        if is_whole(self):
            return int(rng.integers(int(self.low), int(self.high) + 1))
        return float(rng.uniform(self.low, self.high))


class LogUniform(NamedTuple):
    """Positive numbers whose logarithm is uniform; whole ones as in `Uniform`."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one value."""
        if is_whole(self):
            # Every whole number gets the share of its interval [k - 1/2, k + 1/2].
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return int(np.clip(round(math.exp(rng.uniform(low, high))), *self))
        low, high = math.log(self.low), math.log(self.high)
        return float(np.clip(math.exp(rng.uniform(low, high)), *self))


class Choice(NamedTuple):
    """One of some values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw one value."""
        return self.values[int(rng.integers(len(self.values)))]


Axis = Uniform | LogUniform | Choice


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


def is_whole(axis: Uniform | LogUniform) -> bool:
    """Return whether an axis has whole numbers only."""
    return isinstance(axis.low, int) and isinstance(axis.high, int)


def ends(axis: Axis) -> tuple[Any, ...]:
    """Return what stands for a whole axis: its two ends, or all values of a choice."""
    return axis.values if isinstance(axis, Choice) else tuple(axis)


def read_axis(name: str, axis: Any) -> Axis:
    """Return an axis that a search can move along; a list is a choice.

    Raises:
        ConfigError: see `read_values`.
    """
    if isinstance(axis, Uniform | LogUniform):
        return axis
    if isinstance(axis, Choice):
        return Choice(tuple(read_values(name, axis.values, may_repeat=True)))
    return Choice(tuple(read_values(name, axis)))


def read_values(name: str, axis: Any, may_repeat: bool = False) -> list[Any]:
    """Return an axis's values as plain Python numbers, strings, tuples, or losses.

    Raises:
        ConfigError: no list, an empty one, the same value twice, or environment objects
            that nothing tells apart.
    """
    # A set's order may differ from process to process.
    is_listed = hasattr(axis, "__iter__") and not isinstance(
        axis, str | set | frozenset
    )
    if not is_listed:
        example = [axis]
        if isinstance(axis, str):
            example = _literals(axis)
        elif isinstance(axis, set | frozenset):
            example = sorted(axis, key=str)
        raise ConfigError(
            f"the axis {name!r} must be a list of values, got {axis!r}; for example "
            f"{example!r}."
        )
    values = [_of_text(name, plain(value)) for value in axis]
    if not values:
        raise ConfigError(f"the axis {name!r} has no values.")
    known: dict[str, Any] = {}
    for env in filter(is_env, values):
        text = serialise.env_text(env)
        if known.setdefault(text, env) is not env:
            raise ConfigError(
                f"the axis {name!r} has several objects that are written alike, "
                f"{text}: nothing tells their results apart."
            )
    if not may_repeat:
        distinct_labels(name, values)
    return values


def _of_text(name: str, value: Any) -> Any:
    """Return what a text stands for, as on the command line; other values as they are.

    That is a number, a tuple, or the part that a file holds, which may change. Other
    text stays text, see `read_value`.
    """
    if not isinstance(value, str):
        return value
    kind = part_kind(name)
    if kind is not None and value.strip().endswith(serialise.SUFFIXES):
        return serialise.parse_part(value, kind)
    return literal(value.strip())


_KINDS = {"uniform": Uniform, "loguniform": LogUniform, "choice": Choice}


def to_dict(axes: Mapping[str, Axis]) -> dict[str, Any]:
    """Return axes as plain values, by name.

    Raises:
        ConfigError: a value that no file can hold.
    """
    return {
        name: {
            "kind": type(axis).__name__.lower(),
            **{x: serialise.plain(y, name) for x, y in axis._asdict().items()},
        }
        for name, axis in axes.items()
    }


def from_dict(stored: Mapping[str, Any]) -> dict[str, Axis]:
    """Return the axes that `to_dict` wrote."""
    axes = {}
    for name, axis in stored.items():
        fields = {x: y for x, y in axis.items() if x != "kind"}
        if "values" in fields:
            fields["values"] = tuple(map(read_value, fields["values"]))
        axes[name] = _KINDS[axis["kind"]](**fields)
    return axes


def read_value(value: Any) -> Any:
    """Return a value of an axis that `serialise.plain` wrote.

    Dictionaries of parts and networks are these again, distributions among parameters
    of an environment too, and lists are tuples. Other text stays text: the name of an
    algorithm, say, or a loss as a person wrote it.
    """
    if modules.is_written(value):
        return modules.parse("axis", value)
    if isinstance(value, Mapping) and "type" in value:
        return serialise.parse_part(value)
    if isinstance(value, Mapping):
        return {name: read_value(inner) for name, inner in value.items()}
    return plain(value)


def plain(value: Any) -> Any:
    """Return a value as people write it: Python numbers, tuples for sequences."""
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return plain(np.asarray(value).tolist())
    if isinstance(value, list):
        return tuple(map(plain, value))
    return value


def label(value: Any) -> Any:
    """Return a value's name in results: numbers and strings as they are, else text."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return "-".join(str(label(inner)) for inner in value)
    return serialise.part_text(value)


def labels(values: Sequence[Any]) -> list[Any]:
    """Return a name per value; losses that are written alike get numbers."""
    names = [label(value) for value in values]
    if len(set(names)) == len(names) or not any(map(callable, values)):
        return names
    return [f"{name}#{number}" for number, name in enumerate(names)]


def distinct_labels(name: str, values: Sequence[Any]) -> list[Any]:
    """Return a name per value of an axis, no two of them alike.

    Raises:
        ConfigError: the same value twice.
    """
    # Environments that are written alike, `read_values` has refused.
    keys = [_key(x, name) if callable(x) else label(x) for x in values]
    times = Counter(keys)
    twice = {
        str(label(x)) for x, key in zip(values, keys, strict=True) if times[key] > 1
    }
    if twice:
        raise ConfigError(
            f"the axis {name!r} has {', '.join(sorted(twice))} more than once; give "
            "each value once, and more seeds for repetitions."
        )
    return labels(values)


def variable_of(metric: str, taken: Container[str]) -> str:
    """Return the name that results give to a training metric."""
    return f"train_{metric}" if metric in taken else metric


def in_words(value: Any) -> str:
    """Return a value's label as tables show it, a fraction to four digits."""
    name = label(value)
    if isinstance(name, float):
        return f"{name:.{significant(name, 4)}g}"
    return str(name)


def in_a_line(point: Mapping[str, Any]) -> str:
    """Return a point's names and values in a line."""
    return ", ".join(f"{name}={in_words(value)}" for name, value in point.items())


def column(points: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return an axis's label at every point; equal values have equal labels."""
    named = _label_of(points, name)
    return [named[_key(point[name], name)] for point in points]


def known_label(points: Sequence[Mapping[str, Any]], name: str, value: Any) -> Any:
    """Return the label of a value of an axis; None if no point of a design has it."""
    return _label_of(points, name).get(_key(value, name))


def _label_of(points: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """The labels of an axis's values, by what tells values apart."""
    values = {_key(point[name], name): point[name] for point in points}
    return dict(zip(values, labels(list(values.values())), strict=True))


def _key(value: Any, name: str) -> str:
    return json.dumps(serialise.plain(value, name), sort_keys=True)


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
    for name, given in (("num_points", num_points), ("design_seed", seed or None)):
        if given is not None:
            raise ConfigError(
                f"{name} belongs to a random design, got {given!r} with {design}; "
                "leave it out, or set design='random'."
            )
    values = {}
    for name, axis in axes.items():
        if hasattr(axis, "draw"):
            raise ConfigError(
                f"the axis {name!r} is a distribution, which a {design} cannot list; "
                "give values, or design='random' and num_points."
            )
        values[name] = read_values(name, axis, may_repeat=design == "zip")
    lengths = {name: len(axis) for name, axis in values.items()}
    if design == "grid":
        shape, rows = tuple(lengths.values()), itertools.product(*values.values())
    elif len(set(lengths.values())) > 1:
        raise ConfigError(
            f"axes of a zip must have equal lengths, got {lengths}; use design='grid' "
            "for all combinations."
        )
    else:
        shape = (max(lengths.values(), default=1),)
        rows = zip(*values.values(), strict=True) if values else [()]
    points = tuple(dict(zip(values, row, strict=True)) for row in rows)
    return Design(design, tuple(values), shape, points)


def _random(axes: Mapping[str, Any], num_points: int | None, seed: int) -> Design:
    if num_points is None:
        raise ConfigError("a random design needs num_points; for example 40.")
    num_points = required("num_points", num_points)
    seed = as_seed("design_seed", seed)
    if not axes:
        raise ConfigError("a random design needs at least one axis, got none.")
    sources = {name: read_axis(name, axis) for name, axis in axes.items()}
    points = [
        {name: source.draw(_stream(seed, name, i)) for name, source in sources.items()}
        for i in range(num_points)
    ]
    return Design("random", tuple(axes), (num_points,), tuple(points))


def _stream(seed: int, name: str, point: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode()), point])


FUNCTIONS = {
    "linspace": lambda a, b, n: np.linspace(a, b, n).tolist(),
    "geomspace": lambda a, b, n: np.geomspace(a, b, n).tolist(),
    "logspace": lambda a, b, n: np.logspace(a, b, n).tolist(),
    "range": lambda *ends: list(range(*ends)),
    "uniform": uniform,
    "loguniform": loguniform,
    "choice": lambda *values: choice(values),
}


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
        axes: dict[str, Any] = {}
        for name, values in map(parse_axis, texts):
            if name in axes:
                raise ConfigError(
                    f"--axis {name} is given twice; list all its values in one, such "
                    f"as {name}=1,2,3."
                )
            axes[name] = values
        return axes

    default = dataclasses.MISSING if needed else None
    return option(default, help, doc=doc, flag="axis", kind=Repeated, read=read)


def parse_axis(text: str) -> tuple[str, Any]:
    """Read an axis from `NAME=VALUES`, as the command line writes it.

    VALUES is a list such as `1e-4,3e-4` or `(64,64),(256,256)`, or a call such as
    `geomspace(1e-4, 1e-2, 8)` or `logspace(-4, -2, 8)` as NumPy's, `linspace`, `range`,
    `uniform`, `loguniform`, `choice`.

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
    if not (bracket and function in FUNCTIONS and values.endswith(")")):
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


def split(
    config: TrainConfig, point: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a point sets of static and of dynamic fields, parts parsed.

    Raises:
        ConfigError: a name that is no field.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}
    static, dynamic = {}, {}
    for name, value in point.items():
        first = name.split(".")[0]
        if name != "algorithm":
            check_known(first, list(fields), type(config).__name__)
        if name == "algorithm" or not fields[first].metadata.get("pytree_node", True):
            static[name] = value
        elif isinstance(value, str):
            dynamic[name] = _read(fields[first], name, value)
        else:
            dynamic[name] = value
    return static, dynamic


def _read(field: dataclasses.Field, name: str, text: str) -> Any:
    """Return the value of a text: a part, a number, or inside a part either of them."""
    if name == field.name:
        return serialise.parse_value(field, text)
    if field.name == "env_params":
        return serialise.parse_params(text)
    return serialise.parse_part(text)


def with_static(
    config: TrainConfig, static: Mapping[str, Any], dynamic: Mapping[str, Any]
) -> TrainConfig:
    """Return a config with static fields set; one dot reaches into a mapping.

    Its environment is randomised if it is under the dynamic fields: whether numbers of
    an environment are drawn is structure.

    Raises:
        ConfigError: a dot into a field that holds no mapping.
    """
    for name, value in static.items():
        if name == "algorithm":
            continue
        first, dot, inner = name.partition(".")
        if dot:
            mapping = getattr(config, first)
            if not isinstance(mapping, Mapping):
                raise ConfigError(
                    f"the axis {name!r}: {first} has nothing inside; sweep {first}."
                )
            value = {**mapping, inner: value}
        config = config.replace(**{first: value})
    named = {n: v for n, v in dynamic.items() if n.split(".")[0] == "env_params"}
    params = apply_overrides(config, named).env_params if named else config.env_params
    is_same = is_random(params) == is_random(config.env_params)
    return config if is_same else config.replace(env_params=params)


def resolve_point(
    config: TrainConfig, point: Mapping[str, Any]
) -> tuple[TrainConfig, Overrides]:
    """Return the config of a point's group, and the point's overrides of it."""
    base = with_algorithm(config, point.get("algorithm", name_of(config)))
    static, dynamic = split(base, point)
    return with_static(base, static, dynamic), dynamic


def config_at(config: TrainConfig, point: Mapping[str, Any]) -> TrainConfig:
    """Return the whole config of a point, as `purerl.run` takes it.

    Of a folder that was read without the module of its parts there is the task alone.
    """
    if type(config) is TrainConfig:
        return config
    base, overrides = resolve_point(config, point)
    return apply_overrides(base, overrides)


def with_algorithm(config: TrainConfig, name: str) -> TrainConfig:
    """Return another algorithm's config for the task of `config`.

    The environment, the number of steps and the evaluations stay as they are; only
    where there are no wrappers, those without which an algorithm cannot train are
    added. Another field that both have is carried over where it is not its class's
    default; where it is, it takes the other class's default.

    Raises:
        ConfigError: no such algorithm.
    """
    if name == name_of(config):
        return config
    cls = config_class(name)
    shared = {
        field: getattr(config, field)
        for field in field_names(cls)
        if field in field_names(config)
        and (field in TASK_FIELDS or not _is_default(config, field))
    }
    if not shared["env_wrappers"]:  # PLR brings the wrapper that it needs.
        del shared["env_wrappers"]
    return cls(**shared)


def _is_default(config: TrainConfig, name: str) -> bool:
    default = serialise.plain(getattr(type(config)(), name), name)
    return serialise.plain(getattr(config, name), name) == default


AXES = '{"learning_rate": purerl.loguniform(1e-4, 1e-2)}'


class FieldAxes:
    """The axes of a search: at least one, over the fields of a config.

    Attributes:
        config: The config of everything that is trained, where no axis says otherwise.
        axes: Distributions by (dotted) name of the field; a list is a choice.
        names: Labels of each choice's values, by axis.
    """

    def __init__(self, config: TrainConfig, axes: Mapping[str, Any]) -> None:
        check_call("a search", config)
        check_mapping("axes", axes, AXES)
        if not axes:
            raise ConfigError(
                f"a search needs at least one axis, got none; for example {AXES}."
            )
        self.config = config
        read = {name: read_axis(name, axis) for name, axis in axes.items()}
        self.axes: dict[str, Axis] = for_fields(config, read)
        self.names: dict[str, list[Any]] = {
            name: labels(axis.values)
            for name, axis in self.axes.items()
            if isinstance(axis, Choice)
        }

    def config_at(self, point: Mapping[str, Any]) -> TrainConfig:
        """Return the whole config of a point, as `purerl.run` takes it."""
        return config_at(self.config, point)

    def to_dict(self) -> dict[str, Any]:
        """Return the axes as plain values."""
        return to_dict(self.axes)


def for_fields(config: TrainConfig, axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes, where distributions over fields with a fraction draw fractions.

    `uniform(0, 1)` of a learning rate is not 0 or 1, as it is of a number of layers.

    Raises:
        ConfigError: the name of an axis is inside another's.
    """
    check_apart(axes, "the axes name")
    return {
        name: type(axis)(float(axis.low), float(axis.high))
        if isinstance(axis, Uniform | LogUniform) and _has_fraction(config, name)
        else axis
        for name, axis in axes.items()
    }


def value_at(
    config: TrainConfig, name: str, env: Environment | None = None, word: str = ""
) -> Any:
    """Return the config's value under a dotted name; None if it has none.

    Numbers of the environment are those that it has with the config's put in.

    Args:
        config: The config.
        name: The name of a field, with dots for what is inside it.
        env: The config's environment, if it has been made.
        word: Name of the argument that names it, if what there is not is refused.

    Raises:
        ConfigError: there is no such value, and a word was given.
    """
    first, *rest = name.split(".")
    if word:
        check_known(first, field_names(config), f"{word}: {type(config).__name__}")
    value: Any = getattr(config, first, None)
    if first == "env_params":
        value = bind_params(env or resolve_env(config), config.env_params)
    for part in rest:
        kind = type(value).__name__
        if isinstance(value, Mapping):
            known, value = list(value), value.get(part)
        else:
            known = field_names(value) if dataclasses.is_dataclass(value) else []
            value = getattr(value, part, None)
        if word:
            check_known(part, known, f"{word}: {name}: {kind}")
    return value


def _has_fraction(config: TrainConfig, name: str) -> bool:
    """Return whether a number under a dotted name may have a fraction."""
    above, _, last = name.rpartition(".")
    value = value_at(config, name)
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        return jnp.issubdtype(value.dtype, jnp.floating)
    if isinstance(value, float) or name.split(".")[0] == "env_params":
        return isinstance(value, float)  # A parameter keeps its type.
    # A value such as 1, None or `auto` does not say what may take its place.
    owner = value_at(config, above) if above else config
    field = getattr(owner, "__dataclass_fields__", {}).get(last)
    return field is not None and (is_number(field) or isinstance(field.default, float))


# A name, changes of the config by name (and `name`, what to call it), or a config.
Environments = Sequence[str | Mapping[str, Any] | TrainConfig]
# What a config that stands for an environment says to configs of other algorithms.
CARRIED_FIELDS = (*ENV_FIELDS, "total_timesteps")


class Task(NamedTuple):
    """An environment in which everything that is compared trains.

    Attributes:
        name: The environment's name.
        config: The config in this environment.
        changes: What it changes of the config, by name of the field.
    """

    name: str
    config: TrainConfig
    changes: dict[str, Any]


def read_environments(config: TrainConfig, environments: Environments) -> list[Task]:
    """Return the environments in their order; the config's own where none are given.

    Where two have one name, all are numbered.

    Raises:
        ConfigError: an entry of another kind, or an unknown field.
    """
    if isinstance(environments, str | Mapping | TrainConfig):
        environments = [environments]
    tasks = []
    for entry in environments or [{}]:
        if isinstance(entry, TrainConfig) and type(entry) is type(config):
            changes = {field: getattr(entry, field) for field in CARRIED_FIELDS}
            name, changed = serialise.env_name(entry.env), entry
        elif isinstance(entry, str | Mapping):
            changes = {"env": entry} if isinstance(entry, str) else dict(entry)
            name = changes.pop("name", None)
            changed = config.replace(**changes)
            name = str(name or serialise.env_name(changed.env))
        else:
            raise ConfigError(
                "environments takes names, changes of the config by name, and "
                f"{type(config).__name__}s, got {entry!r}."
            )
        tasks.append(Task(name, changed, changes))
    if len({task.name for task in tasks}) < len(tasks):
        tasks = [
            task._replace(name=f"{task.name} #{n}") for n, task in enumerate(tasks)
        ]
    return tasks


def environments_option() -> Any:
    """Return the option of the environments in which a tool trains."""
    return option(
        (),
        "Environment to train in, with changes of the config after semicolons: "
        "'Acrobot-v1; total_timesteps=2e5'; may be repeated. The config's own if not "
        "given.",
        doc="Environments: names; changes of the config by name, as in "
        '`{"env": "Acrobot-v1", "total_timesteps": 200_000}`, with `name` to call them '
        "otherwise; or configs. The config's own where none are given.",
        flag="environment",
        kind=Repeated,
        read=parse_environments,
    )


def parse_environments(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Read environments such as `Acrobot-v1; total_timesteps=2e5`.

    Raises:
        ConfigError: one that cannot be read.
    """
    environments = []
    for text in texts:
        env, _, rest = text.partition(";")
        changes = read_changes("--environment", text, rest)
        named = {"name": text.strip()} if changes else {}
        environments.append({"env": env.strip(), **changes, **named})
    return environments


def read_changes(flag: str, text: str, changes: str) -> dict[str, Any]:
    """Read values by name from `name=value; name=value`."""
    values: dict[str, Any] = {}
    for piece in filter(None, map(str.strip, changes.split(";"))):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or name in values:
            raise ConfigError(
                f"{flag} {text!r}: between semicolons stands name=value, each name "
                f"once, got {piece!r}."
            )
        values[name] = literal(value)
    return values
