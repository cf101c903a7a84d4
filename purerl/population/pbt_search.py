"""Population-based training as a search: who copies whom, and how the copies move."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.execution.members import Members
from purerl.population import streams
from purerl.population.describe import names_of, rows_of, spec_of
from purerl.population.exploit import truncation
from purerl.population.fitness import Fitness, measure
from purerl.population.pbt_result import round_ends
from purerl.population.space import Hyper, Space
from purerl.runner.manifest import notes
from purerl.scale.devices import default_lanes, make_workers
from purerl.search.fitness import EVALUATION
from purerl.search.protocol import Outcome, Request, Row, Search, Step


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
        keys, parents, is_copy = streams.member_keys(self.seeds, self.size), None, None
        if state.round:
            parents, is_copy = state.parent, state.parent != self.everyone
            keys = streams.child_keys(self.search_of, state.round - 1, self.member_of)
        evaluation_keys = None
        if self.options["fitness"] == EVALUATION:
            evaluation_keys = streams.evaluation_keys(self.search_of, state.round)
        return Request(
            Members(keys, self.space.overrides(state.hyper)),
            self.ends[state.round],
            parents,
            is_copy,
            evaluation_keys,
        )

    def tell(self, state: PBTState, request: Request, outcome: Outcome) -> PBTState:
        """Return the state after a round: the worst copy the best and move away.

        Args:
            state: The state before the round.
            request: The request of the round.
            outcome: The outcome of the request.

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
