"""What population-based training leaves behind: rounds, lineages, schedules."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.population.exploit import ancestors
from purerl.population.result import Best, Result
from purerl.population.schedule import Schedule

if TYPE_CHECKING:
    import xarray as xr


class PBTResult(Result):
    """A population's course: labelled arrays, the best member and its schedule.

    Attributes:
        config: base of every member.
        seeds: of the searches.
        options: what fixed the result.
        marks: updates at which the rounds ended.
        states: final states of all members, leaves `[S * P, ...]`, on the host.
        finished: whether the last round has been trained.
        summary: numbers about how it was run.
        out: the folder, if any.
    """

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
            name: (dims, self._rounds(name)) for name in ("score", "diverged", "parent")
        }
        for name in self.space.axes:
            values = self.space.labelled(name, self._rounds(f"hyper/{name}"))
            variables[name] = (dims, values)
        for name in self.records[0] if self.records else ():
            kind, _, metric = name.partition("/")
            if kind == "train" and metric not in variables:
                rows = np.concatenate([record[name] for record in self.records], 1)
                shape = (len(self.seeds), self.population, -1)
                variables[metric] = (("seed", "member", "segment"), rows.reshape(shape))
        coords = {
            "seed": list(self.seeds),
            "updates": ("round", list(self.marks[: len(self.records)])),
        }
        return xr.Dataset(variables, coords=coords)

    def best(self, seed: int | None = None) -> Best:
        """The member with the best score after the last round.

        Args:
            seed: of the search; the best of all searches where not given.

        Raises:
            ConfigError: the search was stopped, or all of its members diverged.
        """
        states = self.final_states()
        scores = self.records[-1]["score"]
        place = self.best_place(scores, self.population, seed)
        number, member = divmod(place, self.population)
        hyper = self._hyper(len(self.marks) - 1, place)
        return Best(
            seed=self.seeds[number],
            member=member,
            score=float(scores[place]),
            hyper=self.space.values(hyper),
            config=self.space.config_at(hyper),
            schedule=self.schedule(self.seeds[number], member),
            lineage=self.lineage(self.seeds[number], member),
            state=jax.tree.map(lambda x: x[place], states),
        )

    def lineage(self, seed: int, member: int) -> np.ndarray:
        """The members `[R]` that trained, round by round, what `member` ended with."""
        parents = self._rounds("parent")[self.places(seed)[0]]
        return ancestors(parents, member)

    def schedule(self, seed: int, member: int) -> Schedule:
        """The hyperparameters that led to a member's final state.

        `purerl.train_schedules(config, result.schedule(seed, member), seeds=8)` trains
        with it again.
        """
        line = self.lineage(seed, member)
        offset = self.places(seed)[0] * self.population
        values = [
            self.space.values(self._hyper(mark, offset + int(who)))
            for mark, who in enumerate(line)
        ]
        starts = (0, *self.marks[: len(self.records) - 1])
        return Schedule(starts, tuple(values))

    def _hyper(self, mark: int, place: int) -> dict[str, float]:
        """The hyperparameters with which a member trained up to a mark."""
        record = self.records[mark]
        return {name: float(record[f"hyper/{name}"][place]) for name in self.space.axes}

    def _rounds(self, name: str) -> np.ndarray:
        """One number per round and member, `[S, R, P]`."""
        if not self.records:
            raise ConfigError("the search has not ended a round yet.")
        rows = np.stack([record[name] for record in self.records])
        split = rows.reshape(len(rows), len(self.seeds), self.population)
        return split.transpose(1, 0, 2)


def marks_of(num_updates: int, ready_updates: int) -> tuple[int, ...]:
    """Ends of the rounds; the last one may be shorter."""
    return (*range(ready_updates, num_updates, ready_updates), num_updates)
