"""purerl.pbt: population-based training (Jaderberg et al. 2017, arXiv:1711.09846).

Members of one program train side by side. After every round the worst copy the whole
training state of one of the best (exploit) and move its hyperparameters (explore). So a
search finds a schedule of hyperparameters, not one setting.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.members import Members
from purerl.execution.memory import require_number
from purerl.population import streams
from purerl.population.describe import (
    names_of,
    rows_of,
    spec_of,
    stored_options,
)
from purerl.population.exploit import truncation
from purerl.population.fitness import Fitness, check_kind, measure
from purerl.population.pbt_result import PBTResult, round_ends
from purerl.population.space import Hyper, Space
from purerl.runner.arguments import as_folder
from purerl.runner.seeds import check_seeds, num_seeds
from purerl.runner.trackers import Tracker
from purerl.runner.words import notes
from purerl.scale.devices import check_count, default_lanes, make_workers
from purerl.search.drive import drive
from purerl.search.protocol import Outcome, Request, Search

DEFAULT_ROUNDS = 20


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
    fitness: str = "episode_return",
    seeds: int | Sequence[int] = 1,
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
    uninterrupted one. Several seeds are several searches that know nothing of one
    another and share the lanes.

    Args:
        config: Config of every member, where no axis says otherwise.
        axes: Distributions by (dotted) name of the dynamic field: `purerl.loguniform`,
            `purerl.uniform`, `purerl.choice`, or a list of values (see
            `purerl.population.space.step` for how each moves).
        population: The number of members of a search, P.
        num_rounds: The number of rounds of the run, at most; 20 where not given. All
            rounds have the same number of updates, so where it does not divide the
            run's there are fewer.
        ready_updates: Updates between two exploits, in place of `num_rounds`.
        quantile: The share that is replaced, and the share that is copied.
        factors: Factors of which one is drawn to perturb a hyperparameter.
        resample_probability: The probability that a hyperparameter is drawn anew
            instead.
        fitness: The kind of fitness. `episode_return`: the last evaluation that the
            config planned within the round, else the return of the round's training
            episodes. `evaluation`: `config.eval_episodes` fresh episodes after every
            round, the same ones for all members; then `num_evaluations=0` saves the
            planned ones.
        seeds: The number of searches, whose seeds are then 0, 1, ..., or the seed of
            each.
        out: The folder to write; nothing is written without one.
        extend: Whether to go on with the search in `out` to the `total_timesteps` of
            this config, which may be more than it was started with, also where it had
            finished.
        lanes: The width of a block, part of what fixes the bits.
        segment_updates: Updates per compiled call, part of what fixes the bits; a
            divisor of `ready_updates`, which it is where not given.
        checkpoint_seconds: The least time between checkpoints; 0 saves after every
            round.
        trackers: Places that are told every member's row of every round: names
            (`mlflow`, `tensorboard`, `wandb`), or trackers. A search that goes on does
            so with those that it was started with where none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: an axis that is static or cannot be, options out of range, a folder
            of another search (with what differs), a population that diverged as a
            whole.
    """
    space = Space(config, axes)
    folder = as_folder("out", out)
    for name, count in (
        ("population", population),
        ("num_rounds", num_rounds),
        ("ready_updates", ready_updates),
        ("segment_updates", segment_updates),
    ):
        check_count(name, count)
    check_kind(fitness)
    require_number(space.bound, population * num_seeds(seeds), make_workers())
    searches = check_seeds(seeds)
    options = {
        "population": population,
        "ready_updates": _ready(
            space, num_rounds, ready_updates, stored_options(folder, "pbt", extend)
        ),
        "quantile": _fraction("quantile", quantile, 0.5),
        "factors": _factors(factors),
        "resample_probability": _fraction("resample_probability", resample_probability),
        "fitness": fitness,
    }
    _check_length(options["ready_updates"], segment_updates)
    search = pbt_search(space, searches, options)
    finished = drive(
        search,
        out=folder,
        extend=extend,
        lanes=lanes,
        segment_updates=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        trackers=trackers,
        progress=progress,
    )
    return PBTResult(space, searches, options, finished, folder)


class PBTState(NamedTuple):
    """What population-based training knows, of `S` searches with `P` members each.

    Attributes:
        round: The number of rounds that have ended.
        hyper: Hyperparameters of the next round by name, `[S P]`.
        parent: The member whose state each member goes on with, rows `[S P]` of all
            members.
        known: The last score that is known of the state that each member goes on with,
            `[S P]`; NaN where nothing is.
        score: Scores of the last round, `[S P]`.
        diverged: Whether a member met a number that was not finite, `[S P]`.
    """

    round: int
    hyper: Hyper
    parent: np.ndarray
    known: np.ndarray
    score: np.ndarray
    diverged: np.ndarray


def pbt_search(space: Space, seeds: tuple[int, ...], options: dict[str, Any]) -> Search:
    """Return population-based training as a search.

    Args:
        space: Axes that are searched, and the config.
        seeds: Seeds, one search each.
        options: Options by name: `population`, `ready_updates`, `quantile`, `factors`,
            `resample_probability` and `fitness`; see `pbt`.
    """
    size: int = options["population"]
    ends = round_ends(space.bound.plan.num_updates, options["ready_updates"])
    search_of = np.repeat(np.asarray(seeds), size)
    member_of = np.tile(np.arange(size), len(seeds))
    everyone, count = np.arange(len(search_of)), len(search_of)

    def init() -> PBTState:
        unknown = np.full(count, np.nan)
        hyper = space.draws(size, seeds)
        return PBTState(0, hyper, everyone, unknown, unknown, np.zeros(count, bool))

    def ask(state: PBTState) -> Request | None:
        if state.round == len(ends):
            return None
        keys, parents, is_copy = streams.member_keys(seeds, size), None, None
        if state.round:
            parents, is_copy = state.parent, state.parent != everyone
            keys = streams.child_keys(search_of, state.round - 1, member_of)
        return Request(
            Members(keys, space.overrides(state.hyper)),
            ends[state.round],
            parents,
            is_copy,
            streams.evaluation_keys(search_of, state.round)
            if options["fitness"] == "evaluation"
            else None,
        )

    def tell(state: PBTState, request: Request, outcome: Outcome) -> PBTState:
        found = measure(outcome, options["fitness"], state.known)
        if found.diverged.all():
            raise ConfigError(
                f"every member has diverged by update {request.until}, so there is "
                "nothing to copy: narrow the axes, such as a smaller upper end of "
                "learning_rate."
            )
        parents, hyper = everyone, state.hyper
        if state.round + 1 < len(ends):
            parents = exploit(found, seeds, options["quantile"], state.round)
            hyper = explore(
                space, state.hyper, parents, search_of, options, state.round
            )
        known = found.score[parents]
        return PBTState(
            state.round + 1, hyper, parents, known, found.score, found.diverged
        )

    spans = np.diff(ends, prepend=0) * count * space.bound.plan.steps_per_update
    return Search(
        kind="pbt",
        bound=space.bound,
        spec=spec_of(space, seeds, options),
        steps=tuple(spans.tolist()),
        lanes=default_lanes(count, make_workers()),
        segment_updates=options["ready_updates"],
        init=init,
        ask=ask,
        tell=tell,
        rows=lambda step: rows_of(space, everyone, step),
        names=names_of(seeds, size),
        remarks=tuple(notes(space.bound, space.corners())),
    )


def exploit(
    found: Fitness, seeds: tuple[int, ...], quantile: float, number: int
) -> np.ndarray:
    """Return whose state each member goes on with, rows `[S P]` of all members.

    Args:
        found: Scores of all members, `[S P]`.
        seeds: Seeds of the searches: nobody copies a member of another one.
        quantile: The share that is replaced, and the share that is copied.
        number: The number of the round.
    """
    size = len(found.score) // len(seeds)
    parents = []
    for place, seed in enumerate(seeds):
        part = slice(place * size, (place + 1) * size)
        mine = Fitness(found.score[part], found.diverged[part])
        parents.append(truncation(mine, quantile, (seed, number)) + place * size)
    return np.concatenate(parents)


def explore(
    space: Space,
    hyper: Hyper,
    parents: np.ndarray,
    search_of: np.ndarray,
    options: Mapping[str, Any],
    number: int,
) -> Hyper:
    """Return the hyperparameters of the next round: copies move away from their parent.

    Args:
        space: Axes that are searched.
        hyper: Hyperparameters of the round, `[S P]` by name.
        parents: The member whose state each member goes on with, rows `[S P]`.
        search_of: The seed of each member's search, `[S P]`.
        options: Options by name: `population`, `factors` and `resample_probability`.
        number: The number of the round.
    """
    moved = {name: values[parents] for name, values in hyper.items()}
    for member in np.flatnonzero(parents != np.arange(len(parents))):
        own = space.explore(
            {name: values[member] for name, values in moved.items()},
            (int(search_of[member]), number, int(member % options["population"])),
            tuple(options["factors"]),
            options["resample_probability"],
        )
        for name, value in own.items():
            moved[name][member] = value
    return moved


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


def _check_length(ready_updates: int, asked: int | None) -> None:
    if asked is not None and ready_updates % asked:
        raise ConfigError(
            f"segment_updates must divide ready_updates = {ready_updates}, so that a "
            f"round is whole segments, got {asked}."
        )


def _fraction(name: str, value: float, most: float = 1.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number, got {value!r}.")
    if not 0 <= value <= most:
        raise ConfigError(f"{name} must lie between 0 and {most:g}, got {value!r}.")
    return float(value)


def _factors(factors: Sequence[float]) -> list[float]:
    try:
        found = [float(factor) for factor in factors]
    except (TypeError, ValueError):
        found = []
    if not found or not all(0 < f < math.inf and f != 1 for f in found):
        raise ConfigError(
            "factors must be positive numbers other than 1, such as (0.8, 1.25), got "
            f"{factors!r}."
        )
    return found
