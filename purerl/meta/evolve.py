"""purerl.evolve: evolve a loss, hyperparameters or the environment's physics.

A generation asks the strategy for a population, trains every member in blocks of lanes
over all devices, and tells the strategy what each was worth. The programs are compiled
once, in the first generation.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import TrainConfig
from purerl.meta import population as runs
from purerl.meta import store
from purerl.meta.fitness import member_scores
from purerl.meta.genome import Names
from purerl.meta.population import Stopped, Task
from purerl.meta.result import EvolutionResult, fresh_state
from purerl.meta.setup import (
    Environments,
    Setup,
    baseline_of,
    make_setup,
    make_task,
    specification,
)
from purerl.meta.store import State
from purerl.meta.strategy import Strategy
from purerl.runner import manifest
from purerl.runner.interrupt import Interrupt
from purerl.runner.words import si
from purerl.scale import hosts
from purerl.scale.devices import Worker, check_count, default_lanes, make_workers
from purerl.sweeps.plan import worker_limit
from purerl.train import Bound
from purerl.types import Array, Overrides


def evolve(
    config: TrainConfig,
    evolve: Names,
    *,
    strategy: str | Mapping[str, Any] | Strategy = "open-es",
    population: int = 64,
    generations: int = 100,
    rollouts: int = 1,
    fitness: str = "training_curve",
    environments: Environments = (),
    baselines: Any = None,
    seed: int = 0,
    out: str | Path | None = None,
    lanes: int | None = None,
    segment_updates: int | None = None,
    chunk_blocks: int | None = None,
    memory_limit: str | float | None = None,
    devices: Any = None,
    checkpoint_seconds: float = 30.0,
    snapshot_every: int = 16,
    progress: bool = True,
) -> EvolutionResult:
    """Evolve leaves of a config so that what is trained with them is worth most.

    All members of a generation train with the same random keys, and the next generation
    with others: what is compared is what is evolved. A member is worth the mean of its
    runs' fitness over rollouts and environments. One whose training meets a number that
    is not finite is ranked last and counted.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Under `jax.distributed` every process trains its share.

    Args:
        config: that members train with; what is evolved starts from its values.
        evolve: name of a field with float leaves (`"value_loss"`, `"policy_loss"`,
            `"env_params.length"`), several, or names with scales; see
            `purerl.meta.genome`.
        strategy: a name with options (`"cma-es(sigma=0.2)"`), a mapping, or
            `purerl.OpenES(...)`; see `purerl.Strategy`.
        population: members of a generation, P.
        generations: in all; a folder may be gone on with for more.
        rollouts: training runs of each member in each environment, R.
        fitness: `training_curve`, `final_return` or `evaluation`; see
            `purerl.meta.fitness`.
        environments: names of environments, or changes of the config by name; the
            config's own where not given.
        baselines: by environment, the return that counts 1 (or a pair, the returns that
            count 0 and 1). Measured where there are several environments and none are
            given: the algorithm's own loss, with as many rollouts.
        seed: of everything random.
        out: folder to write; nothing is written without one.
        lanes: width of a block, part of what fixes the bits.
        segment_updates: updates of a compiled call, likewise; the whole run where not
            given.
        chunk_blocks: blocks that a worker holds at a time; it changes no bit.
        memory_limit: bytes for training, such as `"2GB"`.
        devices: local ones to use; all of the default backend where not given.
        checkpoint_seconds: least time between checkpoints; 0 saves every generation.
        snapshot_every: generations between two snapshots of the solution; 0 for none.
        progress: show it.

    Raises:
        ConfigError: anything that cannot be evolved, or a folder of another evolution
            (with what differs); before anything is trained.
    """
    setup = make_setup(
        config,
        evolve,
        strategy,
        population,
        rollouts,
        fitness,
        environments,
        baselines,
        seed,
    )
    for name, count in (
        ("generations", generations),
        ("lanes", lanes),
        ("segment_updates", segment_updates),
        ("chunk_blocks", chunk_blocks),
    ):
        check_count(name, count)
    workers = make_workers(devices)
    is_cpu = workers[0].device.platform == "cpu"
    options = _Options(
        Path(out) if out is not None else None,
        lanes,
        segment_updates,
        chunk_blocks or (1 if is_cpu else 2),
        worker_limit(memory_limit, workers),
        checkpoint_seconds,
        snapshot_every,
        progress and hosts.index() == 0,
    )
    return _Evolution(setup, generations, workers, options).run()


class _Options(NamedTuple):
    folder: Path | None
    lanes: int | None
    segment_updates: int | None
    chunk_blocks: int
    memory_limit: float
    checkpoint_seconds: float
    snapshot_every: int
    progress: bool


class _Evolution:
    """One call of `evolve`: the pieces that its phases share."""

    def __init__(
        self,
        setup: Setup,
        generations: int,
        workers: list[Worker],
        options: _Options,
    ) -> None:
        self.setup, self.generations = setup, generations
        self.workers, self.options = workers, options
        self.optimiser = setup.optimiser
        self.key = jax.random.key(setup.settings["seed"])
        self.tasks: list[Task] = []
        self.is_lanes_fixed = options.lanes is not None
        self.lanes = options.lanes or self._default_lanes()
        self.lock = threading.Lock()
        self.saved_at, self.saved_time = -1, time.monotonic()
        self.compile_seconds = 0.0

    def run(self) -> EvolutionResult:
        """Evolve, or what is missing of it."""
        from purerl.meta.progress import EvolutionReporter  # rich: only who runs pays

        state, generations = self._open()
        first = int(state.done)
        reporter = EvolutionReporter(
            generations,
            first,
            self.setup.runs,
            self.setup.steps,
            self.options.progress,
        )
        if first >= generations:
            reporter.say(f"all {generations:,} generations had finished")
            return self._result(state, {"generations_run": 0})
        reporter.say(self._banner())
        self._compile()
        reporter.say(f"compiled in {self.compile_seconds:.1f} s")
        began = time.perf_counter()
        with Interrupt() as interrupt, reporter:

            def is_stopped() -> bool:
                return interrupt.asked

            try:
                state = self._with_anchors(state, is_stopped)
                while int(state.done) < generations:
                    state = self._generation(state, reporter, is_stopped)
                    self._save(state, force=int(state.done) == generations)
            except Stopped:
                self._save(state, force=int(state.done) > 0)
                reporter.tell(self._how_to_go_on(int(state.done)))
        return self._result(
            state, self._summary(state, first, time.perf_counter() - began)
        )

    def _open(self) -> tuple[State, int]:
        """The state to go on from, the same in every process."""
        fresh = fresh_state(
            self.optimiser, self.key, self.generations, len(self.setup.bounds)
        )
        if self.setup.anchors is not None:
            fresh = fresh._replace(anchors=self.setup.anchors)
        folder, state = self.options.folder, fresh
        if folder is not None and hosts.index() == 0:
            run = {
                "lanes": self.lanes,
                "lanes_asked": self.options.lanes,
                "segment_updates": self.options.segment_updates,
            }
            spec = specification(self.setup, self.generations, run)
            stored = store.open_folder(folder, spec)
            self._say_versions(stored)
            self.lanes = stored["lanes"]
            state = store.restore(folder, fresh) or fresh
            self.is_lanes_fixed |= int(state.done) > 0
        state = State(*hosts.tree_from_first(tuple(state)))
        self.lanes, fixed = (
            int(x) for x in hosts.from_first([self.lanes, self.is_lanes_fixed])
        )
        self.is_lanes_fixed = bool(fixed)
        self.saved_at = int(state.done)
        return state, max(self.generations, int(state.done))

    def _say_versions(self, stored: dict[str, Any]) -> None:
        note = manifest.warn_other_versions(stored)
        here = metadata.version("evosax")
        if note is None and stored["evosax"] != here:
            note = (
                "resumed with other versions, so bits may differ: evosax "
                f"{stored['evosax']} -> {here}"
            )
        if note and self.options.progress:
            print(note, file=sys.stderr)

    def _default_lanes(self) -> int:
        everyone = self.workers * hosts.count()
        per_environment = self.setup.population * self.setup.rollouts
        return default_lanes(per_environment, everyone)

    def _compile(self) -> None:
        """A program per environment, at one width that fits the memory of all."""
        began = time.perf_counter()
        start = np.asarray(self.optimiser.genome.start())[None]
        example = jax.tree.map(np.asarray, jax.jit(self.optimiser.genome.decode)(start))
        keys = runs.rollout_keys(self.key, 0, self.setup.rollouts)
        named = list(zip(self.setup.names, self.setup.bounds, strict=True))
        while True:
            tasks = [self._task(*one, keys, example, self.lanes) for one in named]
            width = min(task.executables.lanes for task in tasks)
            if all(task.executables.lanes == width for task in tasks):
                break
            self.lanes = width  # The narrowest: one width for all of them.
        if width != self.lanes and self.options.folder and hosts.index() == 0:
            store.set_lanes(self.options.folder, width)
        self.tasks, self.lanes = tasks, width
        self.compile_seconds = time.perf_counter() - began

    def _task(
        self, name: str, bound: Bound, keys: Array, example: Overrides, lanes: int
    ) -> Task:
        return make_task(
            name,
            bound,
            keys,
            example,
            lanes,
            self.options.segment_updates,
            self.workers,
            self.options.memory_limit / self.options.chunk_blocks,
            self.is_lanes_fixed,
        )

    def _with_anchors(self, state: State, is_stopped: Callable[[], bool]) -> State:
        """The state with measured baselines, where they are needed and not known."""
        if np.isfinite(state.anchors).all():
            return state
        genome, rollouts = self.optimiser.genome, self.setup.rollouts
        keys = runs.baseline_keys(self.key, rollouts)
        named = zip(self.setup.names, self.setup.bounds, strict=True)
        lanes = min(self.lanes, default_lanes(rollouts, self.workers[:1]))
        tasks = [
            self._task(name, baseline_of(bound, genome), keys, {}, lanes)
            for name, bound in named
        ]
        returns = runs.evaluate(
            tasks,
            keys,
            {},
            1,
            self.setup.fitness,
            self.workers,
            self.options.chunk_blocks,
            lambda _: None,
            is_stopped,
        )
        return state._replace(anchors=measured_anchors(returns[:, 0], self.setup.names))

    def _generation(
        self, state: State, reporter: Any, is_stopped: Callable[[], bool]
    ) -> State:
        """Ask, train, tell."""
        began, number = time.perf_counter(), int(state.done)
        key_ask, key_tell = runs.strategy_keys(self.key, number)
        vectors, overrides, asked = self.optimiser.ask(key_ask, state.strategy)
        sigma = self.optimiser.sigma(asked)

        def on_runs(count: int) -> None:
            with self.lock:
                reporter.ran(count)

        returns = runs.evaluate(
            self.tasks,
            runs.rollout_keys(self.key, number, self.setup.rollouts),
            overrides,
            self.setup.population,
            self.setup.fitness,
            self.workers,
            self.options.chunk_blocks,
            on_runs,
            is_stopped,
        )
        scores = member_scores(returns, state.anchors)
        told = self.optimiser.tell(key_tell, vectors, scores, asked)
        state = _with_row(state._replace(strategy=told), vectors, scores, returns)
        state.sigma[number] = sigma
        state.seconds[number] = time.perf_counter() - began
        known = scores[np.isfinite(scores)]
        best, mean = (known.max(), known.mean()) if known.size else (np.nan, np.nan)
        reporter.generation(float(best), float(mean), len(scores) - known.size)
        return state

    def _save(self, state: State, force: bool) -> None:
        """Save the state now and then: what comes after is computed again."""
        folder, done = self.options.folder, int(state.done)
        if folder is None or hosts.index() > 0:
            return
        every = self.options.snapshot_every
        if every and done % every == 0 and done != self.saved_at:
            mean = self.optimiser.mean(state.strategy)
            store.save_snapshot(folder, done, state.best if mean is None else mean)
        waited = time.monotonic() - self.saved_time >= self.options.checkpoint_seconds
        if done == self.saved_at or not (force or waited):
            return
        store.save(folder, state)
        self.saved_at, self.saved_time = done, time.monotonic()

    def _result(self, state: State, summary: dict[str, Any]) -> EvolutionResult:
        result = EvolutionResult(
            self.setup.config,
            self.setup.settings,
            self.optimiser,
            state,
            self.options.folder,
            summary,
        )
        if self.options.folder is not None and hosts.index() == 0 and result.done:
            result.save(self.options.folder)
        return result

    def _summary(self, state: State, first: int, seconds: float) -> dict[str, Any]:
        ran = int(state.done) - first
        agents = ran * self.setup.runs
        return {
            "generations_run": ran,
            "agents": agents,
            "env_steps": ran * self.setup.steps,
            "compile_seconds": round(self.compile_seconds, 2),
            "train_seconds": round(seconds, 2),
            "agents_per_second": round(agents / max(seconds, 1e-9), 3),
            "steps_per_second": round(ran * self.setup.steps / max(seconds, 1e-9)),
            "lanes": self.lanes,
        }

    def _banner(self) -> str:
        setup, device = self.setup, jax.local_devices()[0]
        return (
            f"{setup.settings['strategy']['name']} over {self.optimiser.genome.size:,} "
            f"numbers of {', '.join(setup.settings['evolve'])}: {setup.population:,} "
            f"members x {setup.rollouts} rollouts in {', '.join(setup.names)}, "
            f"{si(setup.runs)} agents and {si(setup.steps)} steps a generation, on "
            f"{device.device_kind} ({self.lanes} lanes)"
        )

    def _how_to_go_on(self, done: int) -> str:
        if self.options.folder is None:
            return f"stopped after generation {done:,}; nothing was saved (no out)"
        return (
            f"stopped after generation {done:,}, which is saved. Go on with: purerl "
            f"evolve --resume {self.options.folder}"
        )


def _with_row(
    state: State, vectors: np.ndarray, scores: np.ndarray, returns: np.ndarray
) -> State:
    """The state with a generation's scores in its history, and the best member."""
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


def measured_anchors(returns: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Anchors `[E, 2]` from the returns `[E, R]` of a baseline.

    Raises:
        ConfigError: a baseline that diverged, or that earned nothing to divide by.
    """
    from purerl.meta.fitness import read_baselines

    anchors = read_baselines([float(mean) for mean in returns.mean(1)], names)
    assert anchors is not None
    return anchors
