"""purerl.pbt: population-based training (Jaderberg et al. 2017, arXiv:1711.09846).

Members of one program train side by side. After every round the worst copy the whole
training state of one of the best (exploit) and move its hyperparameters (explore). So a
search finds a schedule of hyperparameters, not one setting.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.execution.members import Members
from purerl.execution.memory import require_number
from purerl.execution.programs import check_divides
from purerl.population.members import (
    Fitness,
    SearchOptions,
    fitness_option,
    measure,
    names_of,
    ranking,
    rows_of,
    spec_of,
    stored_search,
    with_stored_values,
)
from purerl.population.result import Result, write_files
from purerl.population.schedules import Schedule
from purerl.population.space import (
    Hyper,
    Space,
    child_keys,
    evaluation_keys,
    member_keys,
)
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.runner.manifest import notes
from purerl.runner.options import FIXED, Saved, option, tool
from purerl.scale.devices import as_count, default_lanes, make_workers, required
from purerl.search.drive import drive
from purerl.search.fitness import EVALUATION
from purerl.search.protocol import Outcome, Request, Row, Search, Step
from purerl.space.labels import variable_of
from purerl.sweeps.effects import check_axes, first_values
from purerl.train import check_may_move

if TYPE_CHECKING:
    import xarray as xr

# Stream of the draws of parents, beside those of `Space`.
_EXPLOIT = 2


def truncation(
    fitness: Fitness, quantile: float, stream: tuple[int, ...]
) -> np.ndarray:
    """Return whose state each member goes on with.

    Every member of the bottom `ceil(quantile P)` draws one of the top `ceil(quantile
    P)`, uniformly, and becomes its copy if that one is better (equals go on as they
    are). A diverged member is always replaced.

    Args:
        fitness: The fitness of the members, `[P]`.
        quantile: The share of the bottom, and of the top; at most a half.
        stream: Numbers that name this moment of this search.

    Returns:
        Parents `[P]`, the member's own number where it goes on as it is: everywhere,
        if all have diverged.
    """
    size = len(fitness.score)
    order = ranking(fitness)
    healthy = order[~fitness.diverged[order]]
    if not len(healthy):
        return np.arange(size)
    # 0.07 * 100 is 7.000000000000001.
    count = min(math.ceil(quantile * size - 1e-9), size // 2)
    top = healthy[: max(count, 1)]
    known = np.isfinite(fitness.score)
    if known.any():
        top = top[known[top]]
    else:
        top = healthy  # Nothing tells them apart yet.
    bottom = order[size - count :]
    parents = np.arange(size)
    for member in range(size):
        rng = np.random.default_rng([*stream, member, _EXPLOIT])
        parent = int(top[rng.integers(len(top))])
        if fitness.diverged[member]:
            parents[member] = parent
        elif member in bottom and _is_better(fitness, parent, member):
            parents[member] = parent
    return parents


def _is_better(fitness: Fitness, one: int, other: int) -> bool:
    """Return whether `one` scores higher; an unknown score is below every known one."""
    if not np.isfinite(fitness.score[one]):
        return False
    unknown = not np.isfinite(fitness.score[other])
    return bool(unknown or fitness.score[one] > fitness.score[other])


def ancestors(parents: np.ndarray, member: int) -> np.ndarray:
    """Return the members whose rounds led to the state that `member` ends with.

    Args:
        parents: Parents at every round's end, `[R, P]` (see `truncation`).
        member: The number of the member after the last round.

    Returns:
        `[R]`, the member that trained it in each round.
    """
    line = np.empty(len(parents), int)
    for number in reversed(range(len(parents))):
        member = int(parents[number, member])
        line[number] = member
    return line


class PBTState(NamedTuple):
    """The state of population-based training, of `S` searches with `P` members each.

    Attributes:
        round: The number of rounds that have ended.
        hyper: Hyperparameters of the next round by name, `[S P]`.
        parent: The member whose state each member goes on with, rows `[S P]` of all
            members.
        score: Scores of the last round, `[S P]`.
        diverged: Whether a member met a number that was not finite, `[S P]`.
    """

    round: int
    hyper: Hyper
    parent: np.ndarray
    score: np.ndarray
    diverged: np.ndarray


class PBTSearch:
    """Population-based training as a search: its requests, its use of their outcomes.

    Args:
        space: The axes that are searched, and the config.
        seeds: The seeds, one search each.
        options: Options by name: `population`, `ready_updates`, `quantile`, `factors`,
            `resample_probability` and `fitness`; see `purerl.pbt`.
    """

    def __init__(
        self, space: Space, seeds: tuple[int, ...], options: Mapping[str, Any]
    ) -> None:
        self.space, self.seeds, self.options = space, seeds, options
        self.size: int = options["population"]
        self.ends = round_ends(space.bound.plan.num_updates, options["ready_updates"])
        # The seed of every member's search, and its number in that search, `[S P]`.
        self.search_of = np.repeat(np.asarray(seeds), self.size)
        self.member_of = np.tile(np.arange(self.size), len(seeds))
        self.everyone = np.arange(len(self.search_of))

    def search(self) -> Search:
        """Return the search that `purerl.search.drive` carries out."""
        count, bound = len(self.everyone), self.space.bound
        spans = np.diff(self.ends, prepend=0) * count * bound.plan.steps_per_update
        return Search(
            kind="pbt",
            bound=bound,
            spec=spec_of(self.space, self.seeds, self.options),
            steps=tuple(spans.tolist()),
            lanes=default_lanes(count, make_workers()),
            segment_updates=self.options["ready_updates"],
            init=self.init,
            ask=self.ask,
            tell=self.tell,
            rows=self.rows,
            names=names_of(self.seeds, self.size),
            remarks=tuple(notes(bound, self.space.corners())),
        )

    def init(self) -> PBTState:
        """Return the state before the first round: random hyperparameters."""
        unknown = np.full(len(self.everyone), np.nan)
        healthy = np.zeros(len(self.everyone), bool)
        hyper = self.space.draws(self.size, self.seeds)
        return PBTState(0, hyper, self.everyone, unknown, healthy)

    def ask(self, state: PBTState) -> Request | None:
        """Return the request of the next round; None after the last."""
        if state.round == len(self.ends):
            return None
        keys, parents, is_copy = member_keys(self.seeds, self.size), None, None
        if state.round:
            parents, is_copy = state.parent, state.parent != self.everyone
            keys = child_keys(self.search_of, state.round - 1, self.member_of)
        fresh_keys = None
        if self.options["fitness"] == EVALUATION:
            fresh_keys = evaluation_keys(self.search_of, state.round)
        return Request(
            Members(keys, self.space.overrides(state.hyper)),
            self.ends[state.round],
            parents,
            is_copy,
            fresh_keys,
        )

    def tell(self, state: PBTState, request: Request, outcome: Outcome) -> PBTState:
        """Return the state after a round: the worst copy the best and move away.

        Raises:
            ConfigError: every member has diverged.
        """
        found = measure(outcome, self.options["fitness"])
        if found.diverged.all():
            raise ConfigError(
                f"every member has diverged by update {request.until}, so there is "
                "nothing to copy: narrow the axes, such as a smaller upper end of "
                "learning_rate."
            )
        parents, hyper = self.everyone, state.hyper
        # The members' last numbers are not changed any more.
        if state.round + 1 < len(self.ends):
            parents = self._exploit(found, state.round)
            hyper = self._explore(state.hyper, parents, state.round)
        return PBTState(state.round + 1, hyper, parents, found.score, found.diverged)

    def rows(self, step: Step) -> list[Row]:
        """Return a row per member for trackers."""
        return rows_of(self.space, self.everyone, step)

    def _exploit(self, found: Fitness, number: int) -> np.ndarray:
        """Whose state each member goes on with after a round, rows `[S P]`."""
        parents = []
        for place, seed in enumerate(self.seeds):
            # Nobody copies a member of another search.
            part = slice(place * self.size, (place + 1) * self.size)
            mine = Fitness(found.score[part], found.diverged[part])
            own = truncation(mine, self.options["quantile"], (seed, number))
            parents.append(own + place * self.size)
        return np.concatenate(parents)

    def _explore(self, hyper: Hyper, parents: np.ndarray, number: int) -> Hyper:
        """Hyperparameters after a round, `[S P]`: copies move away from their parent.

        Args:
            hyper: Hyperparameters of the round by name, `[S P]`.
            parents: The member whose state each member goes on with, rows `[S P]`.
            number: The number of the round.
        """
        moved = {name: values[parents] for name, values in hyper.items()}
        for row in np.flatnonzero(parents != self.everyone):
            own = self.space.explore(
                {name: values[row] for name, values in moved.items()},
                (int(self.search_of[row]), number, int(self.member_of[row])),
                tuple(self.options["factors"]),
                self.options["resample_probability"],
            )
            for name, value in own.items():
                moved[name][row] = value
        return moved


class PBTResult(Result):
    """A population's course: labelled arrays, the best member and its schedule.

    Attributes:
        states: Final states of all members, leaves `[S * P, ...]`, on the host.
    """

    @property
    def milestones(self) -> tuple[int, ...]:
        """Updates at which the rounds end."""
        updates = self.space.bound.plan.num_updates
        return round_ends(updates, self.options["ready_updates"])

    @property
    def size(self) -> int:
        """Members of a search, P."""
        return self.options["population"]

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """Rounds by member: score, parent, hyperparameters; metrics by segment.

        `score`, `diverged`, `parent` (whose state the member has *after* the round; its
        own number where it went on) and every hyperparameter (with which the round was
        trained) are `(seed, round, member)`; training metrics are `(seed, member,
        segment)`. The coordinate `updates` says how many were done when a round
        ended.
        """
        import xarray as xr

        dims = ("seed", "round", "member")
        variables: dict[str, Any] = {
            "score": (dims, self._rounds([step.after.score for step in self.steps])),
            "diverged": (dims, self._rounds([s.after.diverged for s in self.steps])),
            "parent": (dims, self._parents()),
        }
        for name in self.space.axes:
            numbers = self._rounds([step.before.hyper[name] for step in self.steps])
            variables[name] = (dims, self.space.labelled(name, numbers))
        for name in self.train_names():
            rows = [step.outcome.train[name] for step in self.steps]
            shape = (len(self.seeds), self.size, -1)
            both = np.concatenate(rows, 1).reshape(shape)
            variable = variable_of(name, self.space.axes)
            variables[variable] = (("seed", "member", "segment"), both)
        coords = {
            "seed": list(self.seeds),
            "updates": ("round", list(self.milestones[: len(self.steps)])),
        }
        return xr.Dataset(variables, coords=coords)

    def final_scores(self) -> dict[int, float]:
        """Return the scores of all members at the end, by place."""
        return dict(enumerate(self.steps[-1].after.score.tolist()))

    def lineage(self, seed: int, member: int) -> np.ndarray:
        """Return the members `[R]` that trained, by round, what `member` ended with."""
        return ancestors(self._parents()[self.places(seed)[0]], member)

    def schedule(self, seed: int, member: int) -> Schedule:
        """Return the hyperparameters that led to a member's final state.

        `purerl.train_schedules(config, result.schedule(seed, member), seeds=8)` trains
        with it again.
        """
        line = self.lineage(seed, member)
        offset = self.places(seed)[0] * self.size
        values = [
            self.space.values(self._hyper(number, offset + int(who)))
            for number, who in enumerate(line)
        ]
        starts = (0, *self.milestones[: len(self.steps) - 1])
        return Schedule(starts, tuple(values))

    def _hyper(self, number: int, index: int) -> dict[str, float]:
        """The hyperparameters with which a member was trained in a round."""
        hyper = self.steps[number].before.hyper
        return {name: float(values[index]) for name, values in hyper.items()}

    def _parents(self) -> np.ndarray:
        """Whose state each member has after each round, `[S, R, P]` within a search."""
        rows = [step.after.parent % self.size for step in self.steps]
        return self._rounds(rows)

    def _rounds(self, rows: list[np.ndarray]) -> np.ndarray:
        """One number per round and member, `[S, R, P]`."""
        if not rows:
            raise ConfigError("the search has not ended a round yet.")
        split = np.stack(rows).reshape(len(rows), len(self.seeds), self.size)
        return split.transpose(1, 0, 2)


def round_ends(num_updates: int, ready_updates: int) -> tuple[int, ...]:
    """Return the updates at which rounds end; the last round may be shorter."""
    return (*range(ready_updates, num_updates, ready_updates), num_updates)


DEFAULT_ROUNDS = 20


def _factors(name: str, factors: Sequence[float]) -> list[float]:
    try:
        numbers = [float(factor) for factor in factors]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or not all(0 < f < math.inf and f != 1 for f in numbers):
        raise ConfigError(
            f"{name} must be positive numbers other than 1, such as (0.8, 1.25), got "
            f"{factors!r}."
        )
    return numbers


def _fraction(name: str, value: float, most: float = 1.0) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigError(f"{name} must be a number, got {value!r}.")
    if not 0 <= value <= most:
        raise ConfigError(f"{name} must lie between 0 and {most:g}, got {value!r}.")
    return float(value)


@dataclasses.dataclass(frozen=True)
class PBTOptions(SearchOptions):
    """The options of `purerl.pbt`."""

    tool: ClassVar[str] = "pbt"

    _: dataclasses.KW_ONLY
    population: int = option(
        16, "Number of members of a search.", check=required, keep=FIXED
    )
    num_rounds: int | None = option(
        None,
        "Most rounds that a run is cut into; 20 if not given.",
        doc="The number of rounds of the run, at most; 20 where not given. All rounds "
        "have the same number of updates, so where it does not divide the run's there "
        "are fewer.",
        flag="rounds",
        check=as_count,
    )
    ready_updates: int | None = option(
        None,
        "Updates of a round, in place of the number of rounds.",
        check=as_count,
        keep=FIXED,
    )
    quantile: float = option(
        0.2,
        "Share of the members that are replaced, by copies of as many others.",
        check=lambda name, value: _fraction(name, value, 0.5),
        keep=FIXED,
    )
    factors: Sequence[float] = option(
        (0.8, 1.25),
        "Factors of which a random one perturbs a copied value.",
        kind=tuple[float, ...],
        check=_factors,
        keep=FIXED,
    )
    resample_probability: float = option(
        0.25,
        "Probability that a copied value is drawn anew and not perturbed.",
        check=_fraction,
        keep=FIXED,
    )
    fitness: str = fitness_option("final_return")
    extend: bool = option(
        False,
        "Go on with a finished search in --out to more --total-timesteps.",
        doc="Whether to go on with the search in `out` to the `total_timesteps` of "
        "this config, which may be more than it was started with, also where it had "
        "finished.",
    )


@tool(PBTOptions)
def pbt(asked: PBTOptions) -> PBTResult:
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

    Raises:
        ConfigError: an axis that is static or cannot be, options out of range, a folder
            of another search (with what differs), a population that diverged as a
            whole.
    """
    search = make_search(asked)
    finished = drive(search.search(), extend=asked.extend, **asked.of(Saved))
    options = dict(search.options)
    result = PBTResult(search.space, search.seeds, options, finished, asked.folder)
    write_files(result)
    return result


def make_search(asked: PBTOptions) -> PBTSearch:
    """Return the search that `pbt` carries out, with everything of it checked.

    Raises:
        ConfigError: an axis that is static or cannot be, or options out of range.
    """
    config, folder = asked.config, asked.folder
    if asked.extend:
        config = with_stored_values(folder, "pbt", config, asked.axes)
    space = Space(config, asked.axes)
    check_moving(space)
    agents = asked.population * num_seeds(asked.searches)
    require_number(space.bound, agents, make_workers())
    seeds = check_seeds(asked.searches, "searches")
    stored = stored_search(folder, "pbt").get("options", {}) if asked.extend else {}
    ready = _ready(asked, space, stored)
    reason = "a round is whole segments"
    check_divides(asked.segment_updates, ready, "ready_updates", reason)
    return PBTSearch(space, seeds, {**asked.kept(), "ready_updates": ready})


def _ready(asked: PBTOptions, space: Space, stored: Mapping[str, Any]) -> int:
    """The updates of a round: those that were asked for, of before, or a default."""
    num_rounds, ready = asked.num_rounds, asked.ready_updates
    if num_rounds is not None and ready is not None:
        raise ConfigError(
            f"give num_rounds or ready_updates, not both, got {num_rounds} and {ready}."
        )
    updates = space.bound.plan.num_updates
    if num_rounds is None and ready is None:
        # A search that is extended has more rounds, not longer ones.
        ready = stored.get("ready_updates")
    return min(ready or math.ceil(updates / (num_rounds or DEFAULT_ROUNDS)), updates)


def check_moving(space: Space) -> None:
    """Refuse axes that have no effect, or that are read before a population moves them.

    Raises:
        ConfigError: naming the axis, and why.
    """
    check_axes([space.group], space.axes)
    values = first_values(space.group, space.axes)
    check_may_move(space.bound, values, "and a population changes its numbers")
