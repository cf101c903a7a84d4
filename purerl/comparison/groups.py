"""Groups of settings that change the same numbers, and so share a compiled program.

A setting's program follows from the setting alone, never from what it is compared with:
so its bits are the same in every comparison.
"""

from collections.abc import Sequence
from typing import NamedTuple

from purerl.acting.environment import bind_params
from purerl.algorithms import name_of
from purerl.comparison.settings import Piece, Setting, Task
from purerl.config import (
    ConfigError,
    TrainConfig,
    apply_overrides,
    is_auto,
)
from purerl.execution.programs import length_of_pieces
from purerl.space.points import resolve_point
from purerl.sweeps.effects import check_pieces, check_setting
from purerl.sweeps.groups import group_points
from purerl.train import Bound, bind, check_time_limit
from purerl.types import Overrides


class Group(NamedTuple):
    """Settings that one program trains in one environment.

    Attributes:
        bound: Config, environment and plan of all of the settings.
        members: The numbers of the settings, P of them.
        starts: Updates at which the settings' pieces begin, ascending from 0.
        overrides: Values by which the settings differ, for every piece, leaves
            `[P, ...]`, on the host.
    """

    bound: Bound
    members: tuple[int, ...]
    starts: tuple[int, ...]
    overrides: tuple[Overrides, ...]

    def length(self, segment_updates: int | None) -> int | None:
        """Return the updates of a compiled call; None for the whole run.

        Raises:
            ConfigError: a piece that would not begin with a call.
        """
        return length_of_pieces(self.starts, segment_updates)


class Contestant(NamedTuple):
    """A setting in an environment.

    Attributes:
        start: The config that the pieces change.
        pieces: The pieces: what the setting changes.
        trained: The config that trains in the first piece, with no `auto` in it.
    """

    start: TrainConfig
    pieces: tuple[Piece, ...]
    trained: TrainConfig


def enter(setting: Setting, task: Task) -> Contestant:
    """Return a setting in an environment, checked.

    Raises:
        ConfigError: anything about it that cannot be trained.
    """
    start, pieces = setting.within(task)
    try:
        checked = [_checked(start, piece) for piece in pieces]
        points = [piece.values for piece in pieces]
        groups = group_points(start, points) if len(pieces) > 1 else []
        if len(groups) > 1:
            raise ConfigError(
                "a schedule can change numbers only, and keeps every loss's "
                "structure: static fields fix shapes or the program."
            )
        for group in groups:
            check_pieces(group.bound, points)
    except ConfigError as error:
        raise ConfigError(f"settings: {setting.name}: {error}") from None
    return Contestant(start, pieces, checked[0])


def check_effect(contestant: Contestant, name: str) -> None:
    """Refuse a setting that trains exactly as the config that it changes.

    Raises:
        ConfigError: nothing reads what it changes.
    """
    start, pieces = contestant.start, contestant.pieces
    config, numbers = resolve_point(start, pieces[0].values)
    if len(pieces) > 1 or config is not start:
        return  # Pieces have a check of their own, and structure is another program.
    try:
        check_setting(bind(config), numbers)
    except ConfigError as error:
        raise ConfigError(f"settings: {name}: {error}") from None


def _checked(start: TrainConfig, piece: Piece) -> TrainConfig:
    """The config that trains in a piece."""
    config, numbers = resolve_point(start, piece.values)
    bound = bind(apply_overrides(config, numbers))
    changed = bind(config).at(numbers)
    if any(name.split(".")[0] == "env_params" for name in numbers):
        bind_params(bound.env, changed.env_params)
    check_time_limit(bind(config), changed)
    if piece.first >= bound.plan.num_updates:
        raise ConfigError(
            f"the schedule's piece at update {piece.first} is after the end of the "
            f"run, which has {bound.plan.num_updates}; raise total_timesteps."
        )
    return changed


def make_groups(contestants: Sequence[Contestant]) -> list[Group]:
    """Return contestants in as few programs as there are, in their order.

    What sets the same numbers, with losses of the same structure, shares a program.
    """
    alike: dict[str, list[int]] = {}
    for number, contestant in enumerate(contestants):
        # Configs of one class and environment differ in what is `auto` alone.
        starts = [piece.first for piece in contestant.pieces]
        automatic = [n for n, value in vars(contestant.start).items() if is_auto(value)]
        kind = str((name_of(contestant.start), automatic, starts))
        alike.setdefault(kind, []).append(number)
    groups = []
    for numbers in alike.values():
        first = contestants[numbers[0]]
        values = [[p.values for p in contestants[n].pieces] for n in numbers]
        by_piece = [
            group_points(first.start, points) for points in zip(*values, strict=True)
        ]
        for piece_groups in zip(*by_piece, strict=True):
            members = tuple(numbers[point] for point in piece_groups[0].points)
            starts = tuple(piece.first for piece in first.pieces)
            overrides = tuple(group.overrides for group in piece_groups)
            groups.append(Group(piece_groups[0].bound, members, starts, overrides))
    return sorted(groups, key=lambda group: group.members)
