"""Schedules of hyperparameters: what a population found, trained again from scratch."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.execution.members import Members
from purerl.population import streams
from purerl.runner.seeds import check_seeds
from purerl.runner.trackers import Tracker
from purerl.scale.devices import check_count, default_lanes, make_workers
from purerl.search.drive import drive
from purerl.search.protocol import Outcome, Request, Row, Search, Step
from purerl.sweeps.groups import Group, group_points
from purerl.types import HostMetrics, Overrides, PyTree


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
        place = np.searchsorted(self.first_updates, update, side="right") - 1
        return self.values[int(place)]

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


class Scheduled(NamedTuple):
    """Agents trained with schedules, `[N, S]`: schedules by seeds.

    Attributes:
        seeds: Seeds of the agents.
        score: The mean return of `eval_episodes` fresh episodes at the end, `[N, S]`;
            NaN where the agent diverged.
        train: Metrics by name, rows `[N, S, R]`, one per segment.
        state: Final states on the host, leaves `[N, S, ...]`.
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
    out: str | Path | None = None,
    lanes: int | None = None,
    segment_updates: int | None = None,
    checkpoint_seconds: float = 30.0,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = False,
) -> Scheduled:
    """Train agents from scratch with schedules of hyperparameters, in one program.

    The judgement of what `purerl.pbt` found: a population's own scores favour lucky
    members, fresh seeds do not. A schedule of one piece is a fixed setting, so both can
    be compared in one call.

    Args:
        config: The config with which the schedules were found; the schedules' values
            win.
        schedules: A schedule, or several that set the same fields.
        seeds: The number of agents per schedule, whose seeds are then 0, 1, ..., or
            their seeds.
        out: The folder to write; the same call goes on with it. Nothing is written
            without one.
        lanes: The width of a block.
        segment_updates: Updates per compiled call; every piece must begin with one.
        checkpoint_seconds: The least time between checkpoints.
        trackers: Places that are told a row per agent and piece; see `purerl.pbt`.
        progress: Whether to show the progress.

    Raises:
        ConfigError: a piece that does not begin with a segment, fields that are static,
            unknown, or not the same in all pieces, a folder of something else, or a
            training that was stopped before its end.
    """
    several = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    agents = check_seeds(seeds)
    check_count("segment_updates", segment_updates)
    starts, group = _pieces(config, several)
    length = _length(starts, group.bound.plan.num_updates, segment_updates)
    finished = drive(
        schedules_search(group, several, starts, agents, length),
        out=out,
        lanes=lanes,
        segment_updates=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        trackers=trackers,
        progress=progress,
    )
    if finished.states is None:
        raise ConfigError(
            "the training with schedules was stopped before its end; the same call "
            "with out= goes on."
        )
    split = (len(several), len(agents))
    parts = [_known(step) for step in finished.steps]
    rows = {
        name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]
    }
    return Scheduled(
        agents,
        finished.steps[-1].after.score.reshape(split),
        {name: row.reshape(*split, -1) for name, row in rows.items()},
        jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), finished.states),
    )


class SchedulesState(NamedTuple):
    """How far agents with schedules have come, `N` schedules with `S` seeds each.

    Attributes:
        piece: The number of pieces that have been trained.
        diverged: Whether an agent met a number that was not finite, `[N S]`.
        score: Mean return of fresh episodes at the end, `[N S]`; NaN before.
    """

    piece: int
    diverged: np.ndarray
    score: np.ndarray


def schedules_search(
    group: Group,
    schedules: Sequence[Schedule],
    starts: tuple[int, ...],
    seeds: tuple[int, ...],
    length: int,
) -> Search:
    """Return training with schedules as a search: a request per piece, no decisions.

    Args:
        group: The program and the values of all pieces.
        schedules: The schedules.
        starts: Updates at which any of the schedules changes.
        seeds: Seeds of each schedule's agents.
        length: Updates of one compiled call.
    """
    plan = group.bound.plan
    num, repeats = len(schedules), len(seeds)
    ends = (*starts[1:], plan.num_updates)
    agents = np.tile(np.asarray(seeds, np.uint32), num)
    everyone = np.arange(num * repeats)

    def init() -> SchedulesState:
        return SchedulesState(
            0, np.zeros(len(agents), bool), np.full(len(agents), np.nan)
        )

    def ask(state: SchedulesState) -> Request | None:
        piece = state.piece
        if piece == len(ends):
            return None
        is_last = piece == len(ends) - 1
        return Request(
            Members(
                jax.vmap(jax.random.key)(agents),
                _overrides(group, piece, num, repeats),
            ),
            ends[piece],
            parents=everyone if piece else None,
            evaluation_keys=streams.evaluation_keys(agents, piece) if is_last else None,
        )

    def tell(
        state: SchedulesState, request: Request, outcome: Outcome
    ) -> SchedulesState:
        diverged, score = state.diverged | outcome.diverged, state.score
        if outcome.fresh is not None:
            score = np.where(diverged, np.nan, outcome.fresh.episode_return)
        return SchedulesState(state.piece + 1, diverged, score)

    options = {"schedules": [_plain(each) for each in schedules]}
    spans = np.diff(ends, prepend=0) * len(agents) * plan.steps_per_update
    config = serialise.to_dict(group.bound.asked)
    return Search(
        kind="schedules",
        bound=group.bound,
        spec={"config": config, "options": options, "seeds": list(seeds)},
        steps=tuple(spans.tolist()),
        lanes=default_lanes(len(agents), make_workers()),
        segment_updates=length,
        init=init,
        ask=ask,
        tell=tell,
        rows=_rows,
        names={
            number * repeats + place: f"schedule={number}-seed={seed}"
            for number in range(num)
            for place, seed in enumerate(seeds)
        },
    )


def _known(step: Step) -> HostMetrics:
    """Training metrics of a piece; NaN for agents that had diverged before it."""
    gone = step.before.diverged[:, None]
    return {
        name: rows
        if name == "env_steps" or not gone.any()
        else np.where(gone, np.nan, rows)
        for name, rows in step.outcome.train.items()
    }


def _plain(schedule: Schedule) -> dict[str, Any]:
    values = [
        {name: serialise.plain(value, name) for name, value in piece.items()}
        for piece in schedule.values
    ]
    return {"first_updates": list(schedule.first_updates), "values": values}


def _rows(step: Step) -> list[Row]:
    """The last metrics of every agent."""
    rows = []
    for number in range(step.request.members.size):
        last = {name: x[number, -1].item() for name, x in step.outcome.train.items()}
        last.pop("env_steps", None)
        rows.append((number, last))
    return rows


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
    groups = group_points(config, points)
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
    """Return overrides of all agents `[N * S]` in a piece, the seeds fastest."""

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
