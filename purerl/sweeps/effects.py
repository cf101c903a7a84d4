"""Axes that have no effect are refused: scores of equal runs say nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from purerl.acting.environment import bind_params
from purerl.acting.policy import recurrence_of
from purerl.config import ConfigError
from purerl.sweeps.groups import Group
from purerl.tracing import read_by
from purerl.train import Bound, check_may_move, evaluate_agent
from purerl.train.reads import (
    first_state,
    nothing_reads,
    read_by_start,
    read_by_updates,
)
from purerl.types import Overrides, PyTree


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
        asked = {name: values[name] for name in names if name in values}
        for name, value in asked.items():
            # Another structure, such as another loss, is another program.
            form = jax.tree.structure(value)
            if not form.num_leaves or forms.setdefault(name, form) != form:
                found.add(name)
        left = {name: value for name, value in asked.items() if name not in found}
        if left:
            found |= _read(bound, left)
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
    runs = ((group.bound, first_values(group, group.overrides)) for group in groups)
    check_effects(runs, names)


def check_setting(bound: Bound, numbers: Overrides) -> None:
    """Refuse a setting of a comparison that changes only numbers that nothing reads.

    Raises:
        ConfigError: naming one of them, and why it has no effect.
    """
    has_parts = any(not jax.tree.leaves(value) for value in numbers.values())
    if numbers and not has_parts and not _read(bound, numbers):
        raise ConfigError(nothing_reads(next(iter(numbers)), bound, "as a setting"))


def differing(groups: Sequence[Group]) -> list[str]:
    """Return the names of the overrides that do not have one value in all groups."""
    first: dict[str, PyTree] = {}
    for group in groups:
        first = first_values(group, group.overrides) | first
    return [
        name
        for name, value in first.items()
        if not all(
            _is_everywhere(value, group.overrides[name])
            for group in groups
            if name in group.overrides
        )
    ]


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


def first_values(group: Group, names: Iterable[str]) -> Overrides:
    """Return the numbers of a group's first point, by name."""
    return {
        name: jax.tree.map(lambda leaf: leaf[0], group.overrides[name])
        for name in names
    }


def _read(bound: Bound, values: Overrides) -> frozenset[str]:
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


def _is_everywhere(value: PyTree, stacked: PyTree) -> bool:
    """Return whether a value is that of all points, whose leaves are `[P, ...]`."""
    ones, rows = jax.tree.leaves(value), jax.tree.leaves(stacked)
    return len(ones) == len(rows) and all(
        np.array_equal(np.broadcast_to(one, np.shape(row)), row)
        for one, row in zip(ones, rows, strict=True)
    )


def _is_same(one: PyTree, two: PyTree) -> bool:
    """Return whether two values of a field are equal, number by number."""
    ones, twos = jax.tree.leaves(one), jax.tree.leaves(two)
    return len(ones) == len(twos) and all(map(np.array_equal, ones, twos))
