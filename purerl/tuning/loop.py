"""One call of `purerl.tune`: batches until all trials have finished, then the rest."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from purerl.atomic import write_atomic
from purerl.report.plots import tuning as plots
from purerl.runner.interrupt import Interrupt
from purerl.runner.manifest import evaluations, notes
from purerl.runner.progress import Reporter
from purerl.runner.trackers import Tracker
from purerl.storage.lock import locked
from purerl.train import bind
from purerl.tuning import folder, saved
from purerl.tuning import result as results
from purerl.tuning.batch import Batch
from purerl.tuning.console import batch_line
from purerl.tuning.holdout import compare_on_fresh_seeds, fresh_seeds
from purerl.tuning.pool import Pool, TrialSettings
from purerl.tuning.result import Holdout, TuneResult
from purerl.tuning.space import Space
from purerl.tuning.tracking import Tracking

if TYPE_CHECKING:
    from purerl.tuning.study import Study

HOLDOUT = "holdout"  # study attribute: the comparison, once it has been made
POLL_SECONDS = 1.0


class Options(NamedTuple):
    """The way a study is searched; only the seed is part of what it is.

    Attributes:
        trials: The number of trials that are to finish.
        sampler: The kind of sampler.
        pruner: The kind of pruner, or None.
        storage: The URL of Optuna's storage, if one was given.
        study: The study's name in the storage, if one was given.
        batch: The number of trials that are trained side by side.
        seed: The seed of the sampler.
        holdout_seeds: The number of fresh seeds of the comparison; 0 leaves it out.
        trackers: Trackers that are told of trials when they finish.
    """

    trials: int
    sampler: str
    pruner: str | None
    storage: str | None
    study: str | None
    batch: int
    seed: int
    holdout_seeds: int
    trackers: Sequence[Tracker] = ()


class StudyLoop:
    """One call of `tune`: the pieces that its phases share.

    Args:
        space: The axes that are searched.
        settings: Base config, seeds, fitness, reports and lanes of all batches.
        options: Options of how the study is searched.
        out: The folder of the study, or None.
        progress: Whether to show the progress.
    """

    def __init__(
        self,
        space: Space,
        settings: TrialSettings,
        options: Options,
        out: Path | None,
        progress: bool,
    ) -> None:
        self.space, self.settings, self.options = space, settings, options
        self.folder = out
        self.reporter = Reporter(1, enabled=progress)
        self.began = time.perf_counter()
        self.trained = 0
        self.tracking = Tracking(settings.config, options.trials, out, options.trackers)

    def run(self) -> TuneResult:
        """Carry out what is missing of the study, and tell trackers."""
        from purerl.tuning.storage import quiet

        # Several processes may share a study.
        with locked(self.folder, shared=True), quiet():
            study = self._open()
            self.pool = Pool(self.settings)
            self._begin_trackers(study)
            with self.tracking.group:
                result = self._carry_out(study)
                self.tracking.close(result.finished)
            return result

    def _begin_trackers(self, study: "Study") -> None:
        self.tracking.begin(self.reporter.notify)
        if not study.counts().running:  # Otherwise other workers tell of their trials.
            self.tracking.add(study.rows())

    def _carry_out(self, study: "Study") -> TuneResult:
        """Search, compare on fresh seeds, write the folder."""
        with study.at_work(), Interrupt(lambda: self.tracking.group.stop) as interrupt:
            self._search(study, interrupt)
            is_done = study.counts().finished >= self.options.trials
            holdout = None
            if is_done and self.options.holdout_seeds and not interrupt.asked:
                holdout = self._hold_out(study)
        return self._result(study, is_done, holdout)

    def _open(self) -> "Study":
        from purerl.tuning.storage import open_study, sqlite_url

        options = self.options
        spec = folder.spec(self.space, self.settings, options.seed)
        url = options.storage
        name = options.study or f"{spec['config']['env']}-{spec['config']['algorithm']}"
        if self.folder is not None:
            folder.start(self.folder, spec, name)
            if url is None:
                self._check_database(self.folder)
                url = sqlite_url(self.folder / folder.DATABASE)
        study = open_study(
            self.space,
            spec,
            storage=url,
            name=name,
            budget=options.trials,
            sampler=options.sampler,
            pruner=options.pruner,
        )
        if self.folder is not None:
            saved.check_study(self.folder, self.space, study.rows)
            run = {**options._asdict(), "study": name, "lanes": self.settings.lanes}
            del run["storage"]  # An address may hold a password.
            del run["trackers"]
            folder.describe(self.folder, self.settings.config, spec, run)
        self._say_what_to_expect()
        return study

    def _check_database(self, out: Path) -> None:
        """Refuse a folder whose own database is gone or damaged."""
        from purerl.tuning.storage import reason_of_damage

        path = out / folder.DATABASE
        if path.exists() and path.stat().st_size:
            if why := reason_of_damage(path):
                raise saved.study_is_damaged(out, why)
        else:
            saved.check_study(out, self.space, list)

    def _say_what_to_expect(self) -> None:
        bound = bind(self.settings.config)
        for line in (evaluations(bound), *notes(bound)):
            self.reporter.info(f"of the config itself, {line}")
        planned = bound.plan.evaluate_after
        if self.options.pruner and 0 < len(planned) < self.settings.reports:
            self.reporter.info(
                f"the config evaluates {len(planned)} times, so the pruner looks only "
                "as often; more evaluations need a larger eval_share or fewer "
                "eval_episodes (num_evaluations=0 scores by the training return)"
            )
        outside = self.space.outside()
        if outside:
            self.reporter.info(
                f"the config's own {', '.join(outside)} is not on its axis, so the "
                "default is no trial; it is compared on fresh seeds in the end"
            )

    def _search(self, study: "Study", interrupt: Interrupt) -> None:
        """Train batches until the study has its trials."""
        waited = False
        while not interrupt.asked:
            rescued = study.rescue()
            if rescued:
                self.reporter.info(f"{rescued} trials of a stopped worker wait again")
            if study.counts().finished >= self.options.trials:
                return
            trials = study.ask(self.options.batch)
            if trials:
                waited = False
                self._train(study, trials, interrupt)
                continue
            if not waited:
                running = study.counts().running
                self.reporter.info(f"waiting for {running} trials of other workers")
            waited = True
            time.sleep(POLL_SECONDS)

    def _train(self, study: "Study", trials: list[Any], interrupt: Interrupt) -> None:
        """Train a batch; what is not finished is given back, whatever happens."""
        open_trials = dict(enumerate(trials))
        try:
            points = [self.space.point(trial.params) for trial in trials]
            batch = Batch(self.pool, points)
            for number, reason in batch.refused.items():
                detail = {"state": "refused", "note": reason}
                study.finish(open_trials.pop(number), None, detail)
            with self._bar(batch) as bar:
                for report in range(1, self.settings.reports + 1):
                    if interrupt.asked or not open_trials:
                        break
                    batch.advance(report)
                    scores = [batch.score(number).value for number in open_trials]
                    bar.update(int(batch.steps.sum()), _mean(scores))
                    self._report_scores(study, batch, open_trials)
        finally:
            study.give_back(list(open_trials.values()))
        rows = study.rows()
        numbers = {trial.user_attrs["stream"] for trial in trials}
        self.tracking.add(row for row in rows if row.number in numbers)
        self.reporter.info(batch_line(rows, self.options.trials))
        self._write_table(rows)

    def _bar(self, batch: Batch) -> Reporter:
        """Progress of a batch, on a terminal; elsewhere a line per batch is enough."""
        console = self.reporter.console
        is_shown = self.reporter.enabled and console.is_terminal
        return Reporter(max(1, batch.planned_steps), 0, console, is_shown)

    def _report_scores(
        self, study: "Study", batch: Batch, open_trials: dict[int, Any]
    ) -> None:
        """Report scores, and finish trials that are done, pruned or diverged."""
        reports, stopped = self.settings.reports, []
        for number, trial in list(open_trials.items()):
            # In steps of the budget, which trials of several programs have in common.
            reached = batch.reached(number)
            step = round(reached * self.settings.config.total_timesteps / reports)
            is_done = reached == reports
            score = batch.score(number)
            is_new, state = batch.has_news(number), ""
            if score.diverged:
                state = "diverged"
            elif is_done:
                state = "complete" if score.value == score.value else "unknown"
            if is_new and not score.diverged:
                trained = batch.trained(number)
                is_hopeless = study.report(trial, score.value, step, trained)
                if is_hopeless and not is_done:
                    state = "pruned"
            if not state:
                continue
            detail = {
                "state": state,
                "seed_scores": [None if s != s else float(s) for s in score.seeds],
                "env_steps": score.env_steps,
            }
            study.finish(trial, score.value if state == "complete" else None, detail)
            del open_trials[number]
            stopped.append(number)
            self.trained += 1
        if stopped:
            batch.stop(stopped)

    def _hold_out(self, study: "Study") -> Holdout | None:
        best = results.best_of(study.rows())
        if best is None:
            return None
        seeds = fresh_seeds(self.settings.seeds, self.options.holdout_seeds)
        stored = study.study.user_attrs.get(HOLDOUT)
        if stored and (stored["trial"], stored["seeds"]) == (best.number, list(seeds)):
            return results.read_holdout(stored)
        self.reporter.info(
            f"training trial {best.number} and the default with {len(seeds)} fresh "
            "seeds"
        )
        holdout = compare_on_fresh_seeds(
            self.pool,
            best.number,
            self.space.point(best.params),
            self.space.default_point(),
            len(seeds),
        )
        study.study.set_user_attr(HOLDOUT, results.holdout_dict(holdout))
        return holdout

    def _result(
        self, study: "Study", is_done: bool, holdout: Holdout | None
    ) -> TuneResult:
        rows = study.rows()
        best = results.best_of(rows)
        config = self.space.config_at(self.space.point(best.params)) if best else None
        result = TuneResult(
            rows=tuple(rows),
            best_config=config,
            best_row=best,
            holdout=holdout,
            importance=study.importance(),
            finished=is_done,
            summary=self._summary(rows),
            out=self.folder,
        )
        if self.folder is not None:
            results.write(self.folder, result)
            shown = plots.figures(rows, result.importance, self.space.drawn())
            for name, figure in shown.items():
                plots.save(figure, self.folder / f"{name}.png")
        return result

    def _summary(self, rows: Sequence[results.Row]) -> dict[str, Any]:
        states = [row.state for row in rows]
        return {
            "trials": sum(row.state not in ("running", "waiting") for row in rows),
            **{state: states.count(state) for state in results.STATES},
            "trained_trials": self.trained,
            "env_steps": self.pool.env_steps,
            "block_calls": self.pool.calls,
            "compilations": self.pool.compilations,
            "compile_seconds": round(self.pool.compile_seconds, 2),
            "seconds": round(time.perf_counter() - self.began, 2),
        }

    def _write_table(self, rows: Sequence[results.Row]) -> None:
        if self.folder is not None:
            text = results.csv_text(rows)
            write_atomic(self.folder / results.TABLE, text)


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the known values; NaN where none is known."""
    known = [value for value in values if value == value]
    return sum(known) / len(known) if known else float("nan")
