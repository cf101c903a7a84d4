"""The result of successive halving: scores by rung, who reached which."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from purerl.population.brackets import HalvingPlan
from purerl.population.result import BestMember, Result
from purerl.population.schedule import Schedule
from purerl.population.space import Hyper, Space
from purerl.search.drive import Finished
from purerl.space.labels import variable_of

if TYPE_CHECKING:
    import xarray as xr


class HalvingResult(Result):
    """A search's course: labelled arrays, who reached which rung, the best member.

    Args:
        space: The axes that were searched.
        seeds: Seeds of the searches.
        options: Options that fixed the result, as plain values.
        plan: Rungs and brackets.
        finished: The steps of the search, the final states and numbers about the run.
        out: The folder, if any.

    Attributes:
        plan: Rungs and brackets.
    """

    def __init__(
        self,
        space: Space,
        seeds: Sequence[int],
        options: dict[str, Any],
        plan: HalvingPlan,
        finished: Finished,
        out: Path | None,
    ) -> None:
        self.plan = plan
        super().__init__(space, seeds, options, finished, out)
        if self.states is not None:
            # Members that diverged at the very end did not reach the end.
            kept = self.steps[-1].after.kept
            self.states = jax.tree.map(lambda x: x[kept], self.states)

    @property
    def milestones(self) -> tuple[int, ...]:
        """Updates at which members are judged: the rungs, and some between."""
        return self.plan.milestones

    @cached_property
    def points(self) -> Hyper:
        """Hyperparameters of all members, `[S, N]` each."""
        shape = (len(self.seeds), self.plan.size)
        hyper = self.space.draws(self.plan.size, self.seeds)
        return {name: values.reshape(shape) for name, values in hyper.items()}

    @cached_property
    def dataset(self) -> "xr.Dataset":
        """Points by rung: scores, hyperparameters, how far each was trained.

        `score` is `(seed, point, rung)`, NaN where a member was dropped before;
        hyperparameters, `trained_updates` and `diverged_at` (NaN: never) are `(seed,
        point)`; training metrics are `(seed, point, segment)`. Coordinates: `bracket`
        of a point, `updates` of a rung.
        """
        import xarray as xr

        dims = ("seed", "point")
        variables: dict[str, Any] = {
            name: (dims, self.space.labelled(name, values))
            for name, values in self.points.items()
        }
        trained, diverged_at = self._courses()
        variables["trained_updates"] = (dims, trained)
        variables["diverged_at"] = (dims, diverged_at)
        scores = [
            self._filled(step.before.alive, step.after.score)
            for step in self.steps
            if step.request.until in self.plan.rungs
        ]
        empty = np.empty((len(self.seeds), self.plan.size, 0))
        stacked = np.stack(scores, -1) if scores else empty
        variables["score"] = ((*dims, "rung"), stacked)
        for name in self.train_names():
            rows = [
                self._filled(step.before.alive, step.outcome.train[name])
                for step in self.steps
            ]
            variable = variable_of(name, self.space.axes)
            variables[variable] = ((*dims, "segment"), np.concatenate(rows, -1))
        coords = {
            "seed": list(self.seeds),
            "bracket": ("point", self.plan.bracket_of()),
            "updates": ("rung", list(self.plan.rungs[: len(scores)])),
        }
        return xr.Dataset(variables, coords=coords)

    def best(self, seed: int | None = None) -> BestMember:
        """Return the member with the best score at the end.

        Args:
            seed: The seed of the search; the best of all searches where not given.

        Raises:
            ConfigError: the search was stopped, or none of its members got to the end.
        """
        states = self.final_states()
        last = self.steps[-1].after
        scores = np.full(len(self.seeds) * self.plan.size, np.nan)
        scores[last.alive] = last.score[last.kept]
        index = self.best_place(scores, self.plan.size, seed)
        number, point = divmod(index, self.plan.size)
        numbers = {name: float(v[number, point]) for name, v in self.points.items()}
        hyper = self.space.values(numbers)
        row = int(np.flatnonzero(last.alive == index)[0])
        return BestMember(
            seed=self.seeds[number],
            member=point,
            score=float(scores[index]),
            point=hyper,
            config=self.space.config_at(hyper),
            schedule=Schedule((0,), (hyper,)),
            lineage=np.full(len(self.steps), point),
            state=jax.tree.map(lambda x: x[row], states),
        )

    def _courses(self) -> tuple[np.ndarray, np.ndarray]:
        """Updates that each member was trained, and at which it diverged."""
        trained = np.zeros(len(self.seeds) * self.plan.size)
        diverged = np.full(len(trained), np.nan)
        for step in self.steps:
            alive, at = step.before.alive, step.outcome.diverged_at
            trained[alive] = step.request.until
            diverged[alive[at >= 0]] = at[at >= 0]
        shape = (len(self.seeds), self.plan.size)
        return trained.reshape(shape).astype(int), diverged.reshape(shape)

    def _filled(self, alive: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Values of those alive `[A, ...]` among all, `[S, N, ...]`."""
        shape = (len(self.seeds) * self.plan.size, *values.shape[1:])
        filled = np.full(shape, np.nan)
        filled[alive] = values
        return filled.reshape(len(self.seeds), self.plan.size, *values.shape[1:])
