"""Points by what they compile to: one group per setting of static fields.

In a group only numbers differ, so one program trains all of it: those numbers are
overrides with a leading axis. A member is known by the values of its point, and its
seed.

Axes that have no effect are refused: scores of equal runs say nothing.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.acting.environment import bind_params
from purerl.acting.policy import recurrence_of
from purerl.algorithms import config_class, name_of
from purerl.config import (
    ConfigError,
    TrainConfig,
    checks_together,
    is_auto,
    validate_field,
)
from purerl.randomisation import is_random
from purerl.space.axes import split, with_algorithm, with_static
from purerl.tracing import read_by
from purerl.train import (
    Bound,
    bind,
    check_may_move,
    check_time_limit,
    evaluate_agent,
    first_state,
    nothing_reads,
    read_by_start,
    read_by_updates,
)
from purerl.types import Overrides, PyTree


def member_id(point: Mapping[str, Any], seed: int) -> str:
    """Return a hash of a point's values (as they are, or as `written`), and a seed."""
    return digest([written(point), seed])


def written(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point as plain values, as the manifest holds it."""
    return {name: serialise.plain(value, name) for name, value in point.items()}


def digest(value: Any) -> str:
    """Return a short hash of plain values."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_NUMBERS = (int, float)  # A bool is not among them.


class Group(NamedTuple):
    """Points that one program trains.

    Attributes:
        name: A hash of what is compiled: static fields, and names of the overrides.
        bound: Config, environment and plan of the group.
        points: Numbers of the points in the group, ascending.
        overrides: Values on the host by name of the dynamic field, leaves `[P, ...]`,
            one per point of `points`.
        static: Values that all points of the group share, by name of the axis.
    """

    name: str
    bound: Bound
    points: tuple[int, ...]
    overrides: Overrides
    static: dict[str, Any]

    @property
    def steps_each(self) -> int:
        """Environment steps of one member."""
        plan = self.bound.plan
        return plan.num_updates * plan.steps_per_update


def group_points(
    config: TrainConfig, points: Sequence[Mapping[str, Any]]
) -> list[Group]:
    """Return groups of some points, in the order in which they first appear.

    Everything is checked here, before anything is traced.

    Raises:
        ConfigError: an axis that is no field, a value that its field refuses, a config
            that cannot be trained.
    """
    groups: dict[str, Group] = {}
    members: dict[str, list[tuple[int, Overrides]]] = {}
    known: dict[Any, dict[str, dataclasses.Field]] = {}
    alike: dict[Any, tuple[Group, Overrides]] = {}
    valid: set[tuple[Any, str, float]] = set()
    for number, point in enumerate(points):
        try:
            # Among points that differ in numbers alone, only one is checked as a
            # whole: a sweep may have a million points.
            algorithm = point.get("algorithm")
            if algorithm not in known:
                known[algorithm] = _numeric_fields(config, algorithm)
            numeric = {
                name: known[algorithm][name]
                for name, value in point.items()
                if name in known[algorithm] and type(value) in _NUMBERS
            }
            shape = _shape_of(point, numeric)
            if shape in alike:
                group, values = alike[shape]
                values = dict(values)
                for name, field in numeric.items():
                    value = point[name]
                    if (algorithm, name, value) not in valid:
                        validate_field(field, value)
                        valid.add((algorithm, name, value))
                    values[name] = np.float32(value)
                if checks_together(group.bound.asked):
                    group.bound.at(split(group.bound.asked, point)[1])
            else:
                group = _group(config, point, groups)
                dynamic = split(group.bound.config, point)[1]
                values = {
                    x: jax.tree.map(_as_array, dynamic[x]) for x in group.overrides
                }
                if shape is not None:
                    alike[shape] = group, values
        except ConfigError as error:
            where = ", ".join(f"{name}={value!r}" for name, value in point.items())
            if not point:
                raise
            raise ConfigError(f"at {where}: {error}") from None
        members.setdefault(group.name, []).append((number, values))
    found = []
    for name, several in members.items():
        numbers, values = zip(*several, strict=True)
        stacked = {x: _stack([each[x] for each in values]) for x in values[0]}
        found.append(groups[name]._replace(points=numbers, overrides=stacked))
    return found


def group_of_pieces(
    config: TrainConfig, points: Sequence[Mapping[str, Any]], last: int
) -> Group:
    """Return the group of the pieces of schedules, the last of which begins at `last`.

    Raises:
        ConfigError: they are several programs, or it begins after the end of the run.
    """
    group, *others = group_points(config, points)
    if others:
        raise ConfigError(
            "a schedule can change numbers only, and keeps every loss's structure: "
            "static fields fix shapes or the program."
        )
    updates = group.bound.plan.num_updates
    if last >= updates:
        raise ConfigError(
            f"the schedule's piece at update {last} is after the end of the run, which "
            f"has {updates}."
        )
    return group


def _numeric_fields(
    config: TrainConfig, algorithm: Any
) -> dict[str, dataclasses.Field]:
    """Dynamic fields that are a number each, of the algorithm that a point names."""
    owner = type(config) if algorithm is None else config_class(algorithm)
    return {
        field.name: field
        for field in dataclasses.fields(owner)
        if field.metadata.get("pytree_node", True) and field.type in (float, "float")
    }


def _shape_of(
    point: Mapping[str, Any], numeric: Collection[str]
) -> tuple[Any, ...] | None:
    """Return a point's values beside its numbers; None if they cannot be compared."""
    shape = tuple(
        # 1, 1.0 and True are equal, and are no equal values of a static field.
        (name, None) if name in numeric else (name, type(value), value)
        for name, value in point.items()
    )
    try:
        hash(shape)
    except TypeError:
        return None
    return shape


def _group(
    config: TrainConfig, point: Mapping[str, Any], groups: dict[str, Group]
) -> Group:
    """The group of a point: a known one, or a new one with a checked config."""
    base = with_algorithm(config, point.get("algorithm", name_of(config)))
    static, dynamic = split(base, point)
    identity = [name_of(base), written(static), _structures(base, dynamic)]
    config = with_static(base, static, dynamic)
    if is_random(config.env_params) != is_random(base.env_params):
        # Its evaluations are planned for the time limit that the point has alone.
        identity.append(_time_limit(config))
    name = digest(identity)
    if name not in groups:
        groups[name] = Group(name, bind(config), (), dict(dynamic), static)
    bound = groups[name].bound
    checked = bound.at(dynamic)
    if any(field.startswith("env_params") for field in dynamic):
        bind_params(bound.env, checked.env_params)
    check_time_limit(bound, checked)
    return groups[name]


def _stack(values: Sequence[PyTree]) -> PyTree:
    """One field's values at all points, leaves `[P, ...]`."""
    if type(values[-1]) is np.float32:  # numbers, the first of them as an array
        return np.array([float(value) for value in values], np.float32)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *values)


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array | np.ndarray):
        return np.asarray(value)
    # Every number of a config is a float; parameters are cast to their own type.
    return np.asarray(value, np.float32)


def _structures(config: TrainConfig, dynamic: Mapping[str, Any]) -> list[Any]:
    """Names of the overrides, and the structure and shapes of each."""
    structures = []
    for name, value in dynamic.items():
        leaves, structure = jax.tree.flatten(value)
        for leaf in leaves:
            if np.asarray(leaf).dtype.kind not in "biuf":
                raise ConfigError(
                    f"{name} must be a number, got {value!r}: it is a dynamic field of "
                    f"{type(config).__name__}."
                )
        own = jax.tree.structure(getattr(config, name, None))
        if is_auto(value):
            text = str(value)  # What it stands for is found in a program of its own.
        elif callable(value) or (is_random(value) and str(structure) != str(own)):
            # A loss's class and static fields are in its structure's text. Other
            # distributions than the config's are structure too; they are told apart by
            # text, as to JAX classes with equal fields are one structure.
            text = f"{type(value).__qualname__} {structure}"
        elif isinstance(value, Mapping):
            # Points that name other parameters do not share an array.
            text = ", ".join(sorted(value))
        else:
            text = "number"
        structures.append([name, text, [np.shape(leaf) for leaf in leaves]])
    return structures


def _time_limit(config: TrainConfig) -> Any:
    """The time limit among an environment's parameters, as it is hashed."""
    params = config.env_params
    limit = "max_steps_in_episode"
    given = params if isinstance(params, Mapping) else {}
    return written({limit: given.get(limit, getattr(params, limit, None))})


def check_effects(
    runs: Iterable[tuple[Bound, Overrides]],
    names: Collection[str],
    where: str = "as an axis",
) -> None:
    """Refuse to search numbers that no run of a search reads.

    Raises:
        ConfigError: naming the number, and why it has no effect.
    """
    unread: dict[str, Bound] = {}
    forms: dict[str, Any] = {}
    found: set[str] = set()
    for bound, values in runs:
        left = {}
        for name in [name for name in names if name in values and name not in found]:
            # Another structure, such as another loss, is another program.
            form = jax.tree.structure(values[name])
            if not form.num_leaves or forms.setdefault(name, form) != form:
                found.add(name)
            else:
                left[name] = values[name]
        found |= _read_by_run(bound, left)
        unread |= dict.fromkeys(left, bound)
        if found.issuperset(names):
            return
    for name, bound in unread.items():
        if name not in found:
            raise ConfigError(nothing_reads(name, bound, where))


def check_axes(groups: Iterable[Group], names: Collection[str]) -> None:
    """Refuse axes that no program of a search reads.

    Raises:
        ConfigError: see `check_effects`.
    """
    check_effects(((each.bound, first_values(each)) for each in groups), names)


def check_setting(bound: Bound, numbers: Overrides) -> None:
    """Refuse a setting of a comparison that changes only numbers that nothing reads.

    Raises:
        ConfigError: naming one of them, and why it has no effect.
    """
    has_parts = any(not jax.tree.leaves(value) for value in numbers.values())
    if numbers and not has_parts and not _read_by_run(bound, numbers):
        raise ConfigError(nothing_reads(next(iter(numbers)), bound, "as a setting"))


def check_pieces(bound: Bound, pieces: Sequence[Mapping[str, Any]]) -> None:
    """Refuse pieces of a run that change a number that no update reads.

    Raises:
        ConfigError: see `check_may_move`.
    """
    for name, first in pieces[0].items():
        for later in pieces[1:]:
            if not _is_same(later[name], first):
                asked = f"and a schedule gives it {first} and then {later[name]}"
                check_may_move(bound, {name: first}, asked)


def first_values(group: Group) -> Overrides:
    """Return the numbers of a group's first point, by name."""
    return jax.tree.map(lambda leaf: leaf[0], group.overrides)


def _read_by_run(bound: Bound, values: Overrides) -> frozenset[str]:
    """Return the names of the numbers that are read anywhere in a run."""
    if bound.env.on_host:
        return frozenset(values)  # Its programs are made as it goes.
    found: frozenset[str] = frozenset()
    for reads in (read_by_updates, read_by_start, _read_by_evaluations):
        left = {name: value for name, value in values.items() if name not in found}
        if left:
            found |= reads(bound, left)
    return found


def _read_by_evaluations(bound: Bound, values: Overrides) -> frozenset[str]:
    def evaluate(values: Overrides, state: PyTree) -> PyTree:
        config = bound.at(values)
        recurrence = recurrence_of(bound.algorithm(config))
        params = bind_params(bound.env, config.env_params)
        return evaluate_agent(bound, config, params, recurrence, state)

    return read_by(evaluate, values, first_state(bound, values))


def _is_same(one: PyTree, two: PyTree) -> bool:
    """Return whether two values of a field are equal, number by number."""
    ones, twos = jax.tree.leaves(one), jax.tree.leaves(two)
    return len(ones) == len(twos) and all(map(np.array_equal, ones, twos))
