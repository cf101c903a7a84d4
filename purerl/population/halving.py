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

import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.members import Members
from purerl.execution.memory import require_number
from purerl.population import streams
from purerl.population.brackets import Ladder, choose_lanes, make_ladder
from purerl.population.describe import names_of, rows_of, spec_of
from purerl.population.fitness import Fitness, check_kind, measure, ranking
from purerl.population.halving_result import HalvingResult
from purerl.population.space import Hyper, Space
from purerl.runner.arguments import as_folder
from purerl.runner.seeds import check_seeds, num_seeds
from purerl.runner.trackers import Tracker
from purerl.runner.words import notes
from purerl.scale.devices import check_count, make_workers
from purerl.search.drive import drive
from purerl.search.protocol import Outcome, Request, Search

DEFAULT_ETA = 3
# Rungs before the end where `min_updates` is not given.
DEFAULT_RUNGS = 3


def halving(
    config: TrainConfig,
    axes: Mapping[str, Any],
    *,
    num_points: int | None = None,
    eta: int = DEFAULT_ETA,
    min_updates: int | None = None,
    brackets: str = "hyperband",
    fitness: str = "evaluation",
    seeds: int | Sequence[int] = 1,
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
    uninterrupted one. Several seeds are several searches, with points of their own.

    Args:
        config: The config of every member, where no axis says otherwise; its
            `total_timesteps` are those of a member that is never dropped.
        axes: Distributions by (dotted) name of the dynamic field, such as
            `purerl.loguniform`, or lists of values.
        num_points: The number of members that start in the first bracket; `eta^s` for
            `s` rungs before the end where not given.
        eta: The reduction factor: of a rung's members the best `1/eta` go on.
        min_updates: Updates up to the first rung; `U / eta^3`, about, where not given.
        brackets: The kind of plan: `hyperband`, or `one` for successive halving.
        fitness: The kind of fitness. `evaluation`: `config.eval_episodes` fresh
            episodes at every rung, the same ones for all members of a search; then
            `num_evaluations=0` saves the planned ones. `episode_return`: the last
            planned evaluation since the milestone before, else the return of the
            training episodes since then.
        seeds: The number of searches, whose seeds are then 0, 1, ..., or the seed of
            each.
        out: The folder to write; nothing is written without one.
        lanes: The width of a block, part of what fixes the bits.
        segment_updates: Updates per compiled call, part of what fixes the bits; a
            divisor of `min_updates`, which it is where not given.
        checkpoint_seconds: The least time between checkpoints; 0 saves at every
            milestone.
        trackers: Places that are told a row per member and milestone: names
            (`mlflow`, `tensorboard`, `wandb`), or trackers. A search that goes on does
            so with those that it was started with where none are given.
        progress: Whether to show the progress.

    Raises:
        ConfigError: an axis that is static or cannot be, numbers that leave no rung, a
            folder of another search (with what differs), only diverged members.
    """
    space = Space(config, axes)
    for name, count in (
        ("num_points", num_points),
        ("min_updates", min_updates),
        ("segment_updates", segment_updates),
    ):
        check_count(name, count)
    check_kind(fitness)
    agents = (num_points or 1) * num_seeds(seeds)
    require_number(space.bound, agents, make_workers())
    searches = check_seeds(seeds)
    updates = space.bound.plan.num_updates
    rung = first_rung(updates, eta, min_updates)
    if segment_updates is not None and rung % segment_updates:
        raise ConfigError(
            f"segment_updates must divide min_updates = {rung}, so that every rung is "
            f"the end of a segment, got {segment_updates}."
        )
    ladder = make_ladder(updates, rung, eta, num_points, brackets)
    options = {
        "num_points": ladder.brackets[0].size,
        "eta": eta,
        "min_updates": rung,
        "brackets": brackets,
        "fitness": fitness,
    }
    finished = drive(
        halving_search(space, searches, options, ladder),
        out=out,
        lanes=lanes,
        segment_updates=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        trackers=trackers,
        progress=progress,
    )
    folder = as_folder("out", out)
    return HalvingResult(space, searches, options, ladder, finished, folder)


def first_rung(updates: int, eta: int, min_updates: int | None) -> int:
    """Return the updates up to the first rung: those asked for, or a default.

    Args:
        updates: The number of updates of the whole run.
        eta: The reduction factor.
        min_updates: The number of updates that was asked for, if any.
    """
    return min_updates or max(1, updates // max(2, eta) ** DEFAULT_RUNGS)


class HalvingState(NamedTuple):
    """What successive halving knows, of `S` searches with `N` members each.

    Attributes:
        number: The number of milestones that have been passed.
        hyper: Hyperparameters of all members by name, `[S N]`.
        alive: Numbers of the members that go on, ascending, `[A]`.
        kept: Rows of the members that go on among the members before, `[A]`.
        known: The last scores of the members that go on, `[A]`; NaN where nothing is
            known.
        score: Scores at the last milestone of the members that reached it.
        diverged: Whether each member that reached it met a number that was not finite.
    """

    number: int
    hyper: Hyper
    alive: np.ndarray
    kept: np.ndarray
    known: np.ndarray
    score: np.ndarray
    diverged: np.ndarray


def halving_search(
    space: Space, seeds: tuple[int, ...], options: dict[str, Any], ladder: Ladder
) -> Search:
    """Return successive halving as a search.

    Args:
        space: Axes that are searched, and the config.
        seeds: Seeds, one search each.
        options: Options by name: `num_points`, `eta`, `min_updates`, `brackets` and
            `fitness`; see `halving`.
        ladder: The rungs and brackets that follow from the options.
    """
    size, milestones = ladder.size, ladder.marks
    count = size * len(seeds)
    search_of = np.repeat(np.asarray(seeds), size)
    is_fresh = options["fitness"] == "evaluation"

    def init() -> HalvingState:
        everyone, unknown = np.arange(count), np.full(count, np.nan)
        hyper = space.draws(size, seeds)
        none = np.zeros(count, bool)
        return HalvingState(0, hyper, everyone, everyone, unknown, unknown, none)

    def ask(state: HalvingState) -> Request | None:
        if state.number == len(milestones):
            return None
        until, alive = milestones[state.number], state.alive
        hyper = {name: values[alive] for name, values in state.hyper.items()}
        keys = None
        if is_fresh and until in ladder.rungs:
            keys = streams.evaluation_keys(search_of[alive], state.number)
        return Request(
            Members(streams.member_keys(seeds, size)[alive], space.overrides(hyper)),
            until,
            parents=state.kept if state.number else None,
            evaluation_keys=keys,
        )

    def tell(state: HalvingState, request: Request, outcome: Outcome) -> HalvingState:
        if is_fresh and outcome.fresh is None:
            found = Fitness(np.full(len(state.alive), np.nan), outcome.diverged)
        else:
            found = measure(outcome, options["fitness"], state.known)
        goes_on = survivors(ladder, found, state.alive, request.until)
        if not goes_on.any():
            raise ConfigError(
                f"every member has diverged by update {request.until}: narrow the "
                "axes, such as a smaller upper end of learning_rate."
            )
        return HalvingState(
            state.number + 1,
            state.hyper,
            state.alive[goes_on],
            np.flatnonzero(goes_on),
            found.score[goes_on],
            found.score,
            found.diverged,
        )

    alive = [ladder.alive(until) * len(seeds) for until in milestones]
    spans = np.diff(milestones, prepend=0) * space.bound.plan.steps_per_update
    return Search(
        kind="halving",
        bound=space.bound,
        spec=spec_of(space, seeds, options),
        steps=tuple((spans * alive).tolist()),
        lanes=choose_lanes(ladder, len(seeds), make_workers()),
        segment_updates=options["min_updates"],
        init=init,
        ask=ask,
        tell=tell,
        rows=lambda step: rows_of(space, step.before.alive, step),
        names=names_of(seeds, size),
        remarks=tuple(notes(space.bound, space.corners())),
    )


def survivors(
    ladder: Ladder, found: Fitness, alive: np.ndarray, until: int
) -> np.ndarray:
    """Return who goes on after a milestone, `[A]` bool.

    Members that diverged are dropped at every milestone; at a rung so are those beyond
    the best of their bracket.

    Args:
        ladder: Rungs and brackets.
        found: The fitness of the members that reached the milestone, `[A]`.
        alive: Numbers of these members among the members of all searches, `[A]`.
        until: The number of finished updates at the milestone.
    """
    kept = ~found.diverged
    if until not in ladder.rungs:
        return kept
    rung = ladder.rungs.index(until)
    search, member = np.divmod(alive, ladder.size)
    bracket_of = ladder.bracket_of()[member]
    for number, bracket in enumerate(ladder.brackets):
        if rung < bracket.first_rung:
            continue
        for place in np.unique(search):
            group = np.flatnonzero((bracket_of == number) & (search == place))
            order = ranking(Fitness(found.score[group], found.diverged[group]))
            kept[group[order[ladder.survivors(number, rung) :]]] = False
    return kept
