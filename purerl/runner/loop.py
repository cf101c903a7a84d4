"""The host loop around the compiled program of a run.

Segments of updates run on the devices; between them the host writes metrics, shows
progress, saves checkpoints, and listens for Ctrl-C and trackers that stop the run.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl import serialise
from purerl.execution.cohort import Cohort, make_cohort
from purerl.execution.format import format_count, with_noun
from purerl.execution.hosted import HostedCohort, HostedProgram
from purerl.execution.members import every
from purerl.runner.interrupt import Interrupt
from purerl.runner.manifest import CURVE, evaluations, how_to_go_on, notes
from purerl.runner.result import RunResult, write_summary
from purerl.runner.rows import (
    DIVERGED,
    Divergence,
    Records,
    read_diverged_at,
    stack_rows,
)
from purerl.runner.start import Begun
from purerl.runner.trackers import Tracker
from purerl.runner.trackers.base import describe
from purerl.runner.trackers.group import Group
from purerl.runner.trackers.writer import Notify
from purerl.scale.devices import make_workers
from purerl.storage import checkpoint, folders
from purerl.storage.checkpoint import Pace
from purerl.train import Bound, make_segment
from purerl.types import PyTree

NEW_EPISODES = (
    "the environments are on the host and were not saved: all of them begin new "
    "episodes, so that the run is not the uninterrupted one bit for bit"
)
# Number of finished updates, and the arrays of a checkpoint by name.
Restored = tuple[int, dict[str, np.ndarray]]


class RunLoop:
    """One call of `purerl.run`: the pieces that its phases share.

    Args:
        bound: Config, environment and plan of every agent.
        seeds: Seeds of the agents.
        options: The `RunOptions`, with the lanes and segments that hold.
        trackers: Trackers of this call, beside JSON lines.
        begun: The agents to begin with, where they are not fresh.
    """

    def __init__(
        self,
        bound: Bound,
        seeds: tuple[int, ...],
        options: Any,
        trackers: Sequence[Tracker],
        begun: Begun | None,
    ) -> None:
        self.bound, self.seeds, self.folder = bound, seeds, options.folder
        self.options, self.begun = options, begun
        self.trackers = Group(trackers)
        self.records = Records(seeds, self.folder, self.trackers)
        self.divergence = Divergence(seeds)
        self.notify: Notify = print
        self.is_disk_full = False
        self.saved_at = self.tried_at = 0
        self.pace = Pace(options.checkpoint_seconds)

    def run(self, resume: bool) -> RunResult:
        """Train what is missing of the run."""
        # Imported here so that only callers that run pay for importing rich.
        from purerl.runner.progress import Reporter

        restored = self._restore() if resume else None
        first = self.begun.first_update if self.begun else 0
        first = restored[0] if restored else first
        self.saved_at = self.tried_at = first
        total = self.bound.plan.num_updates
        each = self.bound.plan.steps_per_update * len(self.seeds)
        reporter = Reporter(total * each, first * each, enabled=self.options.progress)
        self.notify = reporter.notify  # whether progress is shown or not
        for line in self._where_it_goes_on(restored):
            reporter.info(line)
        config = serialise.to_dict(self.bound.config) if self.trackers else {}
        run = describe(self.folder, config, self.seeds)
        self.trackers.begin(run, self.notify)
        self.records.send_missing(self.trackers)
        for sentence in self.trackers.where():
            reporter.info(sentence)
        if restored and first >= total:
            with self.trackers:
                shapes = jax.eval_shape(
                    make_segment(self.bound).init, jax.random.key(0)
                )
                where = self._folder / "checkpoints"
                state = checkpoint.unflatten(restored[1], shapes, where)
                result = self._result(state, 0.0, 0.0, first, total)
        else:
            result = self._train(restored, first, reporter)
        if result.finished:
            write_summary(result)
        status = "finished" if result.finished else "interrupted"
        files = partial(tracked_files, result, self.notify)
        self.trackers.close(status, files)
        return result

    def _where_it_goes_on(self, restored: Restored | None) -> list[str]:
        if not restored:
            return [self.begun.sentence()] if self.begun else []
        lines = [f"resuming {self.folder} after update {restored[0]:,}"]
        if self.bound.env.on_host:
            lines.append(NEW_EPISODES)
        note = folders.differences_of_versions(folders.load(self._folder))
        return [*lines, f"[yellow]{note}"] if note else lines

    def _train(self, restored: Restored | None, first: int, reporter: Any) -> RunResult:
        """Compile, train until the end or until somebody stops it, and sum up."""
        with Interrupt(lambda: self.trackers.stop) as interrupt, self.trackers:
            for line in (self._banner(), *notes(self.bound)):
                reporter.info(line)
            cohort = self._cohort()
            reporter.info(f"compiled in {cohort.compile_seconds:.1f} s")
            began = time.perf_counter()
            with closing(cohort):
                if restored:
                    shapes, where = cohort.program.member_shapes(), self._folder
                    states = checkpoint.unflatten(
                        restored[1], shapes, where / "checkpoints", goes_on=True
                    )
                    cohort.restore(states, first)
                else:
                    cohort.init()
                    if self.begun:
                        cohort.restore(self.begun.put(cohort.gather()), first)
                with reporter:
                    update = self._segments(cohort, first, interrupt, reporter)
        if update < self.bound.plan.num_updates:
            reporter.notify(self._how_to_resume(update))
        compiled, seconds = cohort.compile_seconds, time.perf_counter() - began
        return self._result(cohort.gather(), compiled, seconds, first, update)

    def _result(
        self, state: PyTree, compiled: float, seconds: float, first: int, update: int
    ) -> RunResult:
        """The result of a call that trained from one update to another."""
        plan = self.bound.plan
        return RunResult(
            config=self.bound.config,
            seeds=self.seeds,
            update=max(first, update),
            state=state,
            metrics=stack_rows(self.records.rows["train"]),
            evaluation=stack_rows(self.records.rows["evaluation"]),
            finished=update >= plan.num_updates,
            compile_seconds=compiled,
            train_seconds=seconds,
            train_steps=max(0, update - first)
            * plan.steps_per_update
            * len(self.seeds),
            out=self.folder,
            diverged_at=self.divergence.diverged_at,
        )

    def _segments(
        self,
        cohort: Cohort | HostedCohort,
        update: int,
        interrupt: Interrupt,
        reporter: Any,
    ) -> int:
        """Train segment by segment, and save now and then; the last update."""
        plan = self.bound.plan
        each = plan.steps_per_update * len(self.seeds)

        def is_stopped() -> bool:
            if interrupt.asked:
                return True
            is_tried = self.folder is None or cohort.update == self.tried_at
            return not is_tried and self.pace.is_due()

        asked = interrupt.asked
        while update < plan.num_updates and not asked:
            try:
                for segment in cohort.segments(plan.num_updates, is_stopped):
                    latest = self.records.add(plan, segment)
                    update = segment.end
                    reporter.update(update * each, latest)
                    if sentence := self.divergence.sentence(segment):
                        self.notify(sentence)
                        self._write_diverged()
            except Exception as error:
                self._save_after(error, cohort)
                raise
            asked = interrupt.asked
            self._save(cohort, is_last=asked)
        return update

    def _cohort(self) -> Cohort | HostedCohort:
        """Return the agents and their program."""
        members, options = every({}, 1, self.seeds), self.options
        if self.bound.env.on_host:
            program = HostedProgram(self.bound)
            return HostedCohort(program, members.keys, options.segment_updates)
        return make_cohort(
            self.bound,
            members,
            options.lanes,
            options.segment_updates,
            data_parallel=options.data_parallel,
        )

    @property
    def _folder(self) -> Path:
        assert self.folder is not None
        return self.folder

    def _banner(self) -> str:
        config, plan = self.bound.config, self.bound.plan
        device = jax.local_devices()[0]
        lanes = f"({with_noun(len(make_workers()), 'worker')}, "
        lanes += f"{with_noun(self.options.lanes, 'lane')})"
        if self.bound.env.on_host:
            lanes = "(environments on the host, agents in turns)"
        steps = plan.num_updates * plan.steps_per_update
        ratio = getattr(config, "update_ratio", None)
        learning = ""
        if ratio is not None:
            unit = "step" if ratio == 1 else "steps"
            learning = f"{ratio:.3g} gradient {unit} per environment step, "
        return (
            f"{with_noun(len(self.seeds), 'agent')}, {self.bound.env.name}, "
            f"{format_count(steps)} steps each, "
            f"{with_noun(plan.num_updates, 'update')}, {learning}"
            f"{evaluations(self.bound)}, on {device.device_kind} {lanes}"
        )

    def _save(self, cohort: Cohort | HostedCohort, is_last: bool) -> None:
        """Write a checkpoint; where it cannot be, only the last one is an error."""
        if self.folder is None or cohort.update == self.saved_at:
            return
        folder = self.folder / "checkpoints"
        self.tried_at = cohort.update
        try:
            with self.pace.saving():
                states = cohort.gather()
                checkpoint.save(
                    folder, cohort.update, states, self.options.keep_checkpoints
                )
            self.saved_at, self.is_disk_full = cohort.update, False
        except checkpoint.NotSavedError as error:
            if is_last or cohort.update >= self.bound.plan.num_updates:
                raise
            if not self.is_disk_full:  # said once, until there is room again
                self.notify(f"{error} Training goes on without it.")
            self.is_disk_full = True

    def _save_after(self, error: Exception, cohort: Cohort | HostedCohort) -> None:
        """Save what was done before an environment of the host failed, and say so."""
        if not isinstance(cohort, HostedCohort) or cohort.failed is None:
            return
        seed, update = self.seeds[cohort.failed[0]], cohort.failed[1]
        error.add_note(
            f"purerl: this was raised while the agent of seed {seed} made update "
            f"{update:,} in {self.bound.env.name}."
        )
        if self.folder is None:
            error.add_note("purerl: nothing was saved (no out folder).")
            return
        if cohort.program.keeps_states and cohort.update > 0:
            try:
                self._save(cohort, is_last=True)
            except checkpoint.NotSavedError as unsaved:
                error.add_note(f"purerl: {unsaved}")
        saved = checkpoint.steps(self.folder / "checkpoints")
        note = f"update {saved[-1]:,} is saved. {self._go_on()}" if saved else ""
        error.add_note(f"purerl: {note or 'no update was saved.'}")

    def _restore(self) -> Restored | None:
        """The last checkpoint, and the rows up to it; None if it saved none yet."""
        folder = self._folder / "checkpoints"
        restored = checkpoint.restore(folder) if checkpoint.steps(folder) else None
        if restored:
            self.records.rewind(restored[0])
        else:
            folders.refuse_lost_checkpoints(self._folder)
            self.records.back_up()
        if self.bound.env.on_host:  # New episodes, so that its rows are others.
            self.records.rewind_trackers()
        stored, update = folders.load(self._folder), restored[0] if restored else 0
        found = read_diverged_at(stored, self.seeds, update)
        self.divergence.diverged_at = found
        self._write_diverged()
        return restored

    def _write_diverged(self) -> None:
        """Write into the folder which agents have diverged, before a checkpoint is."""
        if self.folder is None:
            return
        entry = self.divergence.entry
        if entry != folders.load(self.folder).get(DIVERGED):
            folders.update(self.folder, {DIVERGED: entry})

    def _how_to_resume(self, update: int) -> str:
        if self.folder is None:
            return (
                f"stopped after update {update:,}; nothing was saved (no out folder), "
                "and the agents are in the result alone"
            )
        what = f"after update {update:,} and saved it"
        if update == 0:
            what = "before the first update, with nothing to save yet"
        return f"stopped {what}. {self._go_on()}"

    def _go_on(self) -> str:
        """Return the sentence on how to go on from the last checkpoint."""
        return how_to_go_on(self.bound.config, self.seeds, self._folder)


def tracked_files(result: RunResult, notify: Notify, drawn: Path) -> dict[str, Path]:
    """Return the files of a run that trackers keep, by name.

    `run/` holds config.yaml, manifest.json and the last checkpoint (the parameters of
    all seeds) as in a run's folder, so that `purerl.load_run` reads it;
    `figures/curve.png` is the learning curve of a finished run.

    Args:
        result: The result of the run.
        notify: A function that prints a sentence for people.
        drawn: A folder to draw into where the run has none.
    """
    out, files = result.out, {}
    if out is not None:
        saved = checkpoint.steps(out / "checkpoints")
        names = ["config.yaml", "manifest.json"]
        names += [f"checkpoints/{step}" for step in saved[-1:]]
        files = {f"run/{name}": out / name for name in names if (out / name).exists()}
    if result.finished:
        path = (out or drawn) / CURVE
        try:
            from purerl.report import plots

            plots.learning_curve(result, path)
            files[f"figures/{CURVE}"] = path
        except Exception as error:  # A picture is not worth a run.
            notify(f"the learning curve could not be drawn ({error}).")
    return files
