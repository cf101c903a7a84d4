"""The result of an evolution: a solution, a loss, a curve; and its folder.

config.yaml      the config that members start from, for people
manifest.json    what is evolved and how, lanes, versions, device
checkpoints/     the last two states: strategy, best member, history
snapshots/       the solution every few generations
learned.yaml     the config with the solution in it; and value_loss.npz,
                 optimiser.npz, ...
summary.json     what all generations have cost

Every file is written atomically and none is pickled.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import serialise
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig, apply_overrides, part_kind
from purerl.execution.format import say, with_noun
from purerl.meta.genome import Genome
from purerl.meta.strategy import Optimiser, read_strategy
from purerl.optimisers import LearnedOptimiser
from purerl.report import plots
from purerl.report.shown import Shown, View, stated
from purerl.runner import manifest
from purerl.runner.arguments import stored_folder
from purerl.runner.result import Best
from purerl.runner.trackers import Member, TrackedRun
from purerl.runner.trackers.base import files_of, name_of
from purerl.runner.trackers.group import Group, Told
from purerl.search.fitness import sign_of
from purerl.storage import checkpoint, folders
from purerl.storage.folders import FIELD, differences
from purerl.types import HostMetrics, Overrides, PyTree

KIND = "evolution"
# Files written by a program that lays them out otherwise are not read.
FORMAT = 1
KEEP = 2


class State(NamedTuple):
    """The state that going on needs beside the settings. `G` generations, on the host.

    Attributes:
        done: The number of finished generations, int32 `[]`.
        strategy: The state of the strategy, before generation `done`.
        best: The vector of the best member so far, `[D]`.
        best_fitness: The fitness of the best member so far, `[]`; NaN before the first.
        best_generation: The generation of the best member so far, int32 `[]`; -1 before
            the first.
        anchors: The returns of each environment that count 0 and 1, `[E, 2]`.
        fitness: The worth of the members, `[G, P]`; NaN where a member failed, and from
            `done` on.
        returns: The mean return over members and rollouts that did not fail, `[G, E]`;
            negated where the fitness is.
        sigma: The strategy's sigma when it asked, `[G]`.
        seconds: Seconds that each generation took, `[G]`.
    """

    done: np.ndarray
    strategy: PyTree
    best: np.ndarray
    best_fitness: np.ndarray
    best_generation: np.ndarray
    anchors: np.ndarray
    fitness: np.ndarray
    returns: np.ndarray
    sigma: np.ndarray
    seconds: np.ndarray


HISTORY = ("fitness", "returns", "sigma", "seconds")


def open_folder(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Start an evolution's folder, or go on with it; return the manifest that holds.

    A stored one's lanes win, and its `generations` may grow.

    Raises:
        ConfigError: see `purerl.storage.folders.open_folder`.
    """

    def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
        parts = {"config": FIELD, "settings": FIELD}
        free = ("auto", "generations", "evosax", "options")
        found = differences(stored, new, parts, free=free)
        # Equal mappings may have another order, which is that of the vector's numbers.
        before, now = (list(spec["settings"]["evolve"]) for spec in (stored, new))
        if before != now and set(before) == set(now):
            found.append(f"the order of evolve is {before} there and {now} here")
        return found

    def merge(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        generations = max(new["generations"], stored["generations"])
        return {**stored, "options": new["options"], "generations": generations}

    parts = "checkpoints", "snapshots"
    return folders.open_folder(folder, spec, *parts, compare=compare, merge=merge)


def fresh_state(
    optimiser: Optimiser, key: Any, generations: int, environments: int
) -> State:
    """Return the state before the first generation; its anchors are not known yet.

    Args:
        optimiser: The strategy over the genome.
        key: The key of the strategy's first state, consumed.
        generations: The number of generations of the whole evolution, G.
        environments: The number of environments, E.
    """
    nan = np.array(np.nan, np.float32)
    return State(
        done=np.array(0, np.int32),
        strategy=optimiser.init(key),
        best=optimiser.genome.start(),
        best_fitness=nan,
        best_generation=np.array(-1, np.int32),
        anchors=np.full((environments, 2), nan),
        fitness=np.full((generations, optimiser.population), nan),
        returns=np.full((generations, environments), nan),
        sigma=np.full(generations, nan),
        seconds=np.full(generations, nan),
    )


def with_generation(
    state: State, vectors: np.ndarray, scores: np.ndarray, returns: np.ndarray
) -> State:
    """Return the state with a generation's scores in its history, and the best member.

    Args:
        state: The state before the generation.
        vectors: Vectors of the generation's members, `[P, D]`.
        scores: The worth of the members, `[P]`; NaN where they failed.
        returns: Returns of the members' runs, `[E, P, R]`.
    """
    number = int(state.done)
    state = state._replace(
        done=np.array(number + 1, np.int32),
        fitness=state.fitness.copy(),
        returns=state.returns.copy(),
        sigma=state.sigma.copy(),
        seconds=state.seconds.copy(),
    )
    state.fitness[number] = scores
    known = np.isfinite(returns)
    total = np.where(known, returns, 0.0).sum((1, 2), dtype=float)
    count = known.sum((1, 2))
    state.returns[number] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    if not np.isfinite(scores).any():
        return state
    best = int(np.nanargmax(scores))
    if state.best_fitness >= scores[best]:  # False for NaN: there was none before.
        return state
    return state._replace(
        best=vectors[best].copy(),
        best_fitness=np.array(scores[best], np.float32),
        best_generation=np.array(number, np.int32),
    )


def save(folder: Path, state: State) -> None:
    """Write a state; a reader sees all of it or nothing.

    Raises:
        NotSavedError: see `purerl.storage.checkpoint.save`.
    """
    # A checkpoint holds members; an evolution is one.
    tree = jax.tree.map(lambda x: np.asarray(x)[None], state._asdict())
    checkpoint.save(folder / "checkpoints", int(state.done), tree, KEEP)


def restore(folder: Path, like: State) -> State | None:
    """Return the last state that was saved; None if there is none.

    Args:
        like: A fresh state: structure, and the number of generations.

    Raises:
        ConfigError: it is damaged, or of another config.
    """
    checkpoints = folder / "checkpoints"
    if not checkpoint.steps(checkpoints):
        return None
    _, flat = checkpoint.restore(checkpoints)
    for name in HISTORY:  # More generations may be asked for than when it was written.
        known, all_of_them = flat.get(f"['{name}']"), getattr(like, name)
        if known is not None:
            missing = all_of_them[None, known.shape[1] :]
            flat[f"['{name}']"] = np.concatenate([known, missing], 1)
    found = checkpoint.unflatten(flat, like._asdict(), checkpoints)
    return State(**jax.tree.map(lambda x: x[0], found))


def save_snapshot(folder: Path, generation: int, vector: np.ndarray) -> None:
    """Write the solution `[D]` after a number of generations."""
    tree = {"vector": vector}
    checkpoint.save(folder / "snapshots", generation, tree, keep=sys.maxsize)


def load_snapshots(folder: Path) -> dict[int, np.ndarray]:
    """Return solutions by number of finished generations.

    Raises:
        ConfigError: one is damaged.
    """
    snapshots = folder / "snapshots"
    return {
        step: checkpoint.restore(snapshots, step)[1]["['vector']"]
        for step in checkpoint.steps(snapshots)
    }


class EvolutionResult(Shown):
    """The outcome of `purerl.evolve`, or of what there is of it.

    Args:
        config: The config that the population started from.
        settings: Settings of the evolution, what is evolved and how, as plain values.
        optimiser: The strategy over the genome.
        state: The state after the last generation.
        out: The folder, if any.
        summary: Numbers about how the evolution was run.

    Attributes:
        config: The config that the population started from.
        settings: Settings of the evolution, what is evolved and how, as plain values.
        generations: The number of generations that were asked for.
        done: The number of generations that are finished.
        best_fitness: The fitness of the best member so far.
        best_generation: The generation of the best member so far, counted from 0; -1
            before any.
        out: The folder, if any.
        summary: Numbers about how the evolution was run. All but `generations_run` and
            `compile_seconds`, which are those of the call, are of all generations.
    """

    def __init__(
        self,
        config: TrainConfig,
        settings: dict[str, Any],
        optimiser: Optimiser,
        state: State,
        out: Path | None = None,
        summary: dict[str, Any] | None = None,
    ) -> None:
        self.config, self.settings, self.out = config, settings, out
        self.generations, self.done = len(state.fitness), int(state.done)
        self.best_fitness = float(state.best_fitness)
        self.best_generation = int(state.best_generation)
        self.summary = dict(summary or {})
        self._optimiser, self._state = optimiser, state

    @property
    def finished(self) -> bool:
        """True if every generation has been evaluated."""
        return self.done >= self.generations

    @cached_property
    def history(self) -> HostMetrics:
        """By generation, `[done]`: `best`, `mean`, `std`, `best_so_far`, `failed`, ...

        Also `fitness` `[done, P]`, `returns` `[done, E]`, `sigma` and `seconds`. A
        generation in which every member failed has NaN.
        """
        return history_of(self._state, str(self.settings["fitness"]))

    @cached_property
    def solution(self) -> Overrides:
        """The learned values by name: the distribution's mean, where there is one.

        A strategy with a population instead has its best member here. The mean is what
        the published evolutions keep: the best of many noisy evaluations is partly
        luck.
        """
        return self._optimiser.genome.solution(self.vector)

    def best(self) -> Best:
        """Return the best member of any generation: values by name, fitness, config.

        Of many noisy members the best is partly luck; `learned` is the solution.

        Raises:
            ConfigError: no member has been worth anything yet.
        """
        if not np.isfinite(self._state.best_fitness):
            raise ConfigError("no member of the evolution has a fitness yet.")
        parts = self._optimiser.genome.solution(self._state.best)
        fitness = float(self._state.best_fitness)
        return Best(dict(parts), fitness, _applied(self.config, parts))

    @property
    def start(self) -> dict[str, Any]:
        """The values that the config had before, by name."""
        return dict(self._optimiser.genome.values)

    @property
    def vector(self) -> np.ndarray:
        """The solution as the strategy sees it, `[D]`."""
        mean = self._optimiser.mean(self._state.strategy)
        return mean if mean is not None else self._state.best

    @property
    def learned(self) -> TrainConfig:
        """The config with the solution in it: train with it as with any other."""
        return _applied(self.config, self.solution)

    @property
    def rule(self) -> Any:
        """The learned rule of `purerl.LPGConfig`.

        Raises:
            ConfigError: no rule was evolved.
        """
        return self._only("rule")

    @property
    def loss(self) -> Any:
        """The learned loss.

        Raises:
            ConfigError: no loss was evolved, or two were (see `learned`).
        """
        return self._only("loss")

    def _only(self, kind: str) -> Any:
        parts = self.parts(kind)
        if len(parts) != 1:
            raise ConfigError(
                f"not one {kind} was evolved, but {', '.join(self.solution)}; what was "
                "learned is in result.solution and result.learned."
            )
        return next(iter(parts.values()))

    def parts(self, *kinds: str) -> dict[str, Any]:
        """Return learned parts of some kinds, such as `loss`, by the field's name."""
        # Terms beside a loss are neither drawn nor files of their own.
        fields = sorted({n.split(".")[0] for n in self.solution} - {"extra_loss"})
        learned = self.learned
        return {n: getattr(learned, n) for n in fields if part_kind(n) in kinds}

    def snapshots(self) -> dict[int, TrainConfig]:
        """Return the config after some numbers of generations, from the folder.

        Raises:
            ConfigError: there is no folder, or a file in it is damaged.
        """
        if self.out is None:
            raise ConfigError("snapshots are in the out folder, and none was given.")
        solution = self._optimiser.genome.solution
        return {
            generation: _applied(self.config, solution(vector))
            for generation, vector in load_snapshots(self.out).items()
        }

    def save(self, folder: Path) -> None:
        """Write `learned.yaml`, and each evolved loss, optimiser and rule as `.npz`."""
        serialise.to_yaml(self.learned, folder / "learned.yaml")
        for name, part in self.parts(*serialise.IN_FILES).items():
            serialise.save_part(part, folder / f"{name}.npz")

    def view(self) -> View:
        """Return what the evolution tells of itself."""
        settings, history = self.settings, self.history
        done = f"{self.done:,} of {with_noun(self.generations, 'generation')} of "
        done += f"{settings['population']:,} x {settings['rollouts']:,} agents"
        facts = [stated(self.finished, done, self.out)]
        if self.done:
            facts.append(
                f"fitness ({settings['fitness']}): mean {history['mean'][-1]:,.4g}, "
                f"best {history['best'][-1]:,.4g}; in the first generation mean "
                f"{history['mean'][0]:,.4g}"
            )
        env, tasks = self.config.env, settings["environments"] or [{}]
        places = [serialise.env_name(task.get("env", env)) for task in tasks]
        evolved = ", ".join(settings["evolve"])
        return View(
            f"{evolved} in {', '.join(dict.fromkeys(places))}",
            facts,
            lambda ax=None: plots.evolution_curve(history, settings, ax),
            self._columns,
        )

    def _columns(self) -> dict[str, np.ndarray]:
        """Fitness and its spread by generation."""
        rows = {n: x for n, x in self.history.items() if np.ndim(x) == 1}
        return {"generation": np.arange(1, self.done + 1), **rows}

    def pictures(self) -> dict[str, plots.Picture]:
        """Draw every loss and every learned optimiser that was evolved, by field."""
        losses, optimisers = self.parts("loss"), self.parts("optimiser")
        return {name: plots.loss_figure(loss) for name, loss in losses.items()} | {
            name: plots.optimiser_figure(optimiser)
            for name, optimiser in optimisers.items()
            if isinstance(optimiser, LearnedOptimiser)
        }

    def plot_loss(self) -> plots.Picture:
        """Draw the learned loss: beside the squared error, or as a drift beside PPO's.

        Raises:
            ConfigError: no loss was evolved, or two were.
        """
        return plots.loss_figure(self.loss)


def history_of(state: State, fitness_kind: str) -> HostMetrics:
    """Return numbers by generation, see `EvolutionResult.history`.

    Args:
        state: The state of an evolution.
        fitness_kind: The kind of its fitness, which may be a negative one.
    """
    rows = slice(0, int(state.done))
    fitness = state.fitness[rows].astype(float)
    with warnings.catch_warnings():  # A generation in which all failed has NaN.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean, std = np.nanmean(fitness, 1), np.nanstd(fitness, 1)
    best = np.fmax.reduce(fitness, axis=1)
    return {
        "best": best,
        "mean": mean,
        "std": std,
        "best_so_far": np.fmax.accumulate(best),
        "failed": np.isnan(fitness).sum(1),
        "fitness": fitness,
        "returns": sign_of(fitness_kind) * state.returns[rows],
        "sigma": state.sigma[rows],
        "seconds": state.seconds[rows],
    }


def _applied(config: TrainConfig, solution: Overrides) -> TrainConfig:
    """The config with plain numbers where the solution has numbers."""

    def number(x: Any) -> Any:
        return float(x) if np.ndim(x) == 0 else np.asarray(x)

    return apply_overrides(config, jax.tree.map(number, solution))


def load_evolution(
    folder: str | Path, config: TrainConfig | None = None
) -> EvolutionResult:
    """Read an evolution's folder, finished or not.

    Args:
        folder: The folder of the evolution.
        config: The config that the evolution was started from, where no file can hold
            it.

    Raises:
        ConfigError: it holds no evolution, nothing has been saved yet, or it is
            damaged.
    """
    folder = stored_folder(folder)
    stored = folders.load_kind(folder, KIND, FORMAT)
    reader = "load_evolution"
    config, is_whole = manifest.read_or_stand_in(folder, stored, reader, config)
    settings = stored["settings"]
    genome = Genome(config, resolve_env(config), settings["evolve"])
    strategy = read_strategy(settings["strategy"])
    optimiser = Optimiser(strategy, genome, settings["population"])
    with folders.keys_of(stored):
        like = fresh_state(
            optimiser,
            jax.random.key(settings["seed"]),
            stored["generations"],
            max(1, len(settings["environments"])),
        )
    state, numbers = restore(folder, like), folders.read_summary(folder)
    if state is None:
        folders.refuse_lost_checkpoints(folder)
        raise ConfigError(f"nothing has been saved in {folder} yet.")
    if int(state.done) < numbers.get("generations", 0):
        raise ConfigError(
            f"{folder / 'checkpoints'} ends with generation {int(state.done):,}, and "
            f"{folder / folders.SUMMARY} with {numbers['generations']:,}: put back a "
            "checkpoint, or go on with the evolution, which computes the rest again."
        )
    if not is_whole:
        config = config.replace(env=serialise.env_name(stored["config"]["env"]))
    return EvolutionResult(config, settings, optimiser, state, folder, numbers)


# What trackers are told: a row per generation, which is a step of every chart.


def told(
    config: TrainConfig,
    settings: Mapping[str, Any],
    folder: Path | None,
    state: State,
    steps: int,
    environments: Sequence[str],
) -> Told:
    """Return what trackers are told of an evolution.

    Args:
        config: The config that members start from.
        settings: Settings of the evolution, as plain values.
        folder: The folder of the evolution, if it writes one.
        state: The state after the last generation that is done.
        steps: Environment steps of a generation.
        environments: Names of the environments.
    """
    seed = int(settings["seed"])
    run = TrackedRun(
        name=name_of(folder, KIND),
        config={**serialise.to_dict(config), "evolution": settings},
        members={seed: Member("evolution", seed, {})},
        folder=folder,
        axis="generation",
        kind=KIND,
    )
    return Told(run, None, lambda g: tell(g, state, settings, steps, environments))


def tell(
    group: Group,
    state: State,
    settings: Mapping[str, Any],
    steps: int,
    environments: Sequence[str],
    first: int = 0,
) -> None:
    """Tell trackers a row for every generation that is done, after the first `first`.

    `env_steps` are those of all agents so far; `return/<environment>` is the mean over
    members and rollouts. `sigma` is left out where the strategy has none.

    Args:
        group: The trackers.
        state: The state after the last generation that is done.
        settings: Settings of the evolution, as plain values.
        steps: Environment steps of a generation.
        environments: Names of the environments.
        first: The number of generations that are left out.
    """
    history = history_of(state, str(settings["fitness"]))
    names = ["best", "mean", "std", "best_so_far", "failed", "seconds"]
    if np.isfinite(history["sigma"]).any():
        names.append("sigma")
    for number in range(first, int(state.done)):
        done, returns = number + 1, history["returns"][number].tolist()
        row = {
            **{"kind": KIND, "update": done, "generation": done},
            "env_steps": done * steps,
            **{name: history[name][number].item() for name in names},
            **{f"return/{n}": x for n, x in zip(environments, returns, strict=True)},
        }
        group.tell([(int(settings["seed"]), row)])


def tracked_files(
    result: EvolutionResult, notify: Callable[[str], None], drawn: Path
) -> dict[str, Path]:
    """Return the learned part, the files it was started with, and pictures, by name.

    Args:
        result: The result of the evolution.
        notify: A function that prints a sentence for people.
        drawn: A folder to write into.
    """
    if not result.done:
        return {}
    result.save(drawn)
    files = {f"{KIND}/{path.name}": path for path in sorted(drawn.iterdir())}
    started = (folders.CONFIG, folders.MANIFEST)
    files |= files_of(result.out, **{KIND: started})(drawn)
    try:
        for name, figure in {"evolution": result.plot(), **result.pictures()}.items():
            path = plots.save(figure, drawn / f"{name}.png")
            files[f"figures/{path.name}"] = path
    except Exception as error:  # A picture is not worth an evolution.
        notify(f"the pictures could not be drawn ({error}).")
    return files


def told_of_evolution(folder: Path) -> Told:
    """Return what trackers are told of an evolution's folder.

    What comes after the last checkpoint is told when the evolution goes on.

    Raises:
        ConfigError: nothing has been saved.
    """
    result, stored = load_evolution(folder), folders.load(folder)
    about = result.config, result.settings, folder, result._state
    return told(*about, stored["steps"], list(stored["auto"]))._replace(
        total=result.done,
        files=partial(tracked_files, result, say),
        is_finished=result.finished,
    )
