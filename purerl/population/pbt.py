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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from purerl import auto
from purerl.config import ConfigError
from purerl.execution.programs import check_divides
from purerl.population import search as common
from purerl.population.space import Hyper, Space, child_keys
from purerl.report import plots
from purerl.runner.manifest import with_values_of
from purerl.runner.options import FIXED, Saved, option, tool
from purerl.scale.devices import as_count, required
from purerl.search.fitness import FINAL_RETURN
from purerl.search.protocol import drive
from purerl.storage import folders
from purerl.sweeps.groups import first_values
from purerl.train import check_may_move
from purerl.types import Array

if TYPE_CHECKING:
    import xarray as xr

# Stream of the draws of parents, beside those of `Space`.
_EXPLOIT = 2


def truncation(
    fitness: common.Fitness, quantile: float, stream: tuple[int, ...]
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
    order = common.ranking(fitness)
    healthy = order[~fitness.diverged[order]]
    if not len(healthy):
        return np.arange(size)
    # 0.07 * 100 is 7.000000000000001.
    count = min(math.ceil(quantile * size - 1e-9), size // 2)
    top = healthy[: max(count, 1)]
    known = np.isfinite(fitness.score)
    score = np.where(known, fitness.score, -np.inf)  # Unknown is below every number.
    # Where nothing is known, nothing tells them apart yet.
    top = top[known[top]] if known.any() else healthy
    bottom = order[size - count :]
    parents = np.arange(size)
    for member in range(size):
        rng = np.random.default_rng([*stream, member, _EXPLOIT])
        parent = int(top[rng.integers(len(top))])
        is_worse = member in bottom and score[parent] > score[member]
        if fitness.diverged[member] or is_worse:
            parents[member] = parent
    return parents


class PBTSearch(common.PopulationSearch):
    """Population-based training as a search.

    Args:
        space: The axes that are searched, and the config.
        seeds: The seeds, one search each.
        options: The options by name: `population`, `ready_updates`, `quantile`,
            `factors`, `resample_probability` and `fitness`; see `purerl.pbt`.
    """

    kind = "pbt"

    def __init__(
        self, space: Space, seeds: tuple[int, ...], options: Mapping[str, Any]
    ) -> None:
        ready, updates = options["ready_updates"], space.bound.plan.num_updates
        # The last round may be shorter.
        ends = (*range(ready, updates, ready), updates)
        super().__init__(space, seeds, options, options["population"], ends)
        self.member_of = self.everyone % self.size

    def keys(self, state: common.PopulationState) -> tuple[Array, np.ndarray | None]:
        """Return keys of all members: copies get their own."""
        if not state.number:
            return super().keys(state)
        keys = child_keys(self.search_of, state.number - 1, self.member_of)
        return keys, state.parents != self.everyone

    def decide(
        self, state: common.PopulationState, found: common.Fitness, until: int
    ) -> tuple[Hyper, np.ndarray, np.ndarray]:
        """Let the worst copy the best and move away; nobody does at the end."""
        parents, hyper = self.everyone, state.hyper
        if state.number + 1 < len(self.milestones):
            parents = self._exploit(found, state.number)
            hyper = self._explore(state.hyper, parents, state.number)
        return hyper, self.everyone, parents

    def _exploit(self, found: common.Fitness, number: int) -> np.ndarray:
        """Whose state each member goes on with after a round, rows `[S P]`."""
        parents = []
        for place, seed in enumerate(self.seeds):
            # Nobody copies a member of another search.
            part = slice(place * self.size, (place + 1) * self.size)
            mine = common.Fitness(found.score[part], found.diverged[part])
            own = truncation(mine, self.options["quantile"], (seed, number))
            parents.append(own + place * self.size)
        return np.concatenate(parents)

    def _explore(self, hyper: Hyper, parents: np.ndarray, number: int) -> Hyper:
        """Hyperparameters after a round, `[S P]`: copies move away from their parent.

        Args:
            hyper: Hyperparameters of the round by name, `[S P]`.
            parents: The member whose state each member goes on with, rows `[S P]`.
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


class PBTResult(common.Result):
    """A population's course: labelled arrays, the best member and its schedule.

    Attributes:
        states: Final states of all members, leaves `[S * P, ...]`, on the host.
    """

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
            "score": (dims, self.at_milestones(lambda step: step.after.score)),
            "diverged": (dims, self.at_milestones(lambda step: step.after.diverged)),
            "parent": (dims, self.parents()),
            **{name: (dims, self.hyper(name)) for name in self.space.axes},
        }
        for name, values in self.train().items():
            variables[name] = (("seed", "member", "segment"), values)
        coords = {
            "seed": list(self.seeds),
            "updates": ("round", list(self.milestones[: len(self.steps)])),
        }
        return xr.Dataset(variables, coords=coords)

    def draw(self, ax: Any = None) -> plots.Picture:
        """Draw every member's score after every round, the best lineage bold.

        Where some rounds were judged by an evaluation and the others by returns in
        training, they make no one curve: those with an evaluation are drawn.
        """
        shown = np.array(["episode_return" in x.outcome.evaluation for x in self.steps])
        if self.options["fitness"] != FINAL_RETURN or not shown.any():
            shown[:] = True
        lineages = {best.seed: best.lineage[shown] for best in self.best_of_each()}
        return plots.population_scores(self.dataset.isel(round=shown), lineages, ax)

    def columns(self) -> Any:
        """Return a row per member and round, with hyperparameters and score."""
        names = ["score", "diverged", "parent", *self.space.axes]
        return self.dataset[names].to_dataframe().reset_index()


DEFAULT_ROUNDS = 20


def _factors(name: str, factors: Sequence[float]) -> list[float]:
    numbers = [
        x for x in factors if isinstance(x, Real) and 0 < x < math.inf and x != 1
    ]
    if not numbers or len(numbers) < len(factors):
        raise ConfigError(
            f"{name} must be positive numbers other than 1, such as (0.8, 1.25), got "
            f"{factors!r}."
        )
    return [float(number) for number in numbers]


def _fraction(name: str, value: float, most: float = 1.0) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= most):
        raise ConfigError(
            f"{name} must be a number between 0 and {most:g}, got {value!r}."
        )
    return float(value)


@dataclasses.dataclass(frozen=True)
class PBTOptions(common.SearchOptions):
    """The options of `purerl.pbt`."""

    tool: ClassVar[str] = "pbt"

    _: dataclasses.KW_ONLY
    population: int = option(
        16, "Number of members of a search.", check=required, keep=FIXED
    )
    ready_updates: int | None = option(
        None,
        "Updates of a round, the last one perhaps of fewer; a twentieth of the run if "
        "not given.",
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
    fitness: Any = common.judged_by("final_return")
    extend: bool = option(
        False,
        "Go on with the search in the folder, also a finished one, to more "
        "total_timesteps.",
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
    finished = drive(search.search, extend=asked.extend, **asked.of(Saved))
    return PBTResult(search, finished, asked.folder).written()


def make_search(asked: PBTOptions) -> PBTSearch:
    """Return the search that `pbt` carries out, with everything of it checked.

    Raises:
        ConfigError: an axis that is static or cannot be, that nothing reads or that is
            read before a population moves it; or options out of range.
    """
    config, ready = asked.config, asked.ready_updates
    is_begun = asked.extend and folders.is_begun(asked.folder)
    stored = folders.load(asked.folder) if is_begun else {}
    if stored.get("kind") == PBTSearch.kind:
        # What `auto` stood for stays, such as the steps over which exploration decays,
        # also where it follows the length of a run; but what follows an axis moves.
        moving = {auto.FOLLOWED[name] for name in asked.axes if name in auto.FOLLOWED}
        known = {**stored["config"], **stored["auto"]}
        fixed = {name: value for name, value in known.items() if name not in moving}
        config = with_values_of({"config": fixed}, config)
        # There are more rounds, not longer ones.
        ready = ready or stored["options"]["ready_updates"]
    space, seeds = common.read(asked, asked.fitness, asked.population, config)
    values = first_values(space.group)
    check_may_move(space.bound, values, "and a population changes its numbers")
    updates = space.bound.plan.num_updates
    ready = min(ready or math.ceil(updates / DEFAULT_ROUNDS), updates)
    reason = "a round is whole segments"
    check_divides(asked.segment_updates, ready, "ready_updates", reason)
    return PBTSearch(space, seeds, {**asked.kept(), "ready_updates": ready})
