"""Schedules of hyperparameters: values that change at some updates of a run."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.sweeps.effects import check_pieces
from purerl.sweeps.groups import Group, group_points
from purerl.types import Overrides


class Schedule(NamedTuple):
    """Hyperparameters over the updates of a run.

    Attributes:
        first_updates: Updates at which the pieces begin, ascending from 0.
        values: Values of each piece, by name of the dynamic field.
    """

    first_updates: tuple[int, ...]
    values: tuple[dict[str, Any], ...]

    def at(self, update: int) -> dict[str, Any]:
        """Return the hyperparameters with which update number `update` is made."""
        piece = np.searchsorted(self.first_updates, update, side="right") - 1
        return self.values[int(piece)]

    def merged(self) -> "Schedule":
        """Return the same schedule with neighbouring pieces of equal values as one."""
        kept = [
            number
            for number, values in enumerate(self.values)
            if number == 0 or values != self.values[number - 1]
        ]
        return Schedule(
            tuple(self.first_updates[number] for number in kept),
            tuple(self.values[number] for number in kept),
        )

    def plain(self) -> dict[str, Any]:
        """Return the schedule as plain values, for a file."""
        values = [
            {name: serialise.plain(value, name) for name, value in piece.items()}
            for piece in self.values
        ]
        return {"first_updates": list(self.first_updates), "values": values}


class Pieces(NamedTuple):
    """Schedules cut at every update at which any of them changes, in one program.

    Attributes:
        schedules: The schedules, N of them.
        starts: Updates at which the pieces begin, ascending from 0.
        group: The program, and the values of all pieces, the schedules fastest.
    """

    schedules: tuple[Schedule, ...]
    starts: tuple[int, ...]
    group: Group

    @property
    def ends(self) -> tuple[int, ...]:
        """Updates at which the pieces end; the last is the end of the run."""
        return (*self.starts[1:], self.group.bound.plan.num_updates)

    def overrides(self, piece: int, repeats: int) -> Overrides:
        """Return the overrides of a piece, every schedule's as often, `[N * repeats]`.

        Args:
            piece: The number of the piece.
            repeats: The number of agents of a schedule.
        """
        num = len(self.schedules)

        def spread(leaf: np.ndarray) -> np.ndarray:
            return np.repeat(leaf[piece * num : (piece + 1) * num], repeats, axis=0)

        return jax.tree.map(spread, self.group.overrides)


def cut(config: TrainConfig, schedules: Sequence[Schedule]) -> Pieces:
    """Return schedules piece by piece, with the program that trains all of them.

    Args:
        config: The config in which the schedules set fields.
        schedules: The schedules, which set the same fields.

    Raises:
        ConfigError: there are none, one has no pieces from update 0 on, they set
            different fields, or fields that are static.
    """
    if not schedules:
        raise ConfigError("train_schedules needs at least one schedule, got none.")
    for schedule in schedules:
        _check_pieces(schedule)
    for schedule in schedules:
        _check_names(schedule, set(schedules[0].values[0]))
    starts = tuple(sorted({s for one_of in schedules for s in one_of.first_updates}))
    points = tuple(one_of.at(start) for start in starts for one_of in schedules)
    groups = group_points(config, points)
    if len(groups) > 1 or groups[0].static:
        raise ConfigError(
            "a schedule can change numbers only, and keeps every loss's structure: "
            "static fields fix shapes or the program. Set them in the config."
        )
    for schedule in schedules:
        check_pieces(groups[0].bound, schedule.values)
    return Pieces(tuple(schedules), starts, groups[0])


def _check_pieces(schedule: Schedule) -> None:
    if not isinstance(schedule, Schedule):
        raise ConfigError(
            "train_schedules takes schedules, such as that of purerl.pbt's result or "
            "purerl.Schedule(first_updates=(0, 50), values=({...}, {...})), got "
            f"{schedule!r}."
        )
    first = schedule.first_updates
    odd = [start for start in first if not hasattr(start, "__index__")]
    if odd:
        raise ConfigError(
            "a schedule's pieces begin at numbers of updates, which are whole, got "
            f"{odd[0]!r}."
        )
    ascending = all(a < b for a, b in itertools.pairwise(first))
    if (
        not first
        or first[0] != 0
        or not ascending
        or len(first) != len(schedule.values)
    ):
        raise ConfigError(
            "a schedule begins at update 0, ascends, and has values for each piece, "
            f"got pieces at {list(first)} and {len(schedule.values)} values."
        )


def _check_names(schedule: Schedule, names: set[str]) -> None:
    if any(set(values) != names for values in schedule.values) or not names:
        raise ConfigError(
            "every piece of every schedule must set the same fields, got "
            f"{[sorted(values) for values in schedule.values]}."
        )
