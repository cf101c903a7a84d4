"""Schedules of hyperparameters: what a population found, trained again from scratch."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.cohort import make_cohort
from purerl.execution.members import Members
from purerl.population import streams
from purerl.population.outcome import train_until
from purerl.runner.seeds import check_seeds
from purerl.scale.devices import check_count, default_lanes, make_workers
from purerl.sweeps.axes import Design
from purerl.sweeps.groups import Group, group_points
from purerl.types import HostMetrics, Overrides, PyTree


class Schedule(NamedTuple):
    """Hyperparameters over the updates of a run.

    Attributes:
        first_updates: at which each piece begins, ascending from 0.
        values: of each piece: name of a dynamic field -> value.
    """

    first_updates: tuple[int, ...]
    values: tuple[dict[str, Any], ...]

    def at(self, update: int) -> dict[str, Any]:
        """The hyperparameters with which update number `update` is made."""
        place = np.searchsorted(self.first_updates, update, side="right") - 1
        return self.values[int(place)]

    def merged(self) -> "Schedule":
        """The same with neighbouring pieces of equal values as one."""
        kept = [
            number
            for number, values in enumerate(self.values)
            if number == 0 or values != self.values[number - 1]
        ]
        return Schedule(
            tuple(self.first_updates[number] for number in kept),
            tuple(self.values[number] for number in kept),
        )


class Scheduled(NamedTuple):
    """Agents trained with schedules, `[N, S]`: schedules by seeds.

    Attributes:
        seeds: of the agents.
        score: `[N, S]` mean return of `eval_episodes` fresh episodes at the end; NaN
            where the agent diverged.
        train: metric -> rows `[N, S, R]`, one per segment.
        state: final states on the host, leaves `[N, S, ...]`.
    """

    seeds: tuple[int, ...]
    score: np.ndarray
    train: HostMetrics
    state: PyTree


def train_schedules(
    config: TrainConfig,
    schedules: Schedule | Sequence[Schedule],
    *,
    seeds: int | Sequence[int] = 1,
    lanes: int | None = None,
    segment_updates: int | None = None,
) -> Scheduled:
    """Train agents from scratch with schedules of hyperparameters, in one program.

    The judgement of what `purerl.pbt` found: a population's own scores favour lucky
    members, fresh seeds do not. A schedule of one piece is a fixed setting, so both can
    be compared in one call.

    Args:
        config: with which they were found; the schedules' values win.
        schedules: one, or several that set the same fields.
        seeds: agents per schedule: how many (0, 1, ...), or which.
        lanes: width of a block.
        segment_updates: updates per compiled call; every piece must begin with one.

    Raises:
        ConfigError: a piece that does not begin with a segment, or fields that are
            static, unknown, or not the same in all pieces.
    """
    several = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    agents = check_seeds(seeds)
    check_count("lanes", lanes)
    check_count("segment_updates", segment_updates)
    starts, group = _pieces(config, several)
    plan = group.bound.plan
    length = _length(starts, plan.num_updates, segment_updates)
    num, repeats = len(several), len(agents)
    width = lanes or default_lanes(num * repeats, make_workers())
    keys = jax.vmap(jax.random.key)(np.tile(np.asarray(agents, np.uint32), num))
    members = Members(keys, _overrides(group, 0, num, repeats))
    cohort = make_cohort(group.bound, members, width, length)
    cohort.init()
    train: list[HostMetrics] = []
    bad = np.zeros(num * repeats, bool)
    score = np.full(num * repeats, np.nan)
    for piece, end in enumerate((*starts[1:], plan.num_updates)):
        cohort.set_overrides(_overrides(group, piece, num, repeats))
        at_end = end == plan.num_updates
        fresh = streams.evaluation_keys(np.tile(agents, num), piece) if at_end else None
        outcome = train_until(cohort, end, evaluation_keys=fresh)
        bad |= outcome.diverged
        train.append(outcome.train)
        if outcome.fresh is not None:
            score = np.where(bad, np.nan, outcome.fresh.episode_return)
    rows = {name: np.concatenate([t[name] for t in train], 1) for name in train[0]}
    split = (num, repeats)
    return Scheduled(
        agents,
        score.reshape(split),
        {name: row.reshape(*split, -1) for name, row in rows.items()},
        jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), cohort.gather()),
    )


def _pieces(
    config: TrainConfig, schedules: list[Schedule]
) -> tuple[tuple[int, ...], Group]:
    """Updates at which any schedule changes, and the values there, piece by piece."""
    if not schedules:
        raise ConfigError("train_schedules needs at least one schedule, got none.")
    for schedule in schedules:
        _check(schedule, set(schedules[0].values[0]))
    starts = tuple(sorted({s for each in schedules for s in each.first_updates}))
    points = tuple(each.at(start) for start in starts for each in schedules)
    names = tuple(points[0])
    groups = group_points(config, Design("zip", names, (len(points),), points))
    if len(groups) > 1 or groups[0].static:
        raise ConfigError(
            "a schedule can change numbers only, and keeps every loss's structure: "
            "static fields fix shapes or the program. Set them in the config."
        )
    return starts, groups[0]


def _check(schedule: Schedule, names: set[str]) -> None:
    first = schedule.first_updates
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
    if any(set(values) != names for values in schedule.values) or not names:
        raise ConfigError(
            "every piece of every schedule must set the same fields, got "
            f"{[sorted(values) for values in schedule.values]}."
        )


def _overrides(group: Group, piece: int, num: int, repeats: int) -> Overrides:
    """Of all agents `[N * S]` in a piece, the seeds fastest."""

    def spread(leaf: np.ndarray) -> np.ndarray:
        return np.repeat(leaf[piece * num : (piece + 1) * num], repeats, axis=0)

    return jax.tree.map(spread, group.overrides)


def _length(starts: tuple[int, ...], num_updates: int, asked: int | None) -> int:
    """Updates per segment: the largest with which every piece begins a segment."""
    if starts[-1] >= num_updates:
        raise ConfigError(
            f"the schedule's last piece begins at update {starts[-1]}, but the run has "
            f"{num_updates}; raise total_timesteps."
        )
    found = math.gcd(*starts)
    if asked is not None and found % asked:
        raise ConfigError(
            f"segment_updates must divide {found}, so that every piece of the schedule "
            f"begins with a segment, got {asked}."
        )
    return asked or found or num_updates
