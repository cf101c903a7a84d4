"""purerl.pbt: population-based training (Jaderberg et al. 2017, arXiv:1711.09846).

Members of one program train side by side. After every round the worst copy the whole
training state of one of the best (exploit) and move its hyperparameters (explore). So a
search finds a schedule of hyperparameters, not one setting.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

from purerl.config import ConfigError, TrainConfig
from purerl.execution.memory import require_number
from purerl.execution.programs import check_divides
from purerl.population.describe import stored_options, with_stored_values
from purerl.population.fitness import KINDS
from purerl.population.pbt_result import PBTResult
from purerl.population.pbt_search import PBTSearch
from purerl.population.result import write_files
from purerl.population.space import Space
from purerl.precision import in_32_bits
from purerl.runner.arguments import as_folder, check_extend, check_seeds, num_seeds
from purerl.runner.trackers import Tracker
from purerl.scale.devices import as_count, make_workers, required
from purerl.search.drive import drive
from purerl.search.fitness import check_fitness
from purerl.storage import folders
from purerl.sweeps.effects import check_axes, first_values
from purerl.train import check_may_move

DEFAULT_ROUNDS = 20


@in_32_bits
def pbt(
    config: TrainConfig,
    axes: Mapping[str, Any],
    *,
    population: int = 16,
    num_rounds: int | None = None,
    ready_updates: int | None = None,
    quantile: float = 0.2,
    factors: Sequence[float] = (0.8, 1.25),
    resample_probability: float = 0.25,
    fitness: str = "final_return",
    searches: int | Sequence[int] = 1,
    out: str | Path | None = None,
    extend: bool = False,
    lanes: int | None = None,
    segment_updates: int | None = None,
    checkpoint_seconds: float = 30.0,
    trackers: Sequence[str | Tracker] | None = None,
    progress: bool = True,
) -> PBTResult:
    """Train a population whose worst members copy and perturb the best.

    All members are one compiled program, in blocks of lanes over all devices. After
    every round the bottom `quantile` of a population copy everything that a member of
    the top `quantile` carries (parameters, optimiser, normalisers, environments,
    replay) and its hyperparameters, each of which then moves a step or is drawn anew. A
    copy draws from a key of its own: it does not repeat what its parent does. Members
    with a number that is not finite are always replaced.

    `learning_rate` is what a config calls it: where the config anneals it, a member's
    value scales the schedule, `value * (1 - update / U)`, and a change in a round
    scales what is left of it. Set `anneal_learning_rate=False` where the search itself
    is to find the schedule.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Several searches know nothing of one another and share the lanes.

    Args:
        config: Config of every member, where no axis says otherwise.
        axes: Distributions by (dotted) name of the dynamic field: `purerl.loguniform`,
            `purerl.uniform`, `purerl.choice`, or a list of values (see
            `purerl.population.space.perturb` for how each moves).
        population: The number of members of a search, P.
        num_rounds: The number of rounds of the run, at most; 20 where not given. All
            rounds have the same number of updates, so where it does not divide the
            run's there are fewer.
        ready_updates: Updates between two exploits, in place of `num_rounds`.
        quantile: The share that is replaced, and the share that is copied.
        factors: Factors of which one is drawn to perturb a hyperparameter.
        resample_probability: The probability that a hyperparameter is drawn anew
            instead.
        fitness: The kind of fitness. `final_return`: the last evaluation that the
            config planned within the round, else the return of the round's training
            episodes. `evaluation`: `config.eval_episodes` fresh episodes after every
            round, the same ones for all members; then `num_evaluations=0` saves the
            planned ones.
        searches: The number of searches, whose seeds are then 0, 1, ..., or the seed of
            each; 1 where not given.
        out: The folder to write; nothing is written without one.
        extend: Whether to go on with the search in `out` to the `total_timesteps` of
            this config, which may be more than it was started with, also where it had
            finished.
        lanes: The width of a block, part of what fixes the bits.
        segment_updates: Updates per compiled call, part of what fixes the bits; a
            divisor of `ready_updates`, which it is where not given.
        checkpoint_seconds: The least time between checkpoints, or ten times what the
            last one took where that is longer; 0 saves after every round.
        trackers: Places that are told every member's row of every round: names
            (`mlflow`, `tensorboard`, `wandb`), or trackers. A search that goes on does
            so with those that it was started with where none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: an axis that is static or cannot be, options out of range, a folder
            of another search (with what differs), a population that diverged as a
            whole.
    """
    folder = as_folder("out", out)
    asked = PBTOptions(
        population=population,
        num_rounds=num_rounds,
        ready_updates=ready_updates,
        quantile=quantile,
        factors=factors,
        resample_probability=resample_probability,
        fitness=fitness,
        searches=searches,
        extend=extend,
        segment_updates=segment_updates,
    )
    search = make_search(config, axes, asked, folder)
    finished = drive(
        search.search(),
        out=folder,
        extend=extend,
        lanes=lanes,
        segment_updates=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        trackers=trackers,
        progress=progress,
    )
    options = dict(search.options)
    result = PBTResult(search.space, search.seeds, options, finished, folder)
    write_files(result)
    return result


class PBTOptions(NamedTuple):
    """The options of population-based training, as `pbt` describes them.

    Attributes:
        population: The number of members of a search, P.
        num_rounds: The number of rounds of the run, at most.
        ready_updates: Updates between two exploits, in place of `num_rounds`.
        quantile: The share that is replaced, and the share that is copied.
        factors: Factors of which one is drawn to perturb a hyperparameter.
        resample_probability: The probability that a hyperparameter is drawn anew.
        fitness: The kind of fitness.
        searches: The number of searches, or the seed of each.
        extend: Whether to go on with a shorter search in the folder.
        segment_updates: Updates per compiled call, if given.
    """

    population: int
    num_rounds: int | None
    ready_updates: int | None
    quantile: float
    factors: Sequence[float]
    resample_probability: float
    fitness: str
    searches: int | Sequence[int]
    extend: bool
    segment_updates: int | None


def make_search(
    config: TrainConfig, axes: Mapping[str, Any], asked: PBTOptions, folder: Path | None
) -> PBTSearch:
    """Return the search that `pbt` carries out, with everything of it checked.

    Args:
        config: Config of every member, where no axis says otherwise.
        axes: Distributions by name of the dynamic field.
        asked: What is asked for.
        folder: The folder of the search, if any.

    Raises:
        ConfigError: an axis that is static or cannot be, or options out of range.
    """
    check_extend(asked.extend, folder)
    if asked.extend:
        config = with_stored_values(folder, "pbt", config, axes)
    space = Space(config, axes)
    # A folder of before this was checked goes on, and can be read, as it began.
    if not folders.is_begun(folder):
        check_moving(space)
    population = required("population", asked.population)
    num_rounds = as_count("num_rounds", asked.num_rounds)
    ready_updates = as_count("ready_updates", asked.ready_updates)
    segment_updates = as_count("segment_updates", asked.segment_updates)
    kind = check_fitness(asked.fitness, KINDS)
    require_number(space.bound, population * num_seeds(asked.searches), make_workers())
    seeds_of = check_seeds(asked.searches, "searches")
    stored = stored_options(folder, "pbt", asked.extend)
    options = {
        "population": population,
        "ready_updates": _ready(space, num_rounds, ready_updates, stored),
        "quantile": _fraction("quantile", asked.quantile, 0.5),
        "factors": _factors(asked.factors),
        "resample_probability": _fraction(
            "resample_probability", asked.resample_probability
        ),
        "fitness": kind,
    }
    reason = "a round is whole segments"
    check_divides(segment_updates, options["ready_updates"], "ready_updates", reason)
    return PBTSearch(space, seeds_of, options)


def _ready(
    space: Space,
    num_rounds: int | None,
    ready_updates: int | None,
    stored: Mapping[str, Any],
) -> int:
    if num_rounds is not None and ready_updates is not None:
        raise ConfigError(
            f"give num_rounds or ready_updates, not both, got {num_rounds} and "
            f"{ready_updates}."
        )
    updates = space.bound.plan.num_updates
    if num_rounds is None and ready_updates is None:
        # A search that is extended has more rounds, not longer ones.
        ready_updates = stored.get("ready_updates")
    return min(
        ready_updates or math.ceil(updates / (num_rounds or DEFAULT_ROUNDS)), updates
    )


def check_moving(space: Space) -> None:
    """Refuse axes that have no effect, or that are read before a population moves them.

    Raises:
        ConfigError: naming the axis, and why.
    """
    check_axes([space.group], space.axes)
    values = first_values(space.group, space.axes)
    check_may_move(space.bound, values, "and a population changes its numbers")


def _fraction(name: str, value: float, most: float = 1.0) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} must be a number, got {value!r}.")
    if not 0 <= value <= most:
        raise ConfigError(f"{name} must lie between 0 and {most:g}, got {value!r}.")
    return float(value)


def _factors(factors: Sequence[float]) -> list[float]:
    try:
        numbers = [float(factor) for factor in factors]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or not all(0 < f < math.inf and f != 1 for f in numbers):
        raise ConfigError(
            "factors must be positive numbers other than 1, such as (0.8, 1.25), got "
            f"{factors!r}."
        )
    return numbers
