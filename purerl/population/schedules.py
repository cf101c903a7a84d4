"""Schedules of hyperparameters: values that change at some updates of a run."""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.execution.programs import Members, length_of_pieces
from purerl.population.space import HELD_OUT, evaluation_keys
from purerl.runner.arguments import check_seeds
from purerl.runner.options import Saved, option, seeds_option, tool
from purerl.scale.devices import as_count, default_lanes, make_workers
from purerl.search.drive import drive
from purerl.search.protocol import Outcome, Request, Row, Search, Step
from purerl.sweeps.groups import check_pieces, group_of_pieces
from purerl.types import HostMetrics, PyTree


class ConfigSchedule(NamedTuple):
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

    def merged(self) -> "ConfigSchedule":
        """Return the same schedule with neighbouring pieces of equal values as one."""
        kept = [
            number
            for number, values in enumerate(self.values)
            if number == 0 or values != self.values[number - 1]
        ]
        return ConfigSchedule(
            tuple(self.first_updates[number] for number in kept),
            tuple(self.values[number] for number in kept),
        )

    def check(self) -> None:
        """Refuse pieces that do not follow one another, or set different fields.

        Raises:
            ConfigError: saying what a schedule is.
        """
        first, names = self.first_updates, set(self.values[0] if self.values else ())
        is_whole = all(hasattr(start, "__index__") for start in first)
        ascends = is_whole and list(first) == sorted(set(first))
        if not ascends or first[:1] != (0,) or len(first) != len(self.values):
            raise ConfigError(
                "a schedule begins at update 0, ascends, and has values for each "
                f"piece, got {list(first)} and {len(self.values)} values."
            )
        if any(set(values) != names for values in self.values) or not names:
            raise ConfigError(
                "every piece of a schedule must set the same fields, got "
                f"{[sorted(values) for values in self.values]}."
            )

    def plain(self) -> dict[str, Any]:
        """Return the schedule as plain values, for a file."""
        values = [
            {name: serialise.plain(value, name) for name, value in piece.items()}
            for piece in self.values
        ]
        return {"first_updates": list(self.first_updates), "values": values}


class SchedulesState(NamedTuple):
    """The state of training with schedules, `N` schedules with `S` seeds each.

    Attributes:
        piece: The number of pieces that have been trained.
        diverged: Whether an agent met a number that was not finite, `[N S]`.
        score: Mean return of fresh episodes at the end, `[N S]`; NaN before.
    """

    piece: int
    diverged: np.ndarray
    score: np.ndarray


class SchedulesSearch:
    """Training with schedules as a search: all agents, from piece to piece.

    All schedules are cut at every update at which any of them changes.

    Args:
        config: The config that the schedules change.
        schedules: The schedules, N of them.
        seeds: Seeds of each schedule's agents.
        segment_updates: Updates of one compiled call; as many as possible where None.

    Attributes:
        group: The program, and the values of all pieces, the schedules fastest.
        ends: Updates at which the pieces end; the last is the end of the run.
        agents: The seed of every agent, `[N S]`.

    Raises:
        ConfigError: there are no schedules, they set different fields or static ones,
            or a piece does not begin with a segment.
    """

    def __init__(
        self,
        config: TrainConfig,
        schedules: Sequence[ConfigSchedule],
        seeds: tuple[int, ...],
        segment_updates: int | None = None,
    ) -> None:
        self.schedules, self.seeds = schedules, seeds
        self.agents = np.tile(np.asarray(seeds, np.uint32), len(schedules))
        for schedule in schedules:
            if not isinstance(schedule, ConfigSchedule):
                raise ConfigError(
                    "train_schedules takes schedules, such as purerl.ConfigSchedule("
                    f"(0, 50), ({{...}}, {{...}})), got {schedule!r}."
                )
            schedule.check()
        fields = {tuple(sorted(schedule.values[0])) for schedule in schedules}
        if len(fields) != 1:
            raise ConfigError(
                "train_schedules needs schedules that all set the same fields, got "
                f"{sorted(fields)}."
            )
        starts = sorted({start for each in schedules for start in each.first_updates})
        points = [each.at(start) for start in starts for each in schedules]
        self.group = group_of_pieces(config, points, starts[-1])
        for schedule in schedules:
            check_pieces(self.group.bound, schedule.values)
        updates = self.group.bound.plan.num_updates
        self.ends = (*starts[1:], updates)
        # Every piece begins a segment.
        self.length = length_of_pieces(starts, segment_updates) or updates

    def search(self) -> Search:
        """Return the search that `purerl.search.drive` carries out."""
        bound, count = self.group.bound, len(self.agents)
        spans = np.diff(self.ends, prepend=0) * count
        return Search(
            kind="schedules",
            bound=bound,
            spec={
                "config": serialise.to_dict(bound.asked),
                "options": {"schedules": [x.plain() for x in self.schedules]},
                "seeds": list(self.seeds),
            },
            steps=tuple((spans * bound.plan.steps_per_update).tolist()),
            lanes=default_lanes(count, make_workers()),
            segment_updates=self.length,
            init=self.init,
            ask=self.ask,
            tell=self.tell,
            rows=self.rows,
            names={
                row: f"schedule={row // len(self.seeds)}-seed={seed}"
                for row, seed in enumerate(self.agents)
            },
        )

    def init(self) -> SchedulesState:
        """Return the state before the first piece."""
        count = len(self.agents)
        return SchedulesState(0, np.zeros(count, bool), np.full(count, np.nan))

    def ask(self, state: SchedulesState) -> Request | None:
        """Return the request of the next piece; None after the last."""
        piece, ends = state.piece, self.ends
        if piece == len(ends):
            return None
        is_last = piece == len(ends) - 1
        return Request(
            Members(
                jax.vmap(jax.random.key)(self.agents),
                jax.tree.map(partial(self._values, piece), self.group.overrides),
            ),
            ends[piece],
            parents=np.arange(len(self.agents)) if piece else None,
            # Not by the episodes on which a search of this seed selected.
            evaluation_keys=evaluation_keys(self.agents, HELD_OUT) if is_last else None,
        )

    def tell(
        self, state: SchedulesState, request: Request, outcome: Outcome
    ) -> SchedulesState:
        """Return the state after a piece, with scores after the last."""
        diverged, score = state.diverged | outcome.diverged, state.score
        if outcome.fresh is not None:
            score = np.where(diverged, np.nan, outcome.fresh.episode_return)
        return SchedulesState(state.piece + 1, diverged, score)

    def rows(self, step: Step) -> list[Row]:
        """Return the last metrics of every agent for trackers."""
        members = range(step.request.members.size)
        return [(number, step.outcome.last_row(number)) for number in members]

    def _values(self, piece: int, leaf: np.ndarray) -> np.ndarray:
        """A piece's values of every schedule, each as often as there are seeds."""
        num = len(self.schedules)
        return np.repeat(leaf[piece * num : (piece + 1) * num], len(self.seeds), axis=0)


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


@dataclasses.dataclass(frozen=True)
class ScheduleOptions(Saved):
    """The options of `purerl.train_schedules`."""

    tool: ClassVar[str] = "train_schedules"

    config: TrainConfig
    schedules: ConfigSchedule | Sequence[ConfigSchedule] = option(
        dataclasses.MISSING,
        doc="A schedule, or several that set the same fields; their values win over "
        "those of the config.",
    )
    _: dataclasses.KW_ONLY
    seeds: int | Sequence[int] = seeds_option(1, "Number of agents per schedule.")


@tool(ScheduleOptions)
def train_schedules(asked: ScheduleOptions) -> Scheduled:
    """Train agents from scratch with schedules of hyperparameters, in one program.

    The judgement of what `purerl.pbt` found: a population's own scores favour lucky
    members, fresh seeds do not. A schedule of one piece is a fixed setting, so both can
    be compared in one call.

    Raises:
        ConfigError: a piece that does not begin with a segment, fields that are static,
            unknown, or not the same in all pieces, a folder of something else, or a
            training that was stopped before its end.
    """
    agents = check_seeds(asked.seeds)
    search = schedules_search(
        asked.config,
        asked.schedules,
        seeds=agents,
        segment_updates=asked.segment_updates,
    )
    finished = drive(search, **asked.of(Saved))
    if finished.states is None:
        raise ConfigError(
            "the training with schedules was stopped before its end; the same call "
            "with out= goes on."
        )
    score = finished.steps[-1].after.score
    split = (len(score) // len(agents), len(agents))
    parts = [_known(step) for step in finished.steps]
    rows = {
        name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]
    }
    return Scheduled(
        agents,
        score.reshape(split),
        {name: row.reshape(*split, -1) for name, row in rows.items()},
        jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), finished.states),
    )


def schedules_search(
    config: TrainConfig,
    schedules: ConfigSchedule | Sequence[ConfigSchedule],
    *,
    seeds: int | Sequence[int] = 1,
    segment_updates: int | None = None,
) -> Search:
    """Return the search that `train_schedules` carries out, for `purerl.dry_run`.

    Raises:
        ConfigError: see `train_schedules`.
    """
    is_one = isinstance(schedules, ConfigSchedule) or not isinstance(
        schedules, Iterable
    )
    several: Any = [schedules] if is_one else schedules
    length = as_count("segment_updates", segment_updates)
    return SchedulesSearch(config, list(several), check_seeds(seeds), length).search()


def _known(step: Step) -> HostMetrics:
    """Training metrics of a piece; NaN for agents that had diverged before it."""
    gone = step.before.diverged[:, None]
    return {
        name: rows
        if name == "env_steps" or not gone.any()
        else np.where(gone, np.nan, rows)
        for name, rows in step.outcome.train.items()
    }
