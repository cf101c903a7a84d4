"""Training with schedules as a search: a request per piece, and no decisions."""

from typing import NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.execution.members import Members
from purerl.population import streams
from purerl.population.schedule import Pieces
from purerl.scale.devices import default_lanes, make_workers
from purerl.search.protocol import Outcome, Request, Row, Search, Step


class SchedulesState(NamedTuple):
    """The state of training with schedules, `N` schedules with `S` seeds each.

    Attributes:
        piece: The number of pieces that have been trained.
        diverged: Whether an agent met a number that was not finite, `[N S]`.
        score: Mean return of fresh episodes at the end, `[N S]`; NaN before.
    """

    piece: int
    diverged: np.ndarray
    score: np.ndarray


class SchedulesSearch:
    """Training with schedules as a search: all agents, from piece to piece.

    Args:
        pieces: The schedules and their program.
        seeds: Seeds of each schedule's agents.
        length: Updates of one compiled call.
    """

    def __init__(self, pieces: Pieces, seeds: tuple[int, ...], length: int) -> None:
        self.pieces, self.seeds, self.length = pieces, seeds, length
        self.num_schedules = len(pieces.schedules)
        # The seed of every agent, `[N S]`.
        self.agents = np.tile(np.asarray(seeds, np.uint32), self.num_schedules)

    def search(self) -> Search:
        """Return the search that `purerl.search.drive` carries out."""
        bound, count = self.pieces.group.bound, len(self.agents)
        spans = np.diff(self.pieces.ends, prepend=0) * count
        return Search(
            kind="schedules",
            bound=bound,
            spec={
                "config": serialise.to_dict(bound.asked),
                "options": {"schedules": [x.plain() for x in self.pieces.schedules]},
                "seeds": list(self.seeds),
            },
            steps=tuple((spans * bound.plan.steps_per_update).tolist()),
            lanes=default_lanes(count, make_workers()),
            segment_updates=self.length,
            init=self.init,
            ask=self.ask,
            tell=self.tell,
            rows=self.rows,
            names={
                number * len(self.seeds) + row: f"schedule={number}-seed={seed}"
                for number in range(self.num_schedules)
                for row, seed in enumerate(self.seeds)
            },
        )

    def init(self) -> SchedulesState:
        """Return the state before the first piece."""
        count = len(self.agents)
        return SchedulesState(0, np.zeros(count, bool), np.full(count, np.nan))

    def ask(self, state: SchedulesState) -> Request | None:
        """Return the request of the next piece; None after the last."""
        piece, ends = state.piece, self.pieces.ends
        if piece == len(ends):
            return None
        is_last = piece == len(ends) - 1
        return Request(
            Members(
                jax.vmap(jax.random.key)(self.agents),
                self.pieces.overrides(piece, len(self.seeds)),
            ),
            ends[piece],
            parents=np.arange(len(self.agents)) if piece else None,
            # Not by the episodes on which a search of this seed selected.
            evaluation_keys=streams.evaluation_keys(self.agents, streams.HELD_OUT)
            if is_last
            else None,
        )

    def tell(
        self, state: SchedulesState, request: Request, outcome: Outcome
    ) -> SchedulesState:
        """Return the state after a piece, with scores after the last.

        Args:
            state: The state before the piece.
            request: The request that the outcome belongs to.
            outcome: The outcome of the request.
        """
        diverged, score = state.diverged | outcome.diverged, state.score
        if outcome.fresh is not None:
            score = np.where(diverged, np.nan, outcome.fresh.episode_return)
        return SchedulesState(state.piece + 1, diverged, score)

    def rows(self, step: Step) -> list[Row]:
        """Return the last metrics of every agent for trackers."""
        rows = []
        for number in range(step.request.members.size):
            train = step.outcome.train
            last = {name: x[number, -1].item() for name, x in train.items()}
            last.pop("env_steps", None)
            rows.append((number, last))
        return rows
