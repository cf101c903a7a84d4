"""purerl.halving: successive halving and Hyperband over the lanes of one program.

Many members start, and at every rung all but the best of each bracket are dropped. All
brackets start together, so at any time all members have made the same number of
updates: those of several brackets (and of several searches) share blocks, and whoever
is dropped leaves its lane to others, in fewer blocks of the same width. So work falls,
and no member's bits depend on who was dropped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.cohort import Cohort
from purerl.execution.members import Members
from purerl.execution.memory import require_number
from purerl.population import streams
from purerl.population.brackets import Ladder, choose_lanes, make_ladder
from purerl.population.fitness import Fitness, check_kind, measure, ranking
from purerl.population.halving_result import HalvingResult
from purerl.population.outcome import Outcome
from purerl.population.search import Options, search
from purerl.population.space import Space
from purerl.runner.arguments import as_folder, check_seconds
from purerl.runner.seeds import check_seeds, num_seeds
from purerl.scale.devices import check_count, make_workers
from purerl.types import Array, HostMetrics

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
        config: of every member, where no axis says otherwise; its `total_timesteps`
            are those of a member that is never dropped.
        axes: (dotted) name of a dynamic field -> a distribution such as
            `purerl.loguniform`, or a list of values.
        num_points: members that start in the first bracket; `eta^s` for `s` rungs
            before the end where not given.
        eta: a rung's best `1/eta` go on.
        min_updates: of the first rung; `U / eta^3`, about, where not given.
        brackets: `hyperband`, or `one` for successive halving.
        fitness: `evaluation`: `config.eval_episodes` fresh episodes at every rung, the
            same ones for all members of a search; then `num_evaluations=0` saves the
            planned ones. `episode_return`: the last planned evaluation since the mark
            before, else the return of the training episodes since then.
        seeds: searches: how many (0, 1, ...), or which.
        out: folder to write; nothing is written without one.
        lanes: width of a block, part of what fixes the bits.
        segment_updates: updates per compiled call, likewise; a divisor of
            `min_updates`, which it is where not given.
        checkpoint_seconds: least time between checkpoints; 0 saves at every mark.
        progress: show it.

    Raises:
        ConfigError: an axis that is static or cannot be, numbers that leave no rung, a
            folder of another search (with what differs), only diverged members.
    """
    space = Space(config, axes)
    for name, count in (
        ("num_points", num_points),
        ("min_updates", min_updates),
        ("lanes", lanes),
        ("segment_updates", segment_updates),
    ):
        check_count(name, count)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
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
    carried_out = Options(
        out=as_folder("out", out),
        lanes=lanes or choose_lanes(ladder, len(searches), make_workers()),
        length=segment_updates or rung,
        lanes_asked=lanes,
        length_asked=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
    )
    strategy = Halving(space, searches, options, ladder)
    finished = search(strategy, space, searches, carried_out)
    return HalvingResult(space, searches, options, ladder, finished, carried_out.out)


def first_rung(updates: int, eta: int, min_updates: int | None) -> int:
    """Updates up to the first rung: those that are asked for, or some of the run's."""
    return min_updates or max(1, updates // max(2, eta) ** DEFAULT_RUNGS)


class Halving:
    """The strategy: see `purerl.halving`, and `purerl.population.search.Strategy`."""

    kind = "halving"

    def __init__(
        self,
        space: Space,
        seeds: tuple[int, ...],
        options: dict[str, Any],
        ladder: Ladder,
    ) -> None:
        self.space, self.seeds, self.options = space, seeds, options
        self.ladder, self.marks = ladder, ladder.marks
        self.size = ladder.size
        self.bracket_of = np.tile(ladder.bracket_of(), len(seeds))
        self.search_of = np.repeat(np.asarray(seeds), self.size)
        self.keys = streams.member_keys(seeds, self.size)
        self.hyper = space.draws(self.size, seeds)
        self.alive = np.arange(len(self.search_of))
        self.known = np.full(len(self.search_of), np.nan)

    def members(self) -> Members:
        """Those that have not been dropped."""
        hyper = {name: values[self.alive] for name, values in self.hyper.items()}
        return Members(self.keys[self.alive], self.space.overrides(hyper))

    def planned(self, mark: int) -> int:
        """As many as train up to a mark, if none diverges."""
        return self.ladder.alive(self.marks[mark]) * len(self.seeds)

    def evaluation_keys(self, mark: int) -> Array | None:
        """At a rung one key per search."""
        at_rung = self.marks[mark] in self.ladder.rungs
        if self.options["fitness"] != "evaluation" or not at_rung:
            return None
        return streams.evaluation_keys(self.search_of[self.alive], mark)

    def recall(self, records: list[HostMetrics]) -> None:
        """Who is left after the last record."""
        if records:
            last = records[-1]
            self.alive = last["alive"][last["kept"]]
            self.known = last["known"][last["kept"]]

    def decide(self, mark: int, outcome: Outcome, cohort: Cohort) -> HostMetrics:
        """Drop those that diverged, and at a rung those beyond the best."""
        kind = self.options["fitness"]
        is_rung = self.marks[mark] in self.ladder.rungs
        if kind == "evaluation" and not is_rung:
            unknown = np.full(len(self.alive), np.nan)
            found = Fitness(unknown, outcome.diverged)
        else:
            found = measure(outcome, kind, self.known)
        kept = self._kept(mark, found)
        record = {
            "alive": self.alive,
            "score": found.score,
            "known": found.score,
            "kept": kept,
            "diverged": found.diverged,
            "diverged_at": outcome.diverged_at,
            **{f"train/{name}": rows for name, rows in outcome.train.items()},
            **{f"evaluation/{name}": rows for name, rows in outcome.evaluation.items()},
        }
        if outcome.fresh is not None:
            record["judge_steps"] = outcome.fresh.env_steps
        if not kept.any():
            raise ConfigError(
                f"every member has diverged by update {self.marks[mark]}: narrow the "
                "axes, such as a smaller upper end of learning_rate."
            )
        cohort.keep(np.flatnonzero(kept))
        self.alive, self.known = self.alive[kept], found.score[kept]
        return record

    def _kept(self, mark: int, found: Fitness) -> np.ndarray:
        """Who goes on, `[A]` of those alive."""
        kept = ~found.diverged
        update = self.marks[mark]
        if update not in self.ladder.rungs:
            return kept
        rung = self.ladder.rungs.index(update)
        search = self.alive // self.size
        for number, bracket in enumerate(self.ladder.brackets):
            if rung < bracket.first_rung:
                continue
            for place in range(len(self.seeds)):
                mine = (self.bracket_of[self.alive] == number) & (search == place)
                group = np.flatnonzero(mine)
                order = ranking(Fitness(found.score[group], found.diverged[group]))
                kept[group[order[self.ladder.survivors(number, rung) :]]] = False
        return kept
