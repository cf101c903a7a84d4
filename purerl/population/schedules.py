"""Schedules of hyperparameters: values that change at some updates of a run."""

import dataclasses
from collections.abc import Sequence
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
from purerl.search.protocol import Request, Row, Search, Step, drive
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
            (first, values)
            for number, (first, values) in enumerate(zip(*self, strict=True))
            if number == 0 or values != self.values[number - 1]
        ]
        return ConfigSchedule(*map(tuple, zip(*kept, strict=True)))

    def check(self) -> None:
        """Refuse pieces that do not follow one another, or set different fields.

        Raises:
            ConfigError: saying what a schedule is.
        """
        first = self.first_updates
        is_whole = all(hasattr(start, "__index__") for start in first)
        ascends = is_whole and list(first) == sorted(set(first))
        if not ascends or first[:1] != (0,) or len(first) != len(self.values):
            raise ConfigError(
                "a schedule begins at update 0, ascends, and has values for each "
                f"piece, got {list(first)} and {len(self.values)} values."
            )
        names = [sorted(values) for values in self.values]
        if any(each != names[0] for each in names) or not names[0]:
            raise ConfigError(
                f"every piece of a schedule must set the same fields, got {names}."
            )

    def plain(self) -> dict[str, Any]:
        """Return the schedule as plain values, for a file."""
        values = [
            {name: serialise.plain(value, name) for name, value in piece.items()}
            for piece in self.values
        ]
        return {"first_updates": list(self.first_updates), "values": values}


def schedules_search(
    config: TrainConfig,
    schedules: ConfigSchedule | Sequence[ConfigSchedule],
    *,
    seeds: int | Sequence[int] = 1,
    segment_updates: int | None = None,
) -> Search:
    """Return the search that `train_schedules` carries out, for `purerl.dry_run`.

    Its members are all agents, the seeds of a schedule fastest. All schedules are cut
    at every update at which any of them changes; its state is the number of pieces that
    have been trained.

    Raises:
        ConfigError: see `train_schedules`.
    """
    segment_updates = as_count("segment_updates", segment_updates)
    is_one = isinstance(schedules, ConfigSchedule) or not hasattr(schedules, "__iter__")
    several: list[Any] = [schedules] if is_one else list(schedules)
    each_seed = check_seeds(seeds)
    for schedule in several:
        if not isinstance(schedule, ConfigSchedule):
            raise ConfigError(
                "train_schedules takes schedules, such as purerl.ConfigSchedule("
                f"(0, 50), ({{...}}, {{...}})), got {schedule!r}."
            )
        schedule.check()
    fields = {tuple(sorted(schedule.values[0])) for schedule in several}
    if len(fields) != 1:
        raise ConfigError(
            "train_schedules needs schedules that all set the same fields, got "
            f"{sorted(fields)}."
        )
    starts = sorted({start for schedule in several for start in schedule.first_updates})
    points = [schedule.at(start) for start in starts for schedule in several]
    group = group_of_pieces(config, points, starts[-1])
    bound = group.bound
    for schedule in several:
        check_pieces(bound, schedule.values)
    ends = (*starts[1:], bound.plan.num_updates)
    agents = np.tile(np.asarray(each_seed, np.uint32), len(several))

    def ask(piece: int) -> Request | None:
        if piece == len(ends):
            return None
        rows = slice(piece * len(several), (piece + 1) * len(several))
        overrides = jax.tree.map(
            lambda leaf: np.repeat(leaf[rows], len(each_seed), axis=0), group.overrides
        )
        # Not by the episodes on which a search of this seed selected.
        fresh = evaluation_keys(agents, HELD_OUT) if piece == len(ends) - 1 else None
        return Request(
            Members(jax.vmap(jax.random.key)(agents), overrides),
            ends[piece],
            parents=np.arange(len(agents)) if piece else None,
            evaluation_keys=fresh,
        )

    def rows(step: Step) -> list[Row]:
        return [
            (number, step.outcome.last_row(number)) for number in range(len(agents))
        ]

    spans = np.diff(ends, prepend=0) * len(agents)
    return Search(
        kind="schedules",
        bound=bound,
        spec={
            "config": serialise.to_dict(bound.asked),
            "options": {"schedules": [schedule.plain() for schedule in several]},
            "seeds": list(each_seed),
        },
        steps=tuple((spans * bound.plan.steps_per_update).tolist()),
        lanes=default_lanes(len(agents), make_workers()),
        # Every piece begins a segment.
        segment_updates=length_of_pieces(starts, segment_updates) or ends[-1],
        init=lambda: 0,
        ask=ask,
        tell=lambda piece, request, outcome: piece + 1,
        rows=rows,
        names={
            row: f"schedule={row // len(each_seed)}-seed={seed}"
            for row, seed in enumerate(agents)
        },
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
    search = schedules_search(
        asked.config,
        asked.schedules,
        seeds=asked.seeds,
        segment_updates=asked.segment_updates,
    )
    finished = drive(search, **asked.of(Saved))
    if finished.states is None:
        raise ConfigError(
            "the training with schedules was stopped before its end; the same call "
            "with out= goes on."
        )
    parts, gone = list[HostMetrics](), np.array(False)
    for outcome in (step.outcome for step in finished.steps):
        # Nothing counts of agents that had diverged before a piece.
        hidden = outcome.train.keys() - {"env_steps"} if gone.any() else ()
        parts.append(
            {
                name: np.where(gone[:, None], np.nan, rows) if name in hidden else rows
                for name, rows in outcome.train.items()
            }
        )
        gone = gone | outcome.diverged
    train = {name: np.concatenate([x[name] for x in parts], 1) for name in parts[0]}
    fresh = finished.steps[-1].outcome.fresh
    assert fresh is not None  # It was asked for with the last piece.
    score = np.where(gone, np.nan, fresh.episode_return)
    seeds = check_seeds(asked.seeds)
    split = (len(score) // len(seeds), len(seeds))
    return Scheduled(
        seeds,
        score.reshape(split),
        {name: row.reshape(*split, -1) for name, row in train.items()},
        jax.tree.map(lambda x: x.reshape(*split, *x.shape[1:]), finished.states),
    )
