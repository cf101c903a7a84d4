"""Schedules of hyperparameters: what a population found, trained again from scratch."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.population import streams
from purerl.population.engine import Engine
from purerl.runner.loop import check_seeds
from purerl.runner.programs import Members
from purerl.scale.devices import check_count, default_lanes, make_workers
from purerl.sweeps.axes import Design
from purerl.sweeps.groups import group_points
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
    """Agents trained with a schedule, `[S]` seeds.

    Attributes:
        seeds: of the agents.
        score: mean return of `eval_episodes` fresh episodes at the end; NaN where the
            agent diverged.
        train: metric -> rows `[S, R]`, one per segment.
        state: final states on the host, leaves `[S, ...]`.
    """

    seeds: tuple[int, ...]
    score: np.ndarray
    train: HostMetrics
    state: PyTree


def train_schedule(
    config: TrainConfig,
    schedule: Schedule | Mapping[int, Mapping[str, Any]],
    *,
    seeds: int | Sequence[int] = 1,
    lanes: int | None = None,
    segment_updates: int | None = None,
) -> Scheduled:
    """Train agents from scratch with a schedule of hyperparameters.

    The judgement of a schedule that `purerl.pbt` found: the population's own scores
    favour lucky members, fresh seeds do not.

    Args:
        config: with which it was found; the schedule's values win.
        schedule: or a mapping from first updates to values, such as
            `{0: {"learning_rate": 1e-3}, 50: {"learning_rate": 1e-4}}`.
        seeds: agents: how many (0, 1, ...), or which.
        lanes: width of a block.
        segment_updates: updates per compiled call; every piece must begin with one.

    Raises:
        ConfigError: a piece that does not begin with a segment, or fields that are
            static, unknown, or not the same in all pieces.
    """
    schedule = _as_schedule(schedule)
    agents = check_seeds(seeds)
    check_count("lanes", lanes)
    check_count("segment_updates", segment_updates)
    names = tuple(schedule.values[0])
    group = _group(config, schedule, names)
    length = _length(schedule, group.bound.plan.num_updates, segment_updates)
    keys = jax.vmap(jax.random.key)(np.asarray(agents, np.uint32))

    def members_in(piece: int) -> Overrides:
        def spread(leaf: np.ndarray) -> np.ndarray:
            return np.repeat(leaf[piece : piece + 1], len(agents), axis=0)

        return jax.tree.map(spread, group.overrides)

    width = lanes or default_lanes(len(agents), make_workers())
    engine = Engine(group.bound, Members(keys, members_in(0)), width, length)
    engine.init()
    ends = (*schedule.first_updates[1:], group.bound.plan.num_updates)
    train: list[HostMetrics] = []
    bad = np.zeros(len(agents), bool)
    score = np.full(len(agents), np.nan)
    for piece, end in enumerate(ends):
        engine.set_overrides(members_in(piece))
        is_last = piece + 1 == len(ends)
        judge = streams.judge_keys(np.asarray(agents), piece) if is_last else None
        stretch = engine.advance(end, lambda *_: None, judge)
        bad |= stretch.diverged
        train.append(stretch.train)
        if stretch.judged is not None:
            score = np.where(bad, np.nan, stretch.judged.episode_return)
    rows = {name: np.concatenate([t[name] for t in train], 1) for name in train[0]}
    return Scheduled(agents, score, rows, engine.gather())


def _as_schedule(schedule: Schedule | Mapping[int, Mapping[str, Any]]) -> Schedule:
    if isinstance(schedule, Mapping):
        first = tuple(sorted(schedule))
        schedule = Schedule(first, tuple(dict(schedule[update]) for update in first))
    first = schedule.first_updates
    ascending = all(a < b for a, b in itertools.pairwise(first))
    if not first or first[0] != 0 or not ascending:
        raise ConfigError(
            f"a schedule begins at update 0 and ascends, got pieces at {list(first)}."
        )
    return schedule


def _group(config: TrainConfig, schedule: Schedule, names: tuple[str, ...]) -> Any:
    if any(set(values) != set(names) for values in schedule.values):
        raise ConfigError(
            "every piece of a schedule must set the same fields, got "
            f"{[sorted(values) for values in schedule.values]}."
        )
    points = tuple({name: values[name] for name in names} for values in schedule.values)
    groups = group_points(config, Design("zip", names, (len(points),), points))
    if len(groups) > 1 or groups[0].static:
        raise ConfigError(
            "a schedule can change numbers only, and keeps every loss's structure: "
            "static fields fix shapes or the program. Set them in the config."
        )
    return groups[0]


def _length(schedule: Schedule, num_updates: int, asked: int | None) -> int:
    """Updates per segment: the largest with which every piece begins a segment."""
    if schedule.first_updates[-1] >= num_updates:
        raise ConfigError(
            f"the schedule's last piece begins at update {schedule.first_updates[-1]}, "
            f"but the run has {num_updates}; raise total_timesteps."
        )
    found = math.gcd(*schedule.first_updates) or num_updates
    if asked is not None and found % asked and len(schedule.first_updates) > 1:
        raise ConfigError(
            f"segment_updates must divide {found}, so that every piece of the schedule "
            f"begins with a segment, got {asked}."
        )
    return asked or found
