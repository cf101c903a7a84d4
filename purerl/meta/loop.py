"""The loop of an evolution: ask, train, tell; compiled once, saved, gone on with."""

import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.execution.format import format_count, program, quoted, with_noun
from purerl.meta import store
from purerl.meta.fitness import best_of_runs, check_progress, member_scores
from purerl.meta.population import Stopped, start_key, strategy_keys
from purerl.meta.result import EvolutionResult, fresh_state, with_generation
from purerl.meta.setup import EvolutionSetup, specification
from purerl.meta.store import State
from purerl.meta.tracking import Tracking
from purerl.meta.training import Options, Training
from purerl.runner.interrupt import Interrupt
from purerl.runner.manifest import notes
from purerl.runner.trackers import Tracker
from purerl.scale import hosts
from purerl.scale.devices import Worker
from purerl.storage import folders
from purerl.storage.checkpoint import Pace
from purerl.streams import say

SNAPSHOT_EVERY = 16


class EvolutionLoop:
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
        setup: EvolutionSetup,
        generations: int,
        workers: list[Worker],
        options: Options,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        self.setup, self.generations, self.options = setup, generations, options
        self.optimiser = setup.optimiser
        self.key = jax.random.key(setup.settings["seed"])
        self.training = Training(setup, self.key, workers, options)
        self.lock = threading.Lock()
        asked = options.snapshot_every
        self.snapshot_every = SNAPSHOT_EVERY if asked is None else asked
        self.saved_at, self.pace = -1, Pace(options.checkpoint_seconds)
        is_first = hosts.index() == 0  # The others write nothing.
        self.tracking = Tracking(
            setup, options.folder if is_first else None, trackers if is_first else ()
        )

    def run(self) -> EvolutionResult:
        """Train all generations that are missing, and return the result."""
        # Only the first process writes.
        folder = self.options.folder if hosts.index() == 0 else None
        with folders.undone_if_empty(folder):
            return self._run(*self.open())

    def _run(self, state: State, generations: int) -> EvolutionResult:
        # Imported here so that only callers that run pay for importing rich.
        from purerl.meta.progress import EvolutionReporter

        first = int(state.done)
        reporter = EvolutionReporter(
            generations,
            first,
            self.setup.runs,
            self.setup.steps,
            self.options.progress,
        )
        with self.tracking.group:
            hosts.run_on_all(lambda: self.tracking.begin(state, reporter.info))
            if first >= generations:
                reporter.info(f"all {generations:,} generations had finished")
                result = self._result(state, first)
            else:
                result = self._evolve(state, generations, reporter)
            self.tracking.close(result, result.done >= generations)
        return result

    def _evolve(self, state: State, generations: int, reporter: Any) -> EvolutionResult:
        """The generations that are missing, until somebody asks to stop."""
        first = int(state.done)
        reporter.info(self._banner())
        evolved = [self.optimiser.genome.values]
        for bound in self.setup.bounds:
            for line in notes(bound, evolved):
                reporter.info(line)
        self.compile()
        reporter.info(f"compiled in {self.training.compile_seconds:.1f} s")
        with Interrupt(lambda: self.tracking.group.stop) as interrupt, reporter:

            def is_stopped() -> bool:
                return interrupt.asked

            try:
                state = self._with_anchors(state, is_stopped)
                running = state
                while int(state.done) < generations:
                    running = self.generation(running, reporter, is_stopped)
                    if int(running.done) % self.setup.per_run:
                        continue  # Its training runs have not ended.
                    state = running
                    self._save(state, force=int(state.done) == generations)
            except Stopped:
                self._save(state, force=int(state.done) > 0)
                reporter.notify(self._how_to_go_on(int(state.done)))
            except Exception:
                # What has been trained is not lost to what could not be.
                self._save(state, force=int(state.done) > 0)
                if int(state.done):
                    reporter.notify(self._how_to_go_on(int(state.done)))
                raise
        return self._result(state, first)

    def open(self) -> tuple[State, int]:
        """Return the state to go on from, equal in every process, and where to stop."""
        # Only the first process looks at the disk: the others are told.
        folder = self.options.folder if hosts.index() == 0 else None
        rows = hosts.run_on_all(lambda: self._open_folder(folder))
        rows = int(hosts.broadcast(rows))
        key, environments = start_key(self.key), len(self.setup.bounds)
        state = fresh_state(self.optimiser, key, rows, environments)
        if self.setup.anchors is not None:
            state = state._replace(anchors=self.setup.anchors)
        state = hosts.run_on_all(lambda: _restored(folder, state))
        state = State(*hosts.broadcast(tuple(state)))
        self.training.lanes = int(hosts.broadcast(self.training.lanes))
        self.training.is_fixed |= int(state.done) > 0
        self.saved_at = int(state.done)
        return state, max(self.generations, int(state.done))

    def _open_folder(self, folder: Path | None) -> int:
        """Rows of the history; takes over what a folder was started with."""
        if folder is None:
            return self.generations
        asked = self.options.snapshot_every
        stored = store.open_folder(folder, self._specification(), asked)
        self._print_versions(stored)
        self.training.lanes = stored["lanes"]
        self.snapshot_every = stored["snapshot_every"]
        return stored["generations"]

    def _specification(self) -> dict[str, Any]:
        run = {
            "lanes": self.training.lanes,
            "lanes_asked": self.options.lanes,
            "segment_updates": self.options.segment_updates,
            "snapshot_every": self.snapshot_every,
        }
        return specification(self.setup, self.generations, run)

    def _print_versions(self, stored: dict[str, Any]) -> None:
        note = folders.differences_of_versions(stored)
        here = metadata.version("evosax")
        if note is None and stored["evosax"] != here:
            note = (
                "resumed with other versions, so bits may differ: evosax "
                f"{stored['evosax']} -> {here}"
            )
        if note and self.options.progress:
            say(note)

    def compile(self) -> None:
        """Compile the programs of a generation; the folder keeps how wide they are."""
        before, training = self.training.lanes, self.training
        training.compile()
        if training.lanes != before and self.options.folder and hosts.index() == 0:
            store.set_lanes(self.options.folder, training.lanes)

    def _with_anchors(self, state: State, is_stopped: Callable[[], bool]) -> State:
        """The state with measured baselines, where they are needed and not known."""
        if np.isfinite(state.anchors).all():
            return state
        return state._replace(anchors=self.training.measured_anchors(is_stopped))

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
        key_ask, key_tell = strategy_keys(self.key, number)
        vectors, overrides, strategy = self.optimiser.ask(key_ask, state.strategy)
        sigma = self.optimiser.sigma(strategy)

        def on_runs(number: int) -> None:
            with self.lock:
                reporter.ran(number)

        returns, reasons = self.training.generation(
            number, overrides, on_runs, is_stopped
        )
        scores = member_scores(returns, state.anchors, self.setup.fitness)
        known = np.vstack([state.fitness[:number], scores])
        check_progress(best_of_runs(known, self.setup.per_run), reasons)
        updated = self.optimiser.tell(key_tell, vectors, scores, strategy)
        state = with_generation(
            state._replace(strategy=updated), vectors, scores, returns
        )
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
        every = self.snapshot_every
        passed = every and done // every > (done - self.setup.per_run) // every
        if passed and done != self.saved_at:
            mean = self.optimiser.mean(state.strategy)
            store.save_snapshot(folder, done, state.best if mean is None else mean)
        if done == self.saved_at or not (force or self.pace.is_due()):
            return
        with self.pace.saving():
            store.save(folder, state)
        self.saved_at = done

    def _result(self, state: State, first: int) -> EvolutionResult:
        """The result; `first` is the generation that this call began with."""
        folder, costs = self.options.folder, self._costs(state)
        call = {
            "generations_run": int(state.done) - first,
            "compile_seconds": round(self.training.compile_seconds, 2),
        }
        result = EvolutionResult(
            self.setup.config,
            self.setup.settings,
            self.optimiser,
            state,
            folder,
            {**call, **costs},
        )
        if folder is not None and hosts.index() == 0 and result.done:
            result.save(folder)
            has_trained = result.done > first
            folders.write_summary(folder, costs, call, has_trained, ["compile_seconds"])
        return result

    def _costs(self, state: State) -> dict[str, Any]:
        """The costs of all generations, those of earlier calls among them."""
        done = int(state.done)
        agents = -(-done // self.setup.per_run) * self.setup.runs
        steps, seconds = done * self.setup.steps, float(state.seconds[:done].sum())
        return {
            "generations": done,
            "agents": agents,
            "env_steps": steps,
            "train_seconds": round(seconds, 2),
            "agents_per_second": round(agents / max(seconds, 1e-9), 3),
            "steps_per_second": round(steps / max(seconds, 1e-9)),
            "lanes": self.training.lanes,
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
            f"({with_noun(self.training.lanes, 'lane')})"
        )

    def _how_to_go_on(self, done: int) -> str:
        if self.options.folder is None:
            return f"stopped after generation {done:,}; nothing was saved (no out)"
        return (
            f"stopped after generation {done:,}, which is saved. Go on with: "
            f"{program()} evolve --resume {quoted(self.options.folder)}"
        )


def _restored(folder: Path | None, state: State) -> State:
    """Return the state in the folder's newest checkpoint, else the state as it is."""
    restored = store.restore(folder, state) if folder is not None else None
    if folder is not None and restored is None:
        folders.refuse_lost_checkpoints(folder)
    return restored or state
