"""purerl.evolve: evolve a loss, hyperparameters or the environment's physics.

A generation asks the strategy for a population, trains every member in blocks of lanes
over all devices, and tells the strategy what each was worth. The programs are compiled
once, in the first generation.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata

import jax
import numpy as np

from purerl import serialise
from purerl.execution import format as text
from purerl.execution.memory import require_listing
from purerl.meta import result as results
from purerl.meta.fitness import best_of_runs, check_progress, member_scores
from purerl.meta.result import State
from purerl.meta.training import (
    EvolutionSetup,
    EvolveOptions,
    Stopped,
    Training,
    start_key,
    strategy_keys,
)
from purerl.runner.manifest import notes
from purerl.runner.options import TOLD, tool
from purerl.runner.session import Session
from purerl.scale import hosts
from purerl.storage import folders


class EvolutionLoop:
    """One call of `purerl.evolve`: the pieces that its phases share.

    Args:
        setup: The evolution.
    """

    def __init__(self, setup: EvolutionSetup) -> None:
        self.setup, self.asked, self.optimiser = setup, setup.asked, setup.optimiser
        self.key = jax.random.key(self.asked.seed)
        self.training = Training(setup, self.key)
        self.session = Session(self.asked)
        # Of several processes the first one looks at the folder, and writes.
        self.folder = self.asked.folder if hosts.index() == 0 else None

    def run(self) -> results.EvolutionResult:
        """Train all generations that are missing, and return the result."""
        session, setup = self.session, self.setup
        with session:
            state, generations = self.open()
            first = session.saved_at = int(state.done)
            session.expect(generations * setup.steps, first * setup.steps)
            about = setup.config, setup.settings, self.folder, state
            told = partial(results.told, *about, setup.steps, setup.names)
            hosts.run_on_all(lambda: session.begin(told))
            if first >= generations:
                session.reporter.info(f"all {generations:,} generations had finished")
            else:
                state = self._evolve(state, generations)
            result = self._result(state, first)
            files = partial(results.tracked_files, result, session.reporter.info)
            session.close(result.done >= generations, files)
        return result

    def _evolve(self, state: State, generations: int) -> State:
        """The generations that are missing, until somebody asks to stop."""
        session, reporter = self.session, self.session.reporter
        reporter.info(self._banner())
        for bound in self.setup.bounds:
            for line in notes(bound, [self.optimiser.genome.values]):
                reporter.info(line)
        self._compile()
        reporter.info(f"compiled in {self.training.compile_seconds:.1f} s")
        session.check_room(sum(np.asarray(x).nbytes for x in jax.tree.leaves(state)))
        each, words, lock = self.setup.steps, "", threading.Lock()
        shown = float(int(state.done) * each)

        def is_stopped() -> bool:
            return session.is_stopped

        def on_runs(runs: int) -> None:
            nonlocal shown
            with lock:
                shown += each * runs / self.setup.runs
                if reporter.is_live:  # Elsewhere a line per generation is enough.
                    reporter.update(shown, words)

        with session.interrupt, reporter:
            try:
                if not np.isfinite(state.anchors).all():
                    anchors = self.training.measured_anchors(is_stopped)
                    state = state._replace(anchors=anchors)
                running = state
                while int(state.done) < generations:
                    running = self.generation(running, on_runs, is_stopped)
                    shown = float(int(running.done) * each)
                    words = _words(running, generations)
                    reporter.update(shown, words)
                    if int(running.done) % self.setup.per_run:
                        continue  # Its training runs have not ended.
                    state = running
                    self._save(state, force=int(state.done) == generations)
            except Exception as error:
                # What has been trained is not lost to what could not be.
                is_stop, done = isinstance(error, Stopped), int(state.done)
                self._save(state, force=done > 0)
                if is_stop or done:
                    session.say_stopped(f" after generation {done:,}")
                if not is_stop:
                    raise
        return state

    def open(self) -> tuple[State, int]:
        """Return the state to go on from, equal in every process, and where to stop."""
        rows = int(hosts.broadcast(hosts.run_on_all(self._open_folder)))
        key, environments = start_key(self.key), len(self.setup.bounds)
        state = results.fresh_state(self.optimiser, key, rows, environments)
        if self.setup.anchors is not None:
            state = state._replace(anchors=self.setup.anchors)
        state = hosts.run_on_all(lambda: self._restored(state))
        state = State(*hosts.broadcast(tuple(state)))
        self.training.lanes = int(hosts.broadcast(self.training.lanes))
        self.training.is_fixed |= int(state.done) > 0
        return state, max(self.asked.generations, int(state.done))

    def _open_folder(self) -> int:
        """Rows of the history; takes over what a folder was started with."""
        setup, asked = self.setup, self.asked
        if self.folder is None:
            return asked.generations
        automatic = [bound.automatic for bound in setup.bounds]
        spec = {
            "kind": results.KIND,
            "format": results.FORMAT,
            "config": serialise.to_dict(setup.config),
            "auto": dict(zip(setup.names, automatic, strict=True)),
            "settings": setup.settings,
            "options": asked.kept(TOLD),
            "steps": setup.steps,
            "generations": asked.generations,
            "lanes": self.training.lanes,
            "lanes_asked": asked.lanes,
            "segment_updates": asked.segment_updates,
            "evosax": metadata.version("evosax"),
        }
        stored = results.open_folder(self.folder, spec)
        self.session.compare_versions(stored)
        if (before := stored["evosax"]) != spec["evosax"]:
            self.session.reporter.notify(
                f"resumed with evosax {spec['evosax']}, not {before}: bits may differ"
            )
        self.training.lanes = stored["lanes"]
        return stored["generations"]

    def _restored(self, state: State) -> State:
        """Return the state in the folder's newest checkpoint, else the fresh one."""
        if self.folder is None:
            return state
        restored = results.restore(self.folder, state)
        if restored is None:
            folders.refuse_lost_checkpoints(self.folder)
        return restored or state

    def _compile(self) -> None:
        """Compile the programs of a generation; the folder keeps how wide they are."""
        before = self.training.lanes
        self.training.compile()
        if self.training.lanes != before and self.folder:
            folders.update(self.folder, {"lanes": self.training.lanes})

    def generation(
        self,
        state: State,
        on_runs: Callable[[int], None],
        is_stopped: Callable[[], bool],
    ) -> State:
        """Ask the strategy for a population, train it, and tell what it was worth.

        Args:
            state: The state before the generation.
            on_runs: A function that is called after every chunk with its number of
                runs.
            is_stopped: A function that says whether somebody asked to stop.
        """
        began, number = time.perf_counter(), int(state.done)
        key_ask, key_tell = strategy_keys(self.key, number)
        vectors, overrides, strategy = self.optimiser.ask(key_ask, state.strategy)
        sigma = self.optimiser.sigma(strategy)
        returns = self.training.generation(number, overrides, on_runs, is_stopped)
        scores = member_scores(returns, state.anchors, self.asked.fitness)
        known = np.vstack([state.fitness[:number], scores])
        check_progress(best_of_runs(known, self.setup.per_run))
        updated = self.optimiser.tell(key_tell, vectors, scores, strategy)
        state = results.with_generation(
            state._replace(strategy=updated), vectors, scores, returns
        )
        state.sigma[number] = sigma
        state.seconds[number] = time.perf_counter() - began
        setup, trackers = self.setup, self.session.trackers
        results.tell(trackers, state, setup.settings, setup.steps, setup.names, number)
        return state

    def _save(self, state: State, force: bool) -> None:
        """Save the state now and then: what comes after is computed again."""
        folder, done = self.folder, int(state.done)
        if folder is None or done == self.session.saved_at:
            return
        every = self.asked.snapshot_every
        if every and done // every > (done - self.setup.per_run) // every:
            mean = self.optimiser.mean(state.strategy)
            results.save_snapshot(folder, done, state.best if mean is None else mean)
        self.session.save(done, lambda: results.save(folder, state), force)

    def _result(self, state: State, first: int) -> results.EvolutionResult:
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
        result = results.EvolutionResult(
            setup.config,
            setup.settings,
            self.optimiser,
            state,
            self.asked.folder,
            {**call, **costs},
        )
        if self.folder is not None and done:
            result.save(self.folder)
            folders.write_summary(
                self.folder, costs, call, done > first, ["compile_seconds"]
            )
        return result

    def _banner(self) -> str:
        setup, asked = self.setup, self.asked
        return (
            f"{setup.settings['strategy']['name']} over "
            f"{text.with_noun(self.optimiser.genome.size, 'number')} of "
            f"{', '.join(setup.settings['evolve'])}: {asked.population:,} members x "
            f"{text.with_noun(asked.rollouts, 'rollout')} in {', '.join(setup.names)}, "
            f"{text.format_count(setup.steps)} steps a generation"
        )


def _words(state: State, generations: int) -> str:
    """What the last generation of a state was worth, for the progress."""
    done = int(state.done)
    scores = state.fitness[done - 1]
    known = scores[np.isfinite(scores)]
    best, mean = (known.max(), known.mean()) if known.size else (np.nan, np.nan)
    failed = f"  failed {scores.size - known.size}" if known.size < scores.size else ""
    number = f"generation {done:,}/{generations:,}"
    return f"{number}  best {best:.4g}  mean {mean:.4g}{failed}"


@tool(EvolveOptions)
def evolve(asked: EvolveOptions) -> results.EvolutionResult:
    """Evolve leaves of a config so that what is trained with them is worth most.

    All members of a generation train with the same random keys, and the next generation
    with others: what is compared is what is evolved. A member is worth the mean of its
    runs' fitness over rollouts and environments. One whose training meets a number that
    is not finite is ranked last and counted.

    With `out`, the same call after a kill goes on, and the result is bitwise that of an
    uninterrupted one. Under `jax.distributed` every process trains its share.

    Raises:
        ConfigError: anything that cannot be evolved, or a folder of another evolution
            (with what differs); before anything is trained.
    """
    setup = EvolutionSetup(asked)
    require_listing(setup.runs_each, asked.config.total_timesteps)
    return EvolutionLoop(setup).run()
