"""purerl.halving: successive halving and Hyperband over the lanes of one program.

Li et al. 2018 (JMLR 18-185, arXiv:1603.06560), algorithm 1, with updates of training as
the resource. A rung is a number of updates at which members are judged; a bracket is a
number of members that start together, and the first rung at which they are.

Many members start, and at every rung all but the best of each bracket are dropped. All
brackets start together, so at any time all members have made the same number of
updates: those of several brackets (and of several searches) share blocks, and whoever
is dropped leaves its lane to others, in fewer blocks of the same width. So work falls,
and no member's bits depend on who was dropped.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.execution.programs import check_divides
from purerl.population import search as common
from purerl.population.schedules import ConfigSchedule
from purerl.population.space import Hyper, Space
from purerl.report import plots
from purerl.report.search_plots import last_known
from purerl.runner.options import FIXED, Saved, option, tool
from purerl.scale.devices import Worker, as_count, default_lanes, make_workers
from purerl.search.fitness import check_fitness
from purerl.search.protocol import drive

if TYPE_CHECKING:
    import xarray as xr

# Pieces in which a run is cut, so that a kill costs no more than one of them.
PIECES = 20


class Bracket(NamedTuple):
    """Members that start together.

    Attributes:
        size: The number of members that start.
        first_rung: The number of the rung at which they are judged first.
    """

    size: int
    first_rung: int


class HalvingPlan(NamedTuple):
    """The plan of a search: what starts, and when it is judged.

    Attributes:
        eta: The reduction factor: a rung's best `1/eta` go on.
        rungs: Updates at which members are judged, ascending; the last is the end.
        brackets: The brackets, the most aggressive first.
        milestones: Updates at which something is recorded: the rungs, and some between.
    """

    eta: int
    rungs: tuple[int, ...]
    brackets: tuple[Bracket, ...]
    milestones: tuple[int, ...]

    @property
    def size(self) -> int:
        """Members that start, in all brackets."""
        return sum(bracket.size for bracket in self.brackets)

    def bracket_of(self) -> np.ndarray:
        """Return the bracket `[N]` of every member."""
        sizes = [bracket.size for bracket in self.brackets]
        return np.repeat(np.arange(len(sizes)), sizes)

    def survivors(self, bracket: int, rung: int) -> int:
        """Return how many of a bracket's members go on after a rung (-1: none yet)."""
        size, first = self.brackets[bracket]
        if rung == len(self.rungs) - 1:
            rung -= 1  # The end judges, and drops nobody.
        return max(1, size // self.eta ** max(0, rung - first + 1))

    def alive(self, until: int) -> int:
        """Return how many members train up to an update, if none diverges."""
        last = sum(update < until for update in self.rungs) - 1
        return sum(self.survivors(n, last) for n in range(len(self.brackets)))


def check_eta(name: str, eta: int) -> int:
    """Return a reduction factor, or refuse what is none."""
    if isinstance(eta, bool) or not isinstance(eta, int) or eta < 2:
        raise ConfigError(f"{name} must be a whole number of at least 2, got {eta!r}.")
    return eta


def make_plan(
    num_updates: int,
    min_updates: int,
    eta: int,
    num_points: int | None,
    kind: str,
) -> HalvingPlan:
    """Plan rungs at `min_updates eta^k` below the end, the end, and who starts.

    The last rung is the end of the run, whether or not it is a power away from the one
    before. Bracket `b` of `s + 1` starts with `num_points eta^-b (s + 1) / (s - b + 1)`
    members, rounded up, and is judged first at rung `b`: every bracket trains about as
    many updates. With `num_points = eta^s`, where not given, that is Hyperband.

    Raises:
        ConfigError: numbers that leave no rung before the end, and so on.
    """
    if min_updates * eta > num_updates:
        raise ConfigError(
            f"min_updates must leave room for a rung before the end: at most "
            f"{num_updates} / eta = {num_updates // eta}, got {min_updates}."
        )
    last = 0
    while min_updates * eta ** (last + 1) <= num_updates:
        last += 1
    rungs = (*(min_updates * eta**k for k in range(last)), num_updates)
    first = num_points or eta**last
    brackets = [
        Bracket(math.ceil(first * (last + 1) / (last - b + 1) / eta**b), b)
        for b in range(last + 1 if kind == "hyperband" else 1)
    ]
    # Long ways between rungs are cut at multiples of the first.
    stride = min_updates * math.ceil(num_updates / (PIECES * min_updates))
    milestones: list[int] = []
    for before, rung in zip((0, *rungs[:-1]), rungs, strict=True):
        milestones += [*range(before + stride, rung, stride), rung]
    return HalvingPlan(eta, rungs, tuple(brackets), tuple(milestones))


def choose_lanes(plan: HalvingPlan, num_searches: int, workers: list[Worker]) -> int:
    """Return a width at which few lanes are empty once most members are dropped.

    An accelerator's block takes about as long whatever its width, so there it is as
    wide as the whole population asks for. On a CPU its time grows with its lanes: it
    is modelled as `1 + lanes`, and the width with the least time over all rungs is
    taken.
    """
    num_members = plan.size * num_searches
    widest = default_lanes(num_members, workers)
    if workers[0].device.platform != "cpu":
        return widest
    ends = np.asarray(plan.rungs)
    spans = np.diff(ends, prepend=0)

    def seconds(width: int) -> float:
        alive = np.asarray([plan.alive(end) for end in ends]) * num_searches
        blocks = np.ceil(alive / width)
        turns = np.ceil(blocks / len(workers))
        return float((turns * (1 + width) * spans).sum())

    widths = [1 << power for power in range(widest.bit_length())]
    return min(reversed(widths), key=seconds)


class HalvingSearch(common.PopulationSearch):
    """Successive halving as a search.

    Args:
        space: The axes that are searched, and the config.
        seeds: The seeds, one search each.
        options: The options by name: `num_points`, `eta`, `min_updates`, `brackets` and
            `fitness`; see `purerl.halving`.

    Attributes:
        plan: The rungs and brackets that follow from the options.

    Raises:
        ConfigError: options of which no rungs and brackets can be made.
    """

    kind = "halving"

    def __init__(
        self, space: Space, seeds: tuple[int, ...], options: Mapping[str, Any]
    ) -> None:
        self.plan = plan = make_plan(
            space.bound.plan.num_updates,
            options["min_updates"],
            options["eta"],
            options["num_points"],
            options["brackets"],
        )
        super().__init__(space, seeds, options, plan.size, plan.milestones, plan.rungs)

    def trained(self, until: int) -> int:
        """Return how many members train up to a milestone, if none diverges."""
        return len(self.seeds) * self.plan.alive(until)

    def lanes(self) -> int:
        """Return a width of which few lanes are empty at any time."""
        return choose_lanes(self.plan, len(self.seeds), make_workers())

    def decide(
        self, state: common.PopulationState, found: common.Fitness, until: int
    ) -> tuple[Hyper, np.ndarray, np.ndarray]:
        """Let the best of each bracket go on at a rung, and nobody who diverged."""
        plan, alive, kept = self.plan, state.alive, ~found.diverged
        if until in plan.rungs:
            rung = plan.rungs.index(until)
            search, member = np.divmod(alive, self.size)
            # Members of one bracket of one search are compared.
            place = search * len(plan.brackets) + plan.bracket_of()[member]
            for each in np.unique(place):
                group, number = np.flatnonzero(place == each), each % len(plan.brackets)
                if rung >= plan.brackets[number].first_rung:
                    mine = common.Fitness(found.score[group], found.diverged[group])
                    order = common.ranking(mine)
                    kept[group[order[plan.survivors(number, rung) :]]] = False
        return state.hyper, alive[kept], np.flatnonzero(kept)


class HalvingResult(common.Result):
    """A search's course: labelled arrays, who reached which rung, the best member."""

    search: HalvingSearch

    @property
    def plan(self) -> HalvingPlan:
        """Rungs and brackets."""
        return self.search.plan

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """Points by rung: scores, hyperparameters, how far each was trained.

        `score` is `(seed, point, rung)`, NaN where a member was dropped before;
        hyperparameters, `trained_updates` and `diverged_at` (-1: never) are `(seed,
        point)`; training metrics are `(seed, point, segment)`. Coordinates: `bracket`
        of a point, `updates` of a rung.
        """
        import xarray as xr

        dims = ("seed", "point")
        ends = np.asarray(self.milestones[: len(self.steps)])
        is_rung = np.isin(ends, self.plan.rungs)
        scores = self.at_milestones(lambda step: step.after.score)[:, is_rung]
        diverged_at = self.at_milestones(lambda step: step.outcome.diverged_at)
        trained = self.at_milestones(lambda s: np.full(len(s.before.alive), 1.0))
        variables: dict[str, Any] = {
            **{name: (dims, self.hyper(name)[:, 0]) for name in self.space.axes},
            "trained_updates": (
                dims,
                np.nanmax(trained * ends[:, None], axis=1).astype(int),
            ),
            "diverged_at": (dims, np.fmax.reduce(diverged_at, axis=1).astype(int)),
            "score": ((*dims, "rung"), np.moveaxis(scores, 1, 2)),
        }
        for name, values in self.train().items():
            variables[name] = ((*dims, "segment"), values)
        coords = {
            "seed": list(self.seeds),
            "bracket": ("point", self.plan.bracket_of()),
            "updates": ("rung", ends[is_rung].tolist()),
        }
        return xr.Dataset(variables, coords=coords)

    def draw(self, ax: Any = None) -> plots.Picture:
        """Draw the scores of the members that reached each rung."""
        return plots.halving_scores(self.dataset, ax)

    def columns(self) -> Any:
        """Return a row per member: hyperparameters, last score, how far it came."""
        names = [*self.space.axes, "trained_updates", "diverged_at"]
        scores = last_known(self.dataset["score"].values)
        data = self.dataset[names].assign(score=(("seed", "point"), scores))
        return data.to_dataframe().reset_index()

    def schedule(self, seed: int, member: int) -> ConfigSchedule:
        """Return the one setting with which a member was trained."""
        return super().schedule(seed, member).merged()


DEFAULT_ETA = 3
# Rungs before the end where `min_updates` is not given.
DEFAULT_RUNGS = 3


@dataclasses.dataclass(frozen=True)
class HalvingOptions(common.SearchOptions):
    """The options of `purerl.halving`."""

    tool: ClassVar[str] = "halving"

    _: dataclasses.KW_ONLY
    num_points: int | None = option(
        None,
        "Number of points that start in the first bracket; eta^s for s rungs before "
        "the end if not given. Later brackets have further ones.",
        flag="points",
        check=as_count,
        keep=FIXED,
    )
    eta: int = option(
        DEFAULT_ETA,
        "Share 1/eta of a rung's best points that go on.",
        check=check_eta,
        keep=FIXED,
    )
    min_updates: int | None = option(
        None,
        "Updates up to the first rung; about U/eta^3 of a run's U if not given.",
        check=as_count,
        keep=FIXED,
    )
    brackets: str = option(
        "hyperband",
        "All brackets of Hyperband, or the one of successive halving.",
        kind=Literal["hyperband", "one"],
        check=lambda name, kind: check_fitness(kind, ("hyperband", "one"), name),
        keep=FIXED,
    )
    fitness: Any = common.judged_by("evaluation")


@tool(HalvingOptions)
def halving(asked: HalvingOptions) -> HalvingResult:
    """Search settings by dropping the worst early (Li et al. 2018, arXiv:1603.06560).

    Members are random points of the axes. At every rung, `min_updates eta^k` updates,
    the best `1/eta` of a bracket go on. One bracket is successive halving; Hyperband
    has several, from many members that are judged early to few that are never dropped,
    because nobody knows how early a judgement can be trusted.

    A member trains as in a run of all updates: where the config anneals the learning
    rate, at a rung it is still that of the whole run's schedule.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Several searches have points of their own.

    Raises:
        ConfigError: an axis that is static or cannot be, numbers that leave no rung, a
            folder of another search (with what differs), only diverged members.
    """
    search = make_search(asked)
    finished = drive(search.search, **asked.of(Saved))
    return HalvingResult(search, finished, asked.folder).written()


def make_search(asked: HalvingOptions) -> HalvingSearch:
    """Return the search that `halving` carries out, with everything of it checked.

    Raises:
        ConfigError: an axis that is static or cannot be, or numbers that leave no rung.
    """
    space, seeds = common.read(asked, asked.fitness, asked.num_points or 1)
    updates = space.bound.plan.num_updates
    rung = asked.min_updates or max(1, updates // asked.eta**DEFAULT_RUNGS)
    reason = "every rung is the end of a segment"
    check_divides(asked.segment_updates, rung, "min_updates", reason)
    plan = make_plan(updates, rung, asked.eta, asked.num_points, asked.brackets)
    resolved = {"num_points": plan.brackets[0].size, "min_updates": rung}
    return HalvingSearch(space, seeds, {**asked.kept(), **resolved})
