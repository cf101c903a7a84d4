"""purerl.pbt: population-based training (Jaderberg et al. 2017, arXiv:1711.09846).

Members of one program train side by side. After every round the worst copy the whole
training state of one of the best (exploit) and move its hyperparameters (explore). So a
search finds a schedule of hyperparameters, not one setting.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from purerl.config import ConfigError, TrainConfig
from purerl.execution.cohort import Cohort
from purerl.execution.members import Members
from purerl.execution.memory import require_number
from purerl.population import streams
from purerl.population.exploit import truncation
from purerl.population.fitness import Fitness, check_kind, measure
from purerl.population.outcome import Outcome
from purerl.population.pbt_result import PBTResult, marks_of
from purerl.population.search import Options, search
from purerl.population.space import Hyper, Space
from purerl.runner.arguments import as_folder, check_seconds
from purerl.runner.seeds import check_seeds, num_seeds
from purerl.scale.devices import check_count, default_lanes, make_workers
from purerl.types import Array, HostMetrics

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
    lanes: int | None = None,
    segment_updates: int | None = None,
    checkpoint_seconds: float = 30.0,
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
        config: of every member, where no axis says otherwise.
        axes: (dotted) name of a dynamic field -> `purerl.loguniform`, `purerl.uniform`,
            `purerl.choice`, or a list of values (see `purerl.population.space.step`
            for how each moves).
        population: members of a search, P.
        num_rounds: of the run, at most; 20 where not given. All rounds have the same
            number of updates, so where it does not divide the run's there are fewer.
        ready_updates: in place of it, updates between two exploits.
        quantile: share that is replaced, and share that is copied.
        factors: of which one is drawn to perturb a hyperparameter.
        resample_probability: that it is drawn anew instead.
        fitness: `episode_return`: the last evaluation that the config planned within
            the round, else the return of the round's training episodes. `evaluation`:
            `config.eval_episodes` fresh episodes after every round, the same ones for
            all members; then `num_evaluations=0` saves the planned ones.
        seeds: searches: how many (0, 1, ...), or which.
        out: folder to write; nothing is written without one.
        lanes: width of a block, part of what fixes the bits.
        segment_updates: updates per compiled call, likewise; a divisor of
            `ready_updates`, which it is where not given.
        checkpoint_seconds: least time between checkpoints; 0 saves after every round.
        progress: show it.

    Raises:
        ConfigError: an axis that is static or cannot be, options out of range, a folder
            of another search (with what differs), a population that diverged as a
            whole.
    """
    space = Space(config, axes)
    for name, count in (
        ("population", population),
        ("num_rounds", num_rounds),
        ("ready_updates", ready_updates),
        ("lanes", lanes),
        ("segment_updates", segment_updates),
    ):
        check_count(name, count)
    check_seconds("checkpoint_seconds", checkpoint_seconds)
    check_kind(fitness)
    require_number(space.bound, population * num_seeds(seeds), make_workers())
    searches = check_seeds(seeds)
    options = {
        "population": population,
        "ready_updates": _ready(space, num_rounds, ready_updates),
        "quantile": _fraction("quantile", quantile, 0.5),
        "factors": _factors(factors),
        "resample_probability": _fraction("resample_probability", resample_probability),
        "fitness": fitness,
    }
    carried_out = Options(
        out=as_folder("out", out),
        lanes=lanes or default_lanes(population * len(searches), make_workers()),
        length=_length(options["ready_updates"], segment_updates),
        lanes_asked=lanes,
        length_asked=segment_updates,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
    )
    strategy = PBT(space, searches, options)
    finished = search(strategy, space, searches, carried_out)
    return PBTResult(
        space, searches, options, strategy.marks, finished, carried_out.out
    )


class PBT:
    """The strategy: see `purerl.pbt`, and `purerl.population.search.Strategy`."""

    kind = "pbt"

    def __init__(
        self, space: Space, seeds: tuple[int, ...], options: dict[str, Any]
    ) -> None:
        self.space, self.seeds, self.options = space, seeds, options
        self.size: int = options["population"]
        self.marks = marks_of(space.bound.plan.num_updates, options["ready_updates"])
        self.search_of = np.repeat(np.asarray(seeds), self.size)
        self.keys = streams.member_keys(seeds, self.size)
        self.hyper = space.draws(self.size, seeds)
        self.known = np.full(len(self.search_of), np.nan)

    def members(self) -> Members:
        """All members, with their hyperparameters of now."""
        return Members(self.keys, self.space.overrides(self.hyper))

    def planned(self, mark: int) -> int:
        """All of them, always."""
        del mark
        return len(self.search_of)

    def evaluation_keys(self, mark: int) -> Array | None:
        """One key per search."""
        if self.options["fitness"] != "evaluation":
            return None
        return streams.evaluation_keys(self.search_of, mark)

    def recall(self, records: list[HostMetrics]) -> None:
        """Hyperparameters and scores as after the last record."""
        if records:
            last = records[-1]
            self.hyper = {name: last[f"next/{name}"] for name in self.space.axes}
            self.known = last["known"]

    def decide(self, mark: int, outcome: Outcome, cohort: Cohort) -> HostMetrics:
        """Exploit and explore; after the last round nobody is replaced."""
        found = measure(outcome, self.options["fitness"], self.known)
        record = {
            "score": found.score,
            "diverged": found.diverged,
            "diverged_at": outcome.diverged_at,
            "key": cohort.key_data(),
            **{f"hyper/{name}": values for name, values in self.hyper.items()},
            **{f"train/{name}": rows for name, rows in outcome.train.items()},
            **{f"evaluation/{name}": rows for name, rows in outcome.evaluation.items()},
        }
        if outcome.fresh is not None:
            record["judge_steps"] = outcome.fresh.env_steps
        if found.diverged.all():
            raise ConfigError(
                f"every member has diverged by update {self.marks[mark]}, so there is "
                "nothing to copy: narrow the axes, such as a smaller upper end of "
                "learning_rate."
            )
        parents = np.arange(len(self.search_of))
        if mark + 1 < len(self.marks):
            parents = self._parents(mark, found)
            members = np.tile(np.arange(self.size), len(self.seeds))
            cohort.copy(parents, streams.child_keys(self.search_of, mark, members))
            self.hyper = self._explored(mark, parents)
            cohort.set_overrides(self.space.overrides(self.hyper))
        self.known = found.score[parents]
        record["parent"], record["known"] = parents % self.size, self.known
        record |= {f"next/{name}": values for name, values in self.hyper.items()}
        return record

    def _parents(self, mark: int, found: Fitness) -> np.ndarray:
        """`[S P]`, numbers within the whole population."""
        parents = []
        for number, seed in enumerate(self.seeds):
            part = slice(number * self.size, (number + 1) * self.size)
            mine = Fitness(found.score[part], found.diverged[part])
            chosen = truncation(mine, self.options["quantile"], (seed, mark))
            parents.append(chosen + number * self.size)
        return np.concatenate(parents)

    def _explored(self, mark: int, parents: np.ndarray) -> Hyper:
        """Hyperparameters of the next round: copies take their parent's, moved."""
        hyper = {name: values[parents] for name, values in self.hyper.items()}
        for member in np.flatnonzero(parents != np.arange(len(parents))):
            moved = self.space.explore(
                {name: values[member] for name, values in hyper.items()},
                (int(self.search_of[member]), mark, int(member % self.size)),
                tuple(self.options["factors"]),
                self.options["resample_probability"],
            )
            for name, value in moved.items():
                hyper[name][member] = value
        return hyper


def _ready(space: Space, num_rounds: int | None, ready_updates: int | None) -> int:
    if num_rounds is not None and ready_updates is not None:
        raise ConfigError(
            f"give num_rounds or ready_updates, not both, got {num_rounds} and "
            f"{ready_updates}."
        )
    updates = space.bound.plan.num_updates
    return min(
        ready_updates or math.ceil(updates / (num_rounds or DEFAULT_ROUNDS)), updates
    )


def _length(ready_updates: int, asked: int | None) -> int:
    if asked is not None and ready_updates % asked:
        raise ConfigError(
            f"segment_updates must divide ready_updates = {ready_updates}, so that a "
            f"round is whole segments, got {asked}."
        )
    return asked or ready_updates


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
