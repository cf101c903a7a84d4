"""purerl.halving: successive halving and Hyperband over the lanes of one program.

Many members start, and at every rung all but the best of each bracket are dropped. All
brackets start together, so at any time all members have made the same number of
updates: those of several brackets (and of several searches) share blocks, and whoever
is dropped leaves its lane to others, in fewer blocks of the same width. So work falls,
and no member's bits depend on who was dropped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl.config import TrainConfig
from purerl.execution.memory import require_number
from purerl.execution.programs import check_divides
from purerl.population.brackets import check_eta, make_plan
from purerl.population.fitness import KINDS
from purerl.population.halving_result import HalvingResult
from purerl.population.halving_search import HalvingSearch
from purerl.population.result import write_files
from purerl.population.space import Space
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, check_seeds, num_seeds
from purerl.runner.trackers import Tracker
from purerl.scale.devices import as_count, make_workers
from purerl.search.drive import drive
from purerl.search.fitness import check_fitness
from purerl.storage import folders
from purerl.sweeps.effects import check_axes

DEFAULT_ETA = 3
# Rungs before the end where `min_updates` is not given.
DEFAULT_RUNGS = 3


@in_32_bits
def halving(
    config: TrainConfig,
    axes: Mapping[str, Any],
    *,
    num_points: int | None = None,
    eta: int = DEFAULT_ETA,
    min_updates: int | None = None,
    brackets: str = "hyperband",
    fitness: str = "evaluation",
    searches: int | Sequence[int] = 1,
    out: str | Path | None = None,
    lanes: int | None = None,
    segment_updates: int | None = None,
    checkpoint_seconds: float = 30.0,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> HalvingResult:
    """Search settings by dropping the worst early (Li et al. 2018, arXiv:1603.06560).

    Members are random points of the axes. At every rung, `min_updates eta^k` updates,
    the best `1/eta` of a bracket go on. One bracket is successive halving; Hyperband
    has several, from many members that are judged early to few that are never dropped,
    because nobody knows how early a judgement can be trusted.

    A member trains as in a run of all updates: where the config anneals the learning
    rate, at a rung it is still that of the whole run's schedule.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Several searches have points of their own.

    Args:
        config: The config of every member, where no axis says otherwise; its
            `total_timesteps` are those of a member that is never dropped.
        axes: Distributions by (dotted) name of the dynamic field, such as
            `purerl.loguniform`, or lists of values.
        num_points: The number of members that start in the first bracket; `eta^s` for
            `s` rungs before the end where not given. Of several brackets, as in
            `hyperband`, the later ones have further members.
        eta: The reduction factor: of a rung's members the best `1/eta` go on.
        min_updates: Updates up to the first rung; `U / eta^3`, about, where not given.
        brackets: The kind of plan: `hyperband`, or `one` for successive halving.
        fitness: The kind of fitness. `evaluation`: `config.eval_episodes` fresh
            episodes at every rung, the same ones for all members of a search; then
            `num_evaluations=0` saves the planned ones. `final_return`: the last planned
            evaluation since the milestone before, else the return of the training
            episodes since then.
        searches: The number of searches, whose seeds are then 0, 1, ..., or the seed of
            each; 1 where not given.
        out: The folder to write; nothing is written without one.
        lanes: The width of a block, part of what fixes the bits.
        segment_updates: Updates per compiled call, part of what fixes the bits; a
            divisor of `min_updates`, which it is where not given.
        checkpoint_seconds: The least time between checkpoints, or ten times what the
            last one took where that is longer; 0 saves at every milestone.
        trackers: Places that are told a row per member and milestone: names
            (`mlflow`, `tensorboard`, `wandb`), or trackers. A search that goes on does
            so with those that it was started with where none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: an axis that is static or cannot be, numbers that leave no rung, a
            folder of another search (with what differs), only diverged members.
    """
    folder = as_folder("out", out)
    asked = HalvingOptions(
        num_points, eta, min_updates, brackets, fitness, searches, segment_updates
    )
    search = make_search(config, axes, asked, folder)
    finished = drive(
        search.search(),
        out=folder,
        lanes=lanes,
        segment_updates=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        trackers=trackers,
        progress=progress,
    )
    options = dict(search.options)
    result = HalvingResult(
        search.space, search.seeds, options, search.plan, finished, folder
    )
    write_files(result)
    return result


class HalvingOptions(NamedTuple):
    """The options of a search by halving, as `halving` describes them.

    Attributes:
        num_points: The number of members that start in the first bracket, if given.
        eta: The reduction factor.
        min_updates: Updates up to the first rung, if given.
        brackets: The kind of plan, `hyperband` or `one`.
        fitness: The kind of fitness.
        searches: The number of searches, or the seed of each.
        segment_updates: Updates per compiled call, if given.
    """

    num_points: int | None
    eta: int
    min_updates: int | None
    brackets: str
    fitness: str
    searches: int | Sequence[int]
    segment_updates: int | None


def make_search(
    config: TrainConfig,
    axes: Mapping[str, Any],
    asked: HalvingOptions,
    folder: Path | None,
) -> HalvingSearch:
    """Return the search that `halving` carries out, with everything of it checked.

    Args:
        config: Config of every member, where no axis says otherwise.
        axes: Distributions by name of the dynamic field.
        asked: What is asked for.
        folder: The folder of the search, if any.

    Raises:
        ConfigError: an axis that is static or cannot be, or numbers that leave no rung.
    """
    space = Space(config, axes)
    num_points = as_count("num_points", asked.num_points)
    min_updates = as_count("min_updates", asked.min_updates)
    segment_updates = as_count("segment_updates", asked.segment_updates)
    kind = check_fitness(asked.fitness, KINDS)
    # A folder of before this was checked goes on, and can be read, as it began.
    if not folders.is_begun(folder):
        check_axes([space.group], space.axes)
    agents = (num_points or 1) * num_seeds(asked.searches)
    require_number(space.bound, agents, make_workers())
    seeds_of = check_seeds(asked.searches, "searches")
    check_eta(asked.eta)
    updates = space.bound.plan.num_updates
    rung = first_rung(updates, asked.eta, min_updates)
    reason = "every rung is the end of a segment"
    check_divides(segment_updates, rung, "min_updates", reason)
    plan = make_plan(updates, rung, asked.eta, num_points, asked.brackets)
    options = {
        "num_points": plan.brackets[0].size,
        "eta": asked.eta,
        "min_updates": rung,
        "brackets": asked.brackets,
        "fitness": kind,
    }
    return HalvingSearch(space, seeds_of, options)


def first_rung(updates: int, eta: int, min_updates: int | None) -> int:
    """Return the updates up to the first rung: those asked for, or a default.

    Args:
        updates: The number of updates of the whole run.
        eta: The reduction factor.
        min_updates: The number of updates that was asked for, if any.
    """
    return min_updates or max(1, updates // max(2, eta) ** DEFAULT_RUNGS)
