"""What searches over hyperparameters share: options, scores, requests, results."""

import abc
import contextlib
import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np

from purerl import serialise
from purerl.config import ConfigError, TrainConfig
from purerl.execution.curves import weighted_mean
from purerl.execution.format import with_noun
from purerl.execution.memory import require_listing
from purerl.execution.programs import Members
from purerl.population.schedules import ConfigSchedule
from purerl.population.space import Hyper, Space, evaluation_keys, member_keys
from purerl.report.plots import Picture
from purerl.report.shown import Shown, View, stated
from purerl.runner import manifest
from purerl.runner.arguments import check_seeds, num_seeds, stored_folder
from purerl.runner.options import FIXED, Saved, seeds_option
from purerl.runner.trackers.group import Told
from purerl.scale.devices import default_lanes, make_workers
from purerl.scale.host import to_device
from purerl.search import fitness as kinds
from purerl.search.protocol import (
    FORMAT,
    Finished,
    Outcome,
    Request,
    Row,
    Search,
    Step,
    restore,
    told,
)
from purerl.space.axes import axes_option, from_dict, in_a_line, variable_of
from purerl.storage import folders
from purerl.storage.folders import keys_of
from purerl.sweeps.groups import check_axes
from purerl.train import make_policy
from purerl.types import Array, PyTree

KINDS = (kinds.FINAL_RETURN, kinds.EVALUATION)


@dataclasses.dataclass(frozen=True)
class SearchOptions(Saved):
    """Options of every search over hyperparameters."""

    config: TrainConfig
    axes: Mapping[str, Any] = axes_option(
        "Dynamic field that the search varies, NAME=VALUES; may be repeated: "
        "learning_rate=loguniform(1e-5,1e-2); gamma=uniform(0.9,0.999); "
        "entropy_coef=0,0.01,0.1.",
        "Distributions by (dotted) name of the dynamic field: `purerl.loguniform`, "
        "`purerl.uniform`, `purerl.choice`, or a list of values (see "
        "`purerl.population.space.perturb` for how each moves).",
    )
    _: dataclasses.KW_ONLY
    searches: int | Sequence[int] = seeds_option(
        1, "Number of searches, independent of one another.", name="searches"
    )


def judged_by(default: str) -> Any:
    """Return the option of the kind of fitness by which members are compared."""
    return kinds.fitness_option(
        default,
        KINDS,
        "Score that members are compared by: final_return (of planned evaluations if "
        "there are any, else of training), evaluation (of eval_episodes fresh "
        "episodes, the same ones for all members of a search), or a function of your "
        "own, package.module:function.",
        keep=FIXED,
    )


class Fitness(NamedTuple):
    """Scores of members, `[...]` each.

    Attributes:
        score: The score of each member, greater is better; NaN where nothing is known,
            or where the member diverged.
        diverged: Whether a number of the member was not finite after the milestone
            before.
    """

    score: np.ndarray
    diverged: np.ndarray


def measure(outcome: Outcome, kind: str) -> Fitness:
    """Return the fitness of members at a milestone.

    Args:
        outcome: The outcome since the milestone before, of `[N]` members.
        kind: The kind of fitness. `evaluation`: fresh episodes of the deterministic
            policy, the same ones for all members of a search. `final_return`: the last
            evaluation that the config planned in the outcome; else the mean return of
            the episodes that ended in training, or the last known one where none did.
    """
    is_played = False  # An evaluation always has a return: none is a bad sign.
    if outcome.score is not None:
        score = outcome.score
    elif kind == kinds.EVALUATION and (fresh := outcome.fresh) is not None:
        score, is_played = fresh.episode_return.astype(np.float64), True
    elif kind == kinds.EVALUATION:
        score = np.full(len(outcome.diverged), np.nan)  # Nobody was judged.
    elif "episode_return" in outcome.evaluation:
        returns, is_played = outcome.evaluation["episode_return"][:, -1], True
        score = returns.mean(-1, dtype=np.float64)
    else:
        # Nothing is counted of a member that has diverged.
        episodes = np.nan_to_num(outcome.train["episodes"].astype(np.float64))
        returns = outcome.train["episode_return"]
        has_new = episodes.any(1)
        score = np.where(has_new, weighted_mean(returns, episodes), returns[:, -1])
    diverged = outcome.diverged | (is_played & ~np.isfinite(score))
    return Fitness(np.where(diverged, np.nan, score), diverged)


def ranking(fitness: Fitness) -> np.ndarray:
    """Return places in an array `[P]`, the best first.

    Those of whom nothing is known come after the others, the diverged ones last. Equals
    are ranked by their number: the same input has one ranking.
    """
    status = np.where(fitness.diverged, 2, np.where(np.isnan(fitness.score), 1, 0))
    score = np.where(status == 0, fitness.score, 0.0)
    return np.lexsort((np.arange(len(score)), -score, status))


class PopulationState(NamedTuple):
    """The state of a search, of `S` searches with `N` members each.

    Attributes:
        number: The number of milestones that have been passed.
        hyper: Hyperparameters of all members in the next request by name, `[S N]`.
        alive: Numbers of the members that go on, ascending, `[A]`.
        parents: Rows among the members before of those whose state each of them goes on
            with, `[A]`.
        score: Scores at the last milestone of the members that reached it; NaN where
            nothing is known.
        diverged: Whether each member that reached it met a number that was not finite.
    """

    number: int
    hyper: Hyper
    alive: np.ndarray
    parents: np.ndarray
    score: np.ndarray
    diverged: np.ndarray


class PopulationSearch(abc.ABC):
    """A search over hyperparameters: its requests, and its use of their outcomes.

    Args:
        space: The axes that are searched, and the config.
        seeds: The seeds, one search each.
        options: The options that fix the result, by name.
        size: The number of members of a search, N.
        milestones: The updates at which something is recorded; the last is the end.
        judged: Those at which members are judged, all of them where not given.

    Attributes:
        search_of: The seed of every member's search, `[S N]`.
        everyone: The numbers of all members, `[S N]`.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        space: Space,
        seeds: tuple[int, ...],
        options: Mapping[str, Any],
        size: int,
        milestones: tuple[int, ...],
        judged: Container[int] | None = None,
    ) -> None:
        self.space, self.seeds, self.options = space, seeds, dict(options)
        self.size, self.milestones = size, milestones
        self.judged = milestones if judged is None else judged
        self.search_of = np.repeat(np.asarray(seeds), size)
        self.everyone = np.arange(len(self.search_of))

    @cached_property
    def search(self) -> Search:
        """The search that `purerl.search.protocol` carries out."""
        bound = self.space.bound
        spans = np.diff(self.milestones, prepend=0) * bound.plan.steps_per_update
        trained = [self.trained(until) for until in self.milestones]
        kind = self.options["fitness"]

        def score(outcome: Outcome) -> np.ndarray:
            return kinds.own_scores(kind, outcome.train, outcome.evaluation)

        return Search(
            kind=self.kind,
            bound=bound,
            spec={
                "config": serialise.to_dict(self.space.config),
                "auto": bound.automatic,
                "axes": self.space.to_dict(),
                "options": self.options,
                "seeds": list(self.seeds),
            },
            steps=tuple((spans * trained).tolist()),
            lanes=self.lanes(),
            segment_updates=self.milestones[0],
            init=self.init,
            ask=self.ask,
            tell=self.tell,
            score=score if kinds.is_own(kind) else None,
            rows=self.rows,
            names={
                number: f"seed={seed}-member={number % self.size}"
                for number, seed in enumerate(self.search_of)
            },
        )

    @abc.abstractmethod
    def decide(
        self, state: PopulationState, found: Fitness, until: int
    ) -> tuple[Hyper, np.ndarray, np.ndarray]:
        """Return `hyper`, `alive` and `parents` of the state after a milestone."""

    def trained(self, until: int) -> int:
        """Return how many members train up to a milestone, if none diverges."""
        del until
        return len(self.everyone)

    def lanes(self) -> int:
        """Return the width of a block where nobody asks for another one."""
        return default_lanes(len(self.everyone), make_workers())

    def keys(self, state: PopulationState) -> tuple[Array, np.ndarray | None]:
        """Return keys of all members, `[S N]`, and which of them are copies."""
        del state
        return member_keys(self.seeds, self.size), None

    def init(self) -> PopulationState:
        """Return the state before the first request: everyone, at random points."""
        unknown = np.full(len(self.everyone), np.nan)
        hyper = self.space.draws(self.size, self.seeds)
        healthy = np.zeros(len(self.everyone), bool)
        everyone = self.everyone
        return PopulationState(0, hyper, everyone, everyone, unknown, healthy)

    def ask(self, state: PopulationState) -> Request | None:
        """Return the request up to the next milestone; None after the last."""
        number, alive, fresh = state.number, state.alive, None
        if number == len(self.milestones):
            return None
        until = self.milestones[number]
        keys, is_copy = self.keys(state)
        hyper = {name: values[alive] for name, values in state.hyper.items()}
        if self.options["fitness"] == kinds.EVALUATION and until in self.judged:
            fresh = evaluation_keys(self.search_of[alive], number)
        return Request(
            Members(keys[alive], self.space.overrides(hyper)),
            until,
            state.parents if number else None,
            is_copy,
            fresh,
        )

    def tell(
        self, state: PopulationState, request: Request, outcome: Outcome
    ) -> PopulationState:
        """Return the state after a request.

        Raises:
            ConfigError: every member has diverged.
        """
        found, until = measure(outcome, self.options["fitness"]), request.until
        if found.diverged.all():
            raise ConfigError(
                f"every member has diverged by update {until}: narrow the axes, such "
                "as a smaller upper end of learning_rate."
            )
        return PopulationState(
            state.number + 1, *self.decide(state, found, until), *found
        )

    def rows(self, step: Step) -> list[Row]:
        """Return a row for trackers per member: metrics, score, hyperparameters."""
        rows = []
        for row, number in enumerate(step.before.alive.tolist()):
            last = step.outcome.last_row(row)
            hyper = {name: float(x[number]) for name, x in step.before.hyper.items()}
            for name, value in self.space.values(hyper).items():
                if isinstance(value, int | float):
                    last[f"hyper_{name}"] = value
            if np.isfinite(step.after.score[row]):
                last["score"] = float(step.after.score[row])
            rows.append((number, last))
        return rows


def read(
    asked: SearchOptions, fitness: str, size: int, config: TrainConfig | None = None
) -> tuple[Space, tuple[int, ...]]:
    """Return the space of a search and the seeds of its searches, checked.

    Args:
        asked: The options.
        fitness: The kind of fitness, or the import path of a function.
        size: Members of a search at the least, whose states are all held.
        config: The config, where it is not that of the options.

    Raises:
        ConfigError: an axis that is static or that nothing reads, a fitness that fails,
            or more members than the memory holds.
    """
    space = Space(config or asked.config, asked.axes)
    check_axes([space.group], space.axes)
    kinds.check_own(fitness, space.bound)
    agents = size * num_seeds(asked.searches)
    require_listing(agents, space.config.total_timesteps)
    return space, check_seeds(asked.searches, "searches")


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
    schedule: ConfigSchedule
    lineage: np.ndarray
    state: PyTree

    def policy(self) -> Callable[..., Any]:
        """Return the member's policy (see `purerl.make_policy`)."""
        return make_policy(self.config, to_device(self.state))


def ancestors(parents: np.ndarray, member: int) -> np.ndarray:
    """Return the members whose milestones led to the state that `member` ends with.

    Args:
        parents: Parents after every milestone, `[M, N]`.
        member: The number of the member after the last one.

    Returns:
        `[M]`, the member that trained it up to each milestone.
    """
    line = np.empty(len(parents), int)
    for number in reversed(range(len(parents))):
        member = int(parents[number, member])
        line[number] = member
    return line


class Result(Shown):
    """The result of a search over hyperparameters: the course of every member.

    Args:
        search: The search.
        finished: The steps of the search, the final states and numbers about the run.
        out: The folder, if any.

    Attributes:
        search: The search.
        space: The axes that were searched.
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

    dataset: Any  # Everything, as labelled arrays.

    def __init__(
        self, search: PopulationSearch, finished: Finished, out: Path | None
    ) -> None:
        self.search, self.space, self.seeds = search, search.space, search.seeds
        self.options, self.size = search.options, search.size
        self.milestones, self.config = search.milestones, search.space.config
        self.steps, self.states, self.out = finished.steps, finished.states, out
        if self.states is not None:
            # Members that diverged at the very end did not reach the end.
            kept = self.steps[-1].after.parents
            if len(kept) < self.steps[-1].request.members.size:
                self.states = jax.tree.map(lambda x: x[kept], self.states)
        self.summary: dict[str, Any] = finished.numbers | {
            "training_steps": self.training_steps,
            "evaluation_steps": self.evaluation_steps,
        }

    def view(self) -> View:
        """Return what the search tells of itself."""
        searches = with_noun(len(self.seeds), "search", "searches")
        done = f"{len(self.steps):,} of {len(self.milestones):,} milestones, "
        done += f"{searches} of {with_noun(self.size, 'member')}"
        facts = [stated(self.finished, done, self.out)]
        with contextlib.suppress(ConfigError):  # Not at the end, or all diverged.
            best = self.best()
            facts.append(f"best: {in_a_line(best.point)}; score {best.score:,.4g}")
        env = self.space.bound.env.name
        title = f"{', '.join(self.space.axes)} in {env}"
        return View(title, facts, self.draw, self.columns, "score")

    @abc.abstractmethod
    def draw(self, ax: Any = None) -> Picture:
        """Draw the scores of all members."""

    @abc.abstractmethod
    def columns(self) -> Any:
        """Return the columns of the table."""

    def lineage(self, seed: int, member: int) -> np.ndarray:
        """Return the members `[M]` that trained, by step, what `member` ended with."""
        return ancestors(self.parents()[self.places(seed)[0]], member)

    def schedule(self, seed: int, member: int) -> ConfigSchedule:
        """Return the hyperparameters that led to a member's final state.

        `purerl.train_schedules(config, result.schedule(seed, member), seeds=8)` trains
        with it again.
        """
        line = self.lineage(seed, member)
        offset = self.places(seed)[0] * self.size
        values = []
        for step, who in zip(self.steps, line, strict=True):
            hyper = step.before.hyper.items()
            numbers = {name: float(x[offset + int(who)]) for name, x in hyper}
            values.append(self.space.values(numbers))
        starts = (0, *self.milestones[: len(self.steps) - 1])
        return ConfigSchedule(starts, tuple(values))

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
        last, searches = self.steps[-1].after, self.places(seed)
        # In the order of `states`, of those that reached the end.
        scores, places = last.score[last.parents].tolist(), last.alive.tolist()
        known = [
            row
            for row, place in enumerate(places)
            if place // self.size in searches and np.isfinite(scores[row])
        ]
        if not known:
            raise ConfigError("no member of the search has a score at the end.")
        row = max(known, key=scores.__getitem__)  # the first of equals
        number, member = divmod(places[row], self.size)
        schedule = self.schedule(self.seeds[number], member)
        point = schedule.values[-1]
        return BestMember(
            seed=self.seeds[number],
            member=member,
            score=scores[row],
            point=point,
            config=self.space.config_at(point),
            schedule=schedule,
            lineage=self.lineage(self.seeds[number], member),
            state=jax.tree.map(lambda x: x[row], self.states),
        )

    def best_of_each(self) -> list[BestMember]:
        """Return the best member of each search that has one, once it has ended."""
        found = []
        for seed in self.seeds if self.finished else ():
            with contextlib.suppress(ConfigError):  # All of its members diverged.
                found.append(self.best(seed))
        return found

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

    def at_milestones(self, read: Callable[[Step], np.ndarray]) -> np.ndarray:
        """Return a number of each member at each milestone, `[S, M, N]`.

        Args:
            read: Reads it, for the members that a step trained; others have NaN.

        Raises:
            ConfigError: no milestone has been reached.
        """
        if not self.steps:
            raise ConfigError("the search has not ended a round yet.")
        return np.stack([self.by_member(step, read(step)) for step in self.steps], 1)

    def hyper(self, name: str) -> np.ndarray:
        """Return a hyperparameter up to each milestone, `[S, M, N]`, as it is shown."""
        numbers = self._split([step.before.hyper[name] for step in self.steps])
        return self.space.labelled(name, numbers)

    def parents(self) -> np.ndarray:
        """Return whose state each member has after each milestone, `[S, M, N]`."""
        rows = np.tile(np.arange(len(self.search.everyone)), (len(self.steps), 1))
        for row, step in zip(rows, self.steps, strict=True):
            row[step.after.alive] = step.before.alive[step.after.parents]
        return self._split(rows) % self.size

    def _split(self, rows: Any) -> np.ndarray:
        """Rows `[M, S N]` by search, `[S, M, N]`."""
        shape = len(self.steps), len(self.seeds), self.size
        return np.reshape(rows, shape).swapaxes(0, 1)

    def by_member(self, step: Step, values: np.ndarray) -> np.ndarray:
        """Return values of the members that a step trained, `[S, N, ...]`; else NaN."""
        shape, alive = (len(self.seeds), self.size), step.before.alive
        if len(alive) < self.size * len(self.seeds):
            known = values
            values = np.full((np.prod(shape), *known.shape[1:]), np.nan)
            values[alive] = known
        return values.reshape(*shape, *values.shape[1:])

    def train(self) -> dict[str, np.ndarray]:
        """Return training metrics by name in a dataset, `[S, N, segments]`."""
        rows = {
            name: [self.by_member(s, s.outcome.train[name]) for s in self.steps]
            for name in (self.steps[0].outcome.train if self.steps else ())
        }
        return {
            variable_of(name, self.space.axes): np.concatenate(parts, -1)
            for name, parts in rows.items()
        }

    def places(self, seed: int | None) -> list[int]:
        """Return the numbers of the searches that are meant."""
        if seed is None:
            return list(range(len(self.seeds)))
        if seed not in self.seeds:
            raise ConfigError(
                f"there is no search with seed {seed}; seeds are {list(self.seeds)}."
            )
        return [self.seeds.index(seed)]


CLASSES = {
    "pbt": ("PBTSearch", "PBTResult"),
    "halving": ("HalvingSearch", "HalvingResult"),
}


def load_search(folder: str | Path, config: TrainConfig | None = None) -> Result:
    """Read the folder of `purerl.pbt` or `purerl.halving`, also while it runs.

    Args:
        folder: Folder of the search.
        config: Config in place of the stored one, where that names an environment
            object.

    Raises:
        ConfigError: no search there, or a damaged one.
    """
    folder = stored_folder(folder)
    stored = folders.load_kind(folder, tuple(CLASSES), FORMAT)
    found, is_whole = _read(folder, stored, config)
    # What was asked for is asked again, with the keys of then.
    with keys_of(stored):
        steps, states = restore(folder, found.search, with_states=is_whole)
    if not is_whole:
        env = found.space.bound.env.name
        found.space.config = found.space.config.replace(env=env)
    is_finished = len(steps) == len(found.milestones)
    finished = Finished(steps, states if is_finished else None, {})
    return _classes(stored["kind"])[1](found, finished, folder)


def _read(
    folder: Path, stored: dict[str, Any], config: TrainConfig | None = None
) -> tuple[PopulationSearch, bool]:
    """What search a folder holds, and whether its environment is known here."""
    config, is_whole = manifest.read_or_stand_in(folder, stored, "load_search", config)
    space = Space(config, from_dict(stored["axes"]))
    make, _ = _classes(stored["kind"])
    return make(space, tuple(stored["seeds"]), stored["options"]), is_whole


def _classes(kind: str) -> tuple[Any, Any]:
    """The classes of a kind of search and of its result, of the module of its name."""
    module = import_module(f"purerl.population.{kind}")
    return tuple(getattr(module, name) for name in CLASSES[kind])  # type: ignore[return-value]


def told_of_search(folder: Path) -> Told:
    """Return what trackers are told of the folder of a search."""
    stored = folders.load_kind(folder, tuple(CLASSES), FORMAT)
    search = _read(folder, stored)[0].search
    steps, _ = restore(folder, search, with_states=False)
    return told(search, steps, folder, is_whole=True)
