"""The common part of the results of all searches over hyperparameters."""

import abc
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.population.schedules import Schedule
from purerl.population.search import PopulationSearch
from purerl.scale.host import to_device
from purerl.search.drive import Finished
from purerl.storage import folders
from purerl.train import make_policy
from purerl.types import PyTree

if TYPE_CHECKING:
    import xarray as xr


class BestMember(NamedTuple):
    """The best member of a search: what `purerl.runner.result.Best` has, and more.

    Attributes:
        point: The member's hyperparameters at the end, by name.
        score: The member's score at the end. The best of many is favoured by luck:
            judge it afresh.
        config: The config with these hyperparameters.
        seed: The seed of the member's search.
        member: The number of the member in that search.
        schedule: The hyperparameters that led to the member's state, over the updates.
        lineage: The member that trained the state in each round, `[R]`.
        state: The member's final state, on the host.
    """

    point: dict[str, Any]
    score: float
    config: TrainConfig
    seed: int
    member: int
    schedule: Schedule
    lineage: np.ndarray
    state: PyTree

    def policy(self) -> Callable[..., Any]:
        """Return the member's policy (see `purerl.make_policy`)."""
        return make_policy(self.config, to_device(self.state))


class Result(abc.ABC):
    """The base of the results of all searches over hyperparameters.

    Args:
        search: The search.
        finished: The steps of the search, the final states and numbers about the run.
        out: The folder, if any.

    Attributes:
        config: The base config of every member.
        seeds: Seeds of the searches.
        options: Options that fixed the result, as plain values.
        size: Members of a search.
        milestones: Updates at which members are judged; the last is the end.
        steps: Requests, outcomes and decisions, one step for every milestone that was
            reached; see `purerl.search.protocol.Step`.
        states: Final states of the members that reached the end, on the host.
        summary: Numbers about how the search was run.
        out: The folder, if any.
    """

    def __init__(
        self, search: PopulationSearch, finished: Finished, out: Path | None
    ) -> None:
        self.space, self.seeds, self.options = (
            search.space,
            search.seeds,
            search.options,
        )
        self.size, self.milestones = search.size, search.milestones
        self.config, self.out = search.space.config, out
        self.steps, self.states = finished.steps, finished.states
        self.summary: dict[str, Any] = finished.numbers | {
            "training_steps": self.training_steps,
            "evaluation_steps": self.evaluation_steps,
        }

    @property
    @abc.abstractmethod
    def dataset(self) -> "xr.Dataset":
        """Everything, as labelled arrays."""

    @abc.abstractmethod
    def schedule(self, seed: int, member: int) -> Schedule:
        """Return the hyperparameters that led to a member's final state.

        `purerl.train_schedules(config, result.schedule(seed, member), seeds=8)` trains
        with it again.
        """

    @abc.abstractmethod
    def lineage(self, seed: int, member: int) -> np.ndarray:
        """Return the members `[R]` that trained, by step, what `member` ended with."""

    @abc.abstractmethod
    def final_scores(self) -> dict[int, float]:
        """Return the scores of those that reached the end, by place among all.

        They are in the order of `states`; a place is `size` times the number of the
        search, plus the number of the member.
        """

    def written(self) -> Self:
        """Write `summary.json` and the best config beside the records; return this."""
        if self.out is None or not self.finished:
            return self
        steps = ("training_steps", "evaluation_steps")
        facts: dict[str, Any] = {name: self.summary[name] for name in steps}
        with contextlib.suppress(ConfigError):  # All members diverged.
            best = self.best()
            facts |= {
                "best_score": best.score,
                "best_seed": best.seed,
                "best_member": best.member,
                "best": {n: serialise.plain(v, n) for n, v in best.point.items()},
            }
            serialise.to_yaml(best.config, self.out / "best.yaml")
        has_trained = self.summary["trained_requests"] > 0
        folders.write_summary(self.out, facts, self.summary, has_trained)
        return self

    def best(self, seed: int | None = None) -> BestMember:
        """Return the member with the best score at the end.

        Raises:
            ConfigError: the search was stopped, or none of its members got to the end.
        """
        if self.states is None:
            raise ConfigError(
                "the search was stopped before its end; run the same search again to "
                "go on."
            )
        scores, searches = self.final_scores(), self.places(seed)
        known = [
            place
            for place, score in scores.items()
            if place // self.size in searches and np.isfinite(score)
        ]
        if not known:
            raise ConfigError("no member of the search has a score at the end.")
        place = max(known, key=scores.__getitem__)  # the first of equals
        number, member = divmod(place, self.size)
        schedule = self.schedule(self.seeds[number], member)
        row, point = list(scores).index(place), schedule.values[-1]
        return BestMember(
            seed=self.seeds[number],
            member=member,
            score=float(scores[place]),
            point=point,
            config=self.space.config_at(point),
            schedule=schedule,
            lineage=self.lineage(self.seeds[number], member),
            state=jax.tree.map(lambda x: x[row], self.states),
        )

    @property
    def finished(self) -> bool:
        """True if the last milestone was reached."""
        return len(self.steps) == len(self.milestones)

    @property
    def training_steps(self) -> int:
        """Environment steps of training, of all searches together."""
        spans = np.diff(self.milestones, prepend=0)[: len(self.steps)]
        members = [step.request.members.size for step in self.steps]
        per_update = self.space.bound.plan.steps_per_update
        return int((spans * members).sum()) * per_update

    @property
    def evaluation_steps(self) -> int:
        """Environment steps of fresh and of planned evaluations."""
        return sum(step.outcome.evaluation_steps for step in self.steps)

    def train_names(self) -> list[str]:
        """Return the names of the training metrics; none before the first milestone."""
        return list(self.steps[0].outcome.train) if self.steps else []

    def places(self, seed: int | None) -> list[int]:
        """Return the numbers of the searches that are meant."""
        if seed is None:
            return list(range(len(self.seeds)))
        if seed not in self.seeds:
            raise ConfigError(
                f"there is no search with seed {seed}; seeds are {list(self.seeds)}."
            )
        return [self.seeds.index(seed)]
