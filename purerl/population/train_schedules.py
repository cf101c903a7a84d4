"""purerl.train_schedules: what a population found, trained again from scratch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.programs import length_of_pieces
from purerl.population.schedule import Pieces, Schedule, cut
from purerl.population.schedules_search import SchedulesSearch
from purerl.precision import in_32_bits
from purerl.runner.arguments import check_seeds
from purerl.runner.trackers import Tracker
from purerl.scale.devices import as_count
from purerl.search.drive import drive
from purerl.search.protocol import Search, Step
from purerl.types import HostMetrics, PyTree


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


@in_32_bits
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
    progress: bool = True,
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
        checkpoint_seconds: The least time between checkpoints, or ten times what the
            last one took where that is longer.
        trackers: Places that are told a row per agent and piece; see `purerl.pbt`.
        progress: Whether to show the progress.

    Raises:
        ConfigError: a piece that does not begin with a segment, fields that are static,
            unknown, or not the same in all pieces, a folder of something else, or a
            training that was stopped before its end.
    """
    several = _several(schedules)
    agents = check_seeds(seeds)
    finished = drive(
        schedules_search(
            config, several, seeds=agents, segment_updates=segment_updates
        ),
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


def schedules_search(
    config: TrainConfig,
    schedules: Schedule | Sequence[Schedule],
    *,
    seeds: int | Sequence[int] = 1,
    segment_updates: int | None = None,
) -> Search:
    """Return the search that `train_schedules` carries out, for `purerl.dry_run`.

    Args:
        config: The config with which the schedules were found.
        schedules: A schedule, or several that set the same fields.
        seeds: The number of agents per schedule, or their seeds.
        segment_updates: Updates per compiled call; every piece must begin with one.

    Raises:
        ConfigError: see `train_schedules`.
    """
    several = _several(schedules)
    agents = check_seeds(seeds)
    segment_updates = as_count("segment_updates", segment_updates)
    pieces = cut(config, several)
    return SchedulesSearch(pieces, agents, _length(pieces, segment_updates)).search()


def _several(schedules: Any) -> list[Schedule]:
    """Return one schedule as a list of it; what is none is refused by `cut`."""
    if isinstance(schedules, Schedule):
        return [schedules]
    try:
        return list(schedules)
    except TypeError:
        return [schedules]


def _known(step: Step) -> HostMetrics:
    """Training metrics of a piece; NaN for agents that had diverged before it."""
    gone = step.before.diverged[:, None]
    return {
        name: rows
        if name == "env_steps" or not gone.any()
        else np.where(gone, np.nan, rows)
        for name, rows in step.outcome.train.items()
    }


def _length(pieces: Pieces, segment_updates: int | None) -> int:
    """Updates per segment: the largest with which every piece begins a segment."""
    starts, num_updates = pieces.starts, pieces.ends[-1]
    if starts[-1] >= num_updates:
        raise ConfigError(
            f"the schedule's last piece begins at update {starts[-1]}, but the run has "
            f"{num_updates}; raise total_timesteps."
        )
    return length_of_pieces(starts, segment_updates) or num_updates
