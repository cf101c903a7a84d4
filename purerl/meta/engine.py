"""The loop of an evolution: ask, train, tell; compiled once, saved, gone on with."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.execution.format import format_count, with_noun
from purerl.execution.programs import Program
from purerl.meta import population as runs
from purerl.meta import store
from purerl.meta.fitness import check_progress, measured_anchors, member_scores
from purerl.meta.population import Stopped
from purerl.meta.result import EvolutionResult, fresh_state, with_generation
from purerl.meta.setup import Setup, baseline_of, compile_runs, specification
from purerl.meta.store import State
from purerl.meta.tracking import Tracking
from purerl.runner.interrupt import Interrupt
from purerl.runner.trackers import Tracker
from purerl.runner.words import notes
from purerl.scale import hosts
from purerl.scale.devices import Worker, default_lanes
from purerl.storage import folders
from purerl.train import Bound
from purerl.types import Array, Overrides

# From one run nobody can tell whether a baseline is clear of zero.
BASELINE_ROLLOUTS = 8


class Options(NamedTuple):
    """How an evolution is carried out; of these only W and K change what is computed.

    Attributes:
        folder: The folder to write, or None.
        lanes: The width W that was asked for; None where it is chosen.
        segment_updates: Updates of a compiled call, K; None for the whole run.
        chunk_blocks: The number of blocks that a worker holds at a time.
        memory_limit: Bytes that a worker may use.
        checkpoint_seconds: The least time between checkpoints.
        snapshot_every: The number of generations between two snapshots, or 0.
        progress: Whether to show the progress.
    """

    folder: Path | None
    lanes: int | None
    segment_updates: int | None
    chunk_blocks: int
    memory_limit: float
    checkpoint_seconds: float
    snapshot_every: int
    progress: bool


class Evolution:
    """One call of `purerl.evolve`: the pieces that its phases share.

    Args:
        setup: The evolution.
        generations: The number of generations in all.
        workers: Workers of this process.
        options: Options of how the evolution is carried out.
        trackers: Trackers of this call, beside JSON lines.
    """

    def __init__(
        self,
        setup: Setup,
        generations: int,
        workers: list[Worker],
        options: Options,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        self.setup, self.generations = setup, generations
        self.workers, self.options = workers, options
        self.optimiser = setup.optimiser
        self.key = jax.random.key(setup.settings["seed"])
        self.programs: list[Program] = []
        self.is_lanes_fixed = options.lanes is not None
        self.lanes = options.lanes or self._default_lanes()
        self.lock = threading.Lock()
        self.saved_at, self.saved_time = -1, time.monotonic()
        self.compile_seconds = 0.0
        is_first = hosts.index() == 0  # The others write nothing.
        self.tracking = Tracking(
            setup, options.folder if is_first else None, trackers if is_first else ()
        )

    def run(self) -> EvolutionResult:
        """Train all generations that are missing, and return the result."""
        # Imported here so that only callers that run pay for importing rich.
        from purerl.meta.progress import EvolutionReporter

        state, generations = self.open()
        first = int(state.done)
        reporter = EvolutionReporter(
            generations,
            first,
            self.setup.runs,
            self.setup.steps,
            self.options.progress,
        )
        with self.tracking:
            hosts.run_on_all(lambda: self.tracking.begin(state, reporter.say))
            if first >= generations:
                reporter.say(f"all {generations:,} generations had finished")
                result = self._result(state, {"generations_run": 0})
            else:
                result = self._evolve(state, generations, reporter)
            self.tracking.close(result, result.done >= generations)
        return result

    def _evolve(self, state: State, generations: int, reporter: Any) -> EvolutionResult:
        """The generations that are missing, until somebody asks to stop."""
        first = int(state.done)
        reporter.say(self._banner())
        evolved = [self.optimiser.genome.values]
        for bound in self.setup.bounds:
            for line in notes(bound, evolved):
                reporter.say(line)
        self.compile()
        reporter.say(f"compiled in {self.compile_seconds:.1f} s")
        began = time.perf_counter()
        with Interrupt() as interrupt, reporter:

            def is_stopped() -> bool:
                return interrupt.asked

            try:
                state = self._with_anchors(state, is_stopped)
                while int(state.done) < generations:
                    state = self.generation(state, reporter, is_stopped)
                    self._save(state, force=int(state.done) == generations)
            except Stopped:
                self._save(state, force=int(state.done) > 0)
                reporter.tell(self._how_to_go_on(int(state.done)))
        return self._result(
            state, self._summary(state, first, time.perf_counter() - began)
        )

    def open(self) -> tuple[State, int]:
        """Return the state to go on from, equal in every process, and where to stop."""
        # Only the first process looks at the disk: the others are told.
        folder = self.options.folder if hosts.index() == 0 else None
        rows = hosts.run_on_all(lambda: self._open_folder(folder))
        rows = int(hosts.broadcast(rows))
        state = fresh_state(self.optimiser, self.key, rows, len(self.setup.bounds))
        if self.setup.anchors is not None:
            state = state._replace(anchors=self.setup.anchors)
        state = hosts.run_on_all(lambda: _restored(folder, state))
        state = State(*hosts.broadcast(tuple(state)))
        self.lanes = int(hosts.broadcast(self.lanes))
        self.is_lanes_fixed |= int(state.done) > 0
        self.saved_at = int(state.done)
        return state, max(self.generations, int(state.done))

    def _open_folder(self, folder: Path | None) -> int:
        """Rows of the history; takes over what a folder was started with."""
        if folder is None:
            return self.generations
        stored = store.open_folder(folder, self._specification())
        self._say_versions(stored)
        self.lanes = stored["lanes"]
        return stored["generations"]

    def _specification(self) -> dict[str, Any]:
        run = {
            "lanes": self.lanes,
            "lanes_asked": self.options.lanes,
            "segment_updates": self.options.segment_updates,
        }
        return specification(self.setup, self.generations, run)

    def _say_versions(self, stored: dict[str, Any]) -> None:
        note = folders.differences_of_versions(stored)
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

    def compile(self) -> None:
        """Compile the programs of a generation; the folder keeps how wide they are."""
        began = time.perf_counter()
        start = np.asarray(self.optimiser.genome.start())[None]
        example = jax.tree.map(np.asarray, jax.jit(self.optimiser.genome.decode)(start))
        keys = runs.rollout_keys(self.key, 0, self.setup.rollouts)
        bounds = self.setup.bounds
        self.programs = self._compiled(
            lambda lanes: [self._program(b, keys, example, lanes) for b in bounds],
            self.lanes,
        )
        width = self.programs[0].lanes
        if width != self.lanes and self.options.folder and hosts.index() == 0:
            store.set_lanes(self.options.folder, width)
        self.lanes = width
        self.compile_seconds = time.perf_counter() - began

    def _compiled(
        self, compile_at: Callable[[int], list[Program]], lanes: int
    ) -> list[Program]:
        """A program per environment, at one width that fits in every process."""
        programs = hosts.run_on_all(lambda: _fitted(compile_at, lanes))
        width = programs[0].lanes
        narrowest = int(hosts.all_min(width))
        if narrowest == width:
            return programs
        # Another process has less memory, and all must cut the same blocks.
        return _fitted(compile_at, narrowest)

    def _program(
        self, bound: Bound, keys: Array, example: Overrides, lanes: int
    ) -> Program:
        return compile_runs(
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
        genome = self.optimiser.genome
        rollouts = max(self.setup.rollouts, BASELINE_ROLLOUTS)
        keys = runs.baseline_keys(self.key, rollouts)
        bounds = [baseline_of(bound, genome) for bound in self.setup.bounds]
        lanes = min(self.lanes, default_lanes(rollouts, self.workers[:1]))
        programs = self._compiled(
            lambda lanes: [self._program(b, keys, {}, lanes) for b in bounds], lanes
        )
        returns = runs.evaluate(
            programs,
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

    def generation(
        self, state: State, reporter: Any, is_stopped: Callable[[], bool]
    ) -> State:
        """Ask the strategy for a population, train it, and tell what it was worth.

        Args:
            state: The state before the generation.
            reporter: The reporter that shows the progress.
            is_stopped: A function that says whether somebody asked to stop.
        """
        began, number = time.perf_counter(), int(state.done)
        key_ask, key_tell = runs.strategy_keys(self.key, number)
        vectors, overrides, asked = self.optimiser.ask(key_ask, state.strategy)
        sigma = self.optimiser.sigma(asked)

        def on_runs(number: int) -> None:
            with self.lock:
                reporter.ran(number)

        reasons: Counter[str] = Counter()
        returns = runs.evaluate(
            self.programs,
            runs.rollout_keys(self.key, number, self.setup.rollouts),
            overrides,
            self.setup.population,
            self.setup.fitness,
            self.workers,
            self.options.chunk_blocks,
            on_runs,
            is_stopped,
            reasons,
        )
        scores = member_scores(returns, state.anchors)
        check_progress(np.vstack([state.fitness[:number], scores]), reasons)
        told = self.optimiser.tell(key_tell, vectors, scores, asked)
        state = with_generation(state._replace(strategy=told), vectors, scores, returns)
        state.sigma[number] = sigma
        state.seconds[number] = time.perf_counter() - began
        self.tracking.generation(state)
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
            f"{setup.settings['strategy']['name']} over "
            f"{with_noun(self.optimiser.genome.size, 'number')} of "
            f"{', '.join(setup.settings['evolve'])}: "
            f"{with_noun(setup.population, 'member')} x "
            f"{with_noun(setup.rollouts, 'rollout')} in {', '.join(setup.names)}, "
            f"{format_count(setup.runs)} agents and "
            f"{format_count(setup.steps)} steps a generation, on {device.device_kind} "
            f"({with_noun(self.lanes, 'lane')})"
        )

    def _how_to_go_on(self, done: int) -> str:
        if self.options.folder is None:
            return f"stopped after generation {done:,}; nothing was saved (no out)"
        return (
            f"stopped after generation {done:,}, which is saved. Go on with: purerl "
            f"evolve --resume {self.options.folder}"
        )


def _fitted(compile_at: Callable[[int], list[Program]], lanes: int) -> list[Program]:
    """A program per environment, all as wide as the narrowest that fits here."""
    while True:
        programs = compile_at(lanes)
        width = min(program.lanes for program in programs)
        if all(program.lanes == width for program in programs):
            return programs
        lanes = width


def _restored(folder: Path | None, state: State) -> State:
    """What the folder's newest checkpoint holds, else the state as it is."""
    return state if folder is None else store.restore(folder, state) or state
