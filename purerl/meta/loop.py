"""The loop of an evolution: ask, train, tell; compiled once, saved, gone on with."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.execution.format import (
    format_count,
    format_duration,
    program,
    quoted,
    with_noun,
)
from purerl.meta import store
from purerl.meta.fitness import best_of_runs, check_progress, member_scores
from purerl.meta.result import EvolutionResult, fresh_state, with_generation
from purerl.meta.setup import EvolutionSetup, specification
from purerl.meta.store import State
from purerl.meta.tracking import Tracking
from purerl.meta.training import Options, Stopped, Training, start_key, strategy_keys
from purerl.runner.interrupt import Interrupt
from purerl.runner.manifest import notes
from purerl.runner.progress import LINES, Reporter
from purerl.runner.trackers import Tracker
from purerl.scale import hosts
from purerl.scale.devices import Worker
from purerl.storage import folders
from purerl.storage.checkpoint import Pace
from purerl.streams import say

SNAPSHOT_EVERY = 16


class EvolutionReporter(Reporter):
    """Shows the generation, best and mean fitness, agents and frames per second.

    Args:
        setup: The evolution.
        generations: The number of generations of the whole evolution.
        done: The number of generations that were finished before.
        enabled: Whether to show anything.
    """

    def __init__(
        self, setup: EvolutionSetup, generations: int, done: int, enabled: bool
    ) -> None:
        runs = setup.runs
        super().__init__(generations * runs, done * runs, enabled=enabled)
        self.setup, self.generations, self.done = setup, generations, done
        self._lock, self._runs_now, self._words = threading.Lock(), 0, ""

    def ran(self, runs: int) -> None:
        """Count some runs of the generation that have ended, and show them."""
        with self._lock:
            self._runs_now += runs
            if self._live:
                self._show()

    def generation(self, best: float, mean: float, failed: int) -> None:
        """Show that a generation has ended: its members' fitness, and how many failed.

        Args:
            best: The fitness of its best member.
            mean: The mean fitness of its members.
            failed: The number of its members that failed.
        """
        self.done += 1
        self._runs_now = 0
        self._words = f"best {best:.4g}  mean {mean:.4g}"
        if failed:
            self._words += f"  failed {failed}"
        share = self.done / self.generations
        if self._live:
            self._show()
        elif share >= self._next_line or self.done >= self.generations:
            self._next_line = (math.floor(share * LINES) + 1) / LINES
            self.info("  ".join(self._fields().values()))

    def _show(self) -> None:
        done = self.done * self.setup.runs + self._runs_now
        self._bar.update(self._task, completed=done, **self._fields())

    def _fields(self) -> dict[str, Any]:
        done = self.done * self.setup.runs + self._runs_now
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        rate = (done - self.start_steps) / elapsed
        left = (self.total - done) / rate if rate > 0 else math.inf
        frames = rate * self.setup.steps / self.setup.runs
        number = f"generation {self.done:,}/{self.generations:,}"
        return {
            "returns": f"{number}  {self._words}",
            "rate": f"{format_count(rate)} agents/s  {format_count(frames)} steps/s",
            "left": f"{format_duration(left)} left",
        }


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
        asked = options.snapshot_every
        self.snapshot_every = SNAPSHOT_EVERY if asked is None else asked
        self.saved_at, self.pace = -1, Pace(options.checkpoint_seconds)
        # Of several processes the first one looks at the folder, and writes.
        is_first = hosts.index() == 0
        self.folder = options.folder if is_first else None
        self.tracking = Tracking(setup, self.folder, trackers if is_first else ())

    def run(self) -> EvolutionResult:
        """Train all generations that are missing, and return the result."""
        with folders.undone_if_empty(self.folder):
            state, generations = self.open()
            first = int(state.done)
            reporter = EvolutionReporter(
                self.setup, generations, first, self.options.progress
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

    def _evolve(
        self, state: State, generations: int, reporter: EvolutionReporter
    ) -> EvolutionResult:
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
                if not np.isfinite(state.anchors).all():
                    anchors = self.training.measured_anchors(is_stopped)
                    state = state._replace(anchors=anchors)
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
        rows = int(hosts.broadcast(hosts.run_on_all(self._open_folder)))
        key, environments = start_key(self.key), len(self.setup.bounds)
        state = fresh_state(self.optimiser, key, rows, environments)
        if self.setup.anchors is not None:
            state = state._replace(anchors=self.setup.anchors)
        state = hosts.run_on_all(lambda: _restored(self.folder, state))
        state = State(*hosts.broadcast(tuple(state)))
        self.training.lanes = int(hosts.broadcast(self.training.lanes))
        self.training.is_fixed |= int(state.done) > 0
        self.saved_at = int(state.done)
        return state, max(self.generations, int(state.done))

    def _open_folder(self) -> int:
        """Rows of the history; takes over what a folder was started with."""
        if self.folder is None:
            return self.generations
        run = {
            "lanes": self.training.lanes,
            "lanes_asked": self.options.lanes,
            "segment_updates": self.options.segment_updates,
            "snapshot_every": self.snapshot_every,
        }
        spec = specification(self.setup, self.generations, run)
        stored = store.open_folder(self.folder, spec, self.options.snapshot_every)
        note = folders.differences_of_versions(stored)
        before, here = stored["evosax"], metadata.version("evosax")
        if note is None and before != here:
            note = f"resumed with other versions, so bits may differ: evosax {before} "
            note += f"-> {here}"
        if note and self.options.progress:
            say(note)
        self.training.lanes = stored["lanes"]
        self.snapshot_every = stored["snapshot_every"]
        return stored["generations"]

    def compile(self) -> None:
        """Compile the programs of a generation; the folder keeps how wide they are."""
        before = self.training.lanes
        self.training.compile()
        if self.training.lanes != before and self.folder:
            store.set_lanes(self.folder, self.training.lanes)

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
        returns, reasons = self.training.generation(
            number, overrides, reporter.ran, is_stopped
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
        done = int(state.done)
        if self.folder is None:
            return
        every = self.snapshot_every
        passed = every and done // every > (done - self.setup.per_run) // every
        if passed and done != self.saved_at:
            mean = self.optimiser.mean(state.strategy)
            store.save_snapshot(self.folder, done, state.best if mean is None else mean)
        if done == self.saved_at or not (force or self.pace.is_due()):
            return
        with self.pace.saving():
            store.save(self.folder, state)
        self.saved_at = done

    def _result(self, state: State, first: int) -> EvolutionResult:
        """The result; `first` is the generation that this call began with."""
        setup, done = self.setup, int(state.done)
        agents = -(-done // setup.per_run) * setup.runs
        steps, seconds = done * setup.steps, float(state.seconds[:done].sum())
        costs = {  # Of all generations, those of earlier calls among them.
            "generations": done,
            "agents": agents,
            "env_steps": steps,
            "train_seconds": round(seconds, 2),
            "agents_per_second": round(agents / max(seconds, 1e-9), 3),
            "steps_per_second": round(steps / max(seconds, 1e-9)),
            "lanes": self.training.lanes,
        }
        call = {
            "generations_run": done - first,
            "compile_seconds": round(self.training.compile_seconds, 2),
        }
        result = EvolutionResult(
            setup.config,
            setup.settings,
            self.optimiser,
            state,
            self.options.folder,
            {**call, **costs},
        )
        if self.folder is not None and done:
            result.save(self.folder)
            folders.write_summary(
                self.folder, costs, call, done > first, ["compile_seconds"]
            )
        return result

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
