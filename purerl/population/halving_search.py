"""Successive halving as a search: who is trained up to which milestone."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.execution.members import Members
from purerl.population import streams
from purerl.population.brackets import choose_lanes, make_plan
from purerl.population.describe import names_of, rows_of, spec_of
from purerl.population.fitness import Fitness, measure, ranking
from purerl.population.space import Hyper, Space
from purerl.runner.manifest import notes
from purerl.scale.devices import make_workers
from purerl.search.fitness import EVALUATION
from purerl.search.protocol import Outcome, Request, Row, Search, Step


class HalvingState(NamedTuple):
    """The state of successive halving, of `S` searches with `N` members each.

    Attributes:
        number: The number of milestones that have been passed.
        hyper: Hyperparameters of all members by name, `[S N]`.
        alive: Numbers of the members that go on, ascending, `[A]`.
        kept: Rows of the members that go on among the members before, `[A]`.
        score: Scores at the last milestone of the members that reached it; NaN where
            nothing is known.
        diverged: Whether each member that reached it met a number that was not finite.
    """

    number: int
    hyper: Hyper
    alive: np.ndarray
    kept: np.ndarray
    score: np.ndarray
    diverged: np.ndarray


class HalvingSearch:
    """Successive halving as a search: its requests, and its use of their outcomes.

    Args:
        space: The axes that are searched, and the config.
        seeds: The seeds, one search each.
        options: Options by name: `num_points`, `eta`, `min_updates`, `brackets` and
            `fitness`; see `purerl.halving`.

    Attributes:
        plan: The rungs and brackets that follow from the options.

    Raises:
        ConfigError: options of which no rungs and brackets can be made.
    """

    def __init__(
        self, space: Space, seeds: tuple[int, ...], options: Mapping[str, Any]
    ) -> None:
        self.space, self.seeds, self.options = space, seeds, options
        self.plan = make_plan(
            space.bound.plan.num_updates,
            options["min_updates"],
            options["eta"],
            options["num_points"],
            options["brackets"],
        )
        self.size, self.milestones = self.plan.size, self.plan.milestones
        # The seed of every member's search, `[S N]`.
        self.search_of = np.repeat(np.asarray(seeds), self.size)

    def search(self) -> Search:
        """Return the search that `purerl.search.drive` carries out."""
        bound, searches = self.space.bound, len(self.seeds)
        alive = [self.plan.alive(until) * searches for until in self.milestones]
        spans = np.diff(self.milestones, prepend=0) * bound.plan.steps_per_update
        return Search(
            kind="halving",
            bound=bound,
            spec=spec_of(self.space, self.seeds, self.options),
            steps=tuple((spans * alive).tolist()),
            lanes=choose_lanes(self.plan, searches, make_workers()),
            segment_updates=self.options["min_updates"],
            init=self.init,
            ask=self.ask,
            tell=self.tell,
            rows=self.rows,
            names=names_of(self.seeds, self.size),
            remarks=tuple(notes(bound, self.space.corners())),
        )

    def init(self) -> HalvingState:
        """Return the state before the first milestone: everyone, at random points."""
        count = len(self.search_of)
        everyone, unknown = np.arange(count), np.full(count, np.nan)
        hyper = self.space.draws(self.size, self.seeds)
        none = np.zeros(count, bool)
        return HalvingState(0, hyper, everyone, everyone, unknown, none)

    def ask(self, state: HalvingState) -> Request | None:
        """Return the request up to the next milestone; None after the last."""
        if state.number == len(self.milestones):
            return None
        until, alive = self.milestones[state.number], state.alive
        keys = streams.member_keys(self.seeds, self.size)[alive]
        hyper = {name: values[alive] for name, values in state.hyper.items()}
        evaluation_keys = None
        if self._is_fresh and until in self.plan.rungs:
            searches = self.search_of[alive]
            evaluation_keys = streams.evaluation_keys(searches, state.number)
        return Request(
            Members(keys, self.space.overrides(hyper)),
            until,
            parents=state.kept if state.number else None,
            evaluation_keys=evaluation_keys,
        )

    def tell(
        self, state: HalvingState, request: Request, outcome: Outcome
    ) -> HalvingState:
        """Return the state after a milestone, with those who go on.

        Args:
            state: The state before the milestone.
            request: The request that the outcome belongs to.
            outcome: The outcome of the request.

        Raises:
            ConfigError: every member has diverged.
        """
        if self._is_fresh and outcome.fresh is None:
            found = Fitness(np.full(len(state.alive), np.nan), outcome.diverged)
        else:
            found = measure(outcome, self.options["fitness"])
        goes_on = self._survivors(found, state.alive, request.until)
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
            found.score,
            found.diverged,
        )

    def rows(self, step: Step) -> list[Row]:
        """Return a row for trackers per member that reached the milestone."""
        return rows_of(self.space, step.before.alive, step)

    @property
    def _is_fresh(self) -> bool:
        """True if members are judged by fresh episodes, at the rungs alone."""
        return self.options["fitness"] == EVALUATION

    def _survivors(self, found: Fitness, alive: np.ndarray, until: int) -> np.ndarray:
        """Return which members go on after a milestone, `[A]` bool.

        Members that diverged are dropped at every milestone; at a rung so are those
        beyond the best of their bracket.

        Args:
            found: The fitness of the members that reached the milestone, `[A]`.
            alive: Numbers of these members among the members of all searches, `[A]`.
            until: The number of finished updates at the milestone.
        """
        plan, kept = self.plan, ~found.diverged
        if until not in plan.rungs:
            return kept
        rung = plan.rungs.index(until)
        search, member = np.divmod(alive, self.size)
        bracket_of = plan.bracket_of()[member]
        for number, bracket in enumerate(plan.brackets):
            if rung < bracket.first_rung:
                continue
            for place in np.unique(search):
                group = np.flatnonzero((bracket_of == number) & (search == place))
                order = ranking(Fitness(found.score[group], found.diverged[group]))
                kept[group[order[plan.survivors(number, rung) :]]] = False
        return kept
