"""The result of population-based training: rounds, lineages, schedules."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.population.exploit import ancestors
from purerl.population.result import BestMember, Result
from purerl.population.schedule import Schedule
from purerl.space.labels import variable_of

if TYPE_CHECKING:
    import xarray as xr


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
    def population(self) -> int:
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
            shape = (len(self.seeds), self.population, -1)
            both = np.concatenate(rows, 1).reshape(shape)
            variable = variable_of(name, self.space.axes)
            variables[variable] = (("seed", "member", "segment"), both)
        coords = {
            "seed": list(self.seeds),
            "updates": ("round", list(self.milestones[: len(self.steps)])),
        }
        return xr.Dataset(variables, coords=coords)

    def best(self, seed: int | None = None) -> BestMember:
        """Return the member with the best score after the last round.

        Args:
            seed: The seed of the search; the best of all searches where not given.

        Raises:
            ConfigError: the search was stopped, or all of its members diverged.
        """
        states = self.final_states()
        scores = self.steps[-1].after.score
        index = self.best_place(scores, self.population, seed)
        number, member = divmod(index, self.population)
        hyper = self.space.values(self._hyper(len(self.milestones) - 1, index))
        return BestMember(
            seed=self.seeds[number],
            member=member,
            score=float(scores[index]),
            point=hyper,
            config=self.space.config_at(hyper),
            schedule=self.schedule(self.seeds[number], member),
            lineage=self.lineage(self.seeds[number], member),
            state=jax.tree.map(lambda x: x[index], states),
        )

    def lineage(self, seed: int, member: int) -> np.ndarray:
        """Return the members `[R]` that trained, by round, what `member` ended with."""
        return ancestors(self._parents()[self.places(seed)[0]], member)

    def schedule(self, seed: int, member: int) -> Schedule:
        """Return the hyperparameters that led to a member's final state.

        `purerl.train_schedules(config, result.schedule(seed, member), seeds=8)` trains
        with it again.
        """
        line = self.lineage(seed, member)
        offset = self.places(seed)[0] * self.population
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
        rows = [step.after.parent % self.population for step in self.steps]
        return self._rounds(rows)

    def _rounds(self, rows: list[np.ndarray]) -> np.ndarray:
        """One number per round and member, `[S, R, P]`."""
        if not rows:
            raise ConfigError("the search has not ended a round yet.")
        split = np.stack(rows).reshape(len(rows), len(self.seeds), self.population)
        return split.transpose(1, 0, 2)


def round_ends(num_updates: int, ready_updates: int) -> tuple[int, ...]:
    """Return the updates at which rounds end; the last round may be shorter."""
    return (*range(ready_updates, num_updates, ready_updates), num_updates)
