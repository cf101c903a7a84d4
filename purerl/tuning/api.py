"""purerl.tune: axes and a budget of trials in, the best config out.

One call of it: batches until all trials have finished, then best against default on
fresh seeds, because the winner of a search is partly lucky.
"""

import dataclasses
import importlib.util
import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.execution.curves import mean_of_known
from purerl.execution.format import format_count, format_duration, say, with_noun
from purerl.execution.memory import require_listing
from purerl.report import plots
from purerl.report.statistics import lowest_of
from purerl.runner.arguments import NUM_SEEDS, check_seeds, num_seeds
from purerl.runner.manifest import dropped_evaluations, evaluations, notes
from purerl.runner.options import tool
from purerl.runner.progress import Reporter
from purerl.runner.session import Session
from purerl.scale.devices import make_workers
from purerl.search.fitness import check_own
from purerl.space.axes import in_a_line
from purerl.storage.files import jsonable
from purerl.train import bind
from purerl.tuning import result as results
from purerl.tuning.batch import Batch, Pool, Score, choose_lanes
from purerl.tuning.result import Holdout, Row, TuneResult, best_of
from purerl.tuning.space import Space, TuneOptions

if TYPE_CHECKING:
    from purerl.tuning.study import Study


def fresh_seeds(used: Sequence[int], num: int) -> tuple[int, ...]:
    """Return `num` seeds that no trial has had: those that follow, or the first."""
    first = max(used) + 1
    first = first if first + num <= NUM_SEEDS else 0
    return tuple(
        itertools.islice((n for n in itertools.count(first) if n not in used), num)
    )


HOLDOUT = "holdout"  # study attribute: the comparison, once it has been made
POLL_SECONDS = 1.0


class StudyLoop:
    """One call of `tune`: the pieces that its phases share.

    Args:
        space: The axes that are searched.
        options: The options of the study, with its seeds and its lanes.
    """

    def __init__(self, space: Space, options: TuneOptions) -> None:
        self.space, self.options = space, options
        self.folder = options.folder
        self.session = Session(options, shared=True)  # Several processes may share it.
        self.reporter = self.session.reporter
        self.began = time.perf_counter()
        self.trained = 0

    def run(self) -> TuneResult:
        """Carry out what is missing of the study, and tell trackers."""
        from purerl.tuning.study import quiet

        config, total = self.options.config, self.options.trials
        with self.session as session, quiet():
            study = self._open()
            self.pool = Pool(self.options)
            about = config, self.folder, total
            # Where other workers are at work, they tell of their trials.
            rows = [] if study.counts().running else study.rows()
            session.begin(lambda: results.told(*about, rows))
            with study.at_work(), session.interrupt:
                self._search(study)
                is_done = study.counts().finished >= total
                if session.is_stopped and not is_done:
                    self.reporter.notify(
                        "stopped; the same call with out= goes on with finished trials"
                    )
                holdout = None
                if is_done and self.options.holdout_seeds and not session.is_stopped:
                    holdout = self._hold_out(study)
                result = self._result(study, is_done, holdout)
            if is_done and all(row.state == "refused" for row in result.rows):
                raise ConfigError(result.rows[0].note)
            files = results.told(*about, (), result.finished).files
            session.close(result.finished, files)
        return result

    def _open(self) -> "Study":
        from purerl.tuning.study import check_database, open_study, sqlite_url

        options, folder = self.options, self.folder
        spec, url = results.spec(self.space, options), options.storage
        env, algorithm = spec["config"]["env"], spec["config"]["algorithm"]
        name = options.study or f"{serialise.env_name(env)}-{algorithm}"
        seeds = len(spec["seeds"])
        chosen = choose_lanes(options.batch * seeds, seeds, make_workers())
        lanes = options.lanes or chosen
        if folder is not None:
            stored = results.open_folder(folder, self.space, options, name, lanes)
            lanes = stored["lanes"]
            if url is None:
                check_database(folder)
                url = sqlite_url(folder / results.DATABASE)
        self.options = dataclasses.replace(options, lanes=lanes)
        options = dataclasses.replace(self.options, storage=url)
        study = open_study(self.space, spec, options, name)
        if folder is not None:
            results.check_study(folder, study.rows)
        self._say_what_to_expect()
        return study

    def _say_what_to_expect(self) -> None:
        bound = bind(self.options.config)
        for line in (evaluations(bound), *notes(bound)):
            self.reporter.info(f"{line} (for the config itself)")
        if not self.options.progress:
            for line in dropped_evaluations([bound]):
                say(line)
        if outside := self.space.outside():
            self.reporter.info(
                f"the config's own {', '.join(outside)} is not on its axis, so the "
                "default is no trial; it is compared on fresh seeds in the end"
            )

    def _search(self, study: "Study") -> None:
        """Train batches until the study has its trials."""
        waited = False
        while not self.session.is_stopped:
            if rescued := study.rescue():
                self.reporter.info(f"{rescued} trials of a stopped worker wait again")
            if study.counts().finished >= self.options.trials:
                return
            if trials := study.ask(self.options.batch):
                waited = False
                self._train(study, trials)
                continue
            if not waited:
                running = study.counts().running
                self.reporter.info(f"waiting for {running} trials of other workers")
            waited = True
            time.sleep(POLL_SECONDS)

    def _train(self, study: "Study", trials: list[Any]) -> None:
        """Train a batch; what is not finished is given back, whatever happens."""
        going = dict(enumerate(trials))
        try:
            points = [self.space.point(trial.params) for trial in trials]
            batch = Batch(self.pool, points)
            for number, reason in batch.refused.items():
                detail = {"state": "refused", "note": reason}
                study.finish(going.pop(number), None, detail)
            about = self.reporter
            steps = max(1, batch.planned_steps)
            # On a terminal; elsewhere a line per batch is enough.
            with Reporter(steps, 0, about.console, about.is_live, about.cell) as bar:
                for report in range(1, self.options.reports + 1):
                    if self.session.is_stopped or not going:
                        break
                    batch.advance(report)
                    scores = {number: batch.score(number) for number in going}
                    values = np.array([score.value for score in scores.values()])
                    bar.update(batch.env_steps, mean_of_known(values))
                    ended = self._report_scores(study, scores, going)
                    batch.stop(ended)
        finally:
            study.give_back(list(going.values()))
        rows = study.rows()
        numbers = {trial.number for trial in trials}
        results.tell(
            self.session.trackers, [row for row in rows if row.number in numbers]
        )
        self.reporter.info(batch_line(rows, self.options.trials))
        if self.folder is not None:
            results.write_trials(self.folder, rows)

    def _report_scores(
        self, study: "Study", scores: dict[int, Score], going: dict[int, Any]
    ) -> list[int]:
        """Report scores, and finish trials; return the numbers of those that ended."""
        ended = []
        for number, score in scores.items():
            trial, state = going[number], score.state
            if score.is_new and study.report(trial, score.value, score.step):
                state = state or "pruned"
            if state:
                worth = score.value if state == "complete" else None
                study.finish(trial, worth, {"state": state, **score.detail})
                del going[number]
                ended.append(number)
        self.trained += len(ended)
        return ended

    def _hold_out(self, study: "Study") -> Holdout | None:
        best = best_of(study.rows())
        if best is None:
            return None
        seeds = fresh_seeds(self.pool.seeds, self.options.holdout_seeds)
        stored = study.study.user_attrs.get(HOLDOUT)
        if stored and (stored["trial"], stored["seeds"]) == (best.number, list(seeds)):
            return results.read_holdout(stored)
        self.reporter.info(
            f"training trial {best.number} and the default with "
            f"{with_noun(len(seeds), 'fresh seed')}"
        )
        # By programs of the lanes and segments of the study, as one batch.
        points = [self.space.point(best.params), self.space.default_point()]
        batch = Batch(self.pool, points, seeds)
        for reason in batch.refused.values():
            self.reporter.notify(f"not compared on fresh seeds: {reason}")
            return None
        for report in range(1, self.options.reports + 1):
            batch.advance(report)
        both = [batch.score(number) for number in (0, 1)]
        scores = np.stack([score.seeds for score in both])
        unknown = np.isnan(scores) & ~np.stack([score.diverged for score in both])
        lowest = np.fmin.reduce([lowest_of(s.along, s.diverged) for s in both])
        holdout = results.compare(best.number, seeds, scores, unknown, lowest)
        study.study.set_user_attr(HOLDOUT, jsonable(holdout))
        return holdout

    def _result(
        self, study: "Study", is_done: bool, holdout: Holdout | None
    ) -> TuneResult:
        rows = study.rows()
        states = [row.state for row in rows]
        result = TuneResult(
            space=self.space,
            rows=tuple(rows),
            holdout=holdout,
            importance=study.importance(),
            finished=is_done,
            summary={
                "trials": sum(row.has_ended for row in rows),
                **{state: states.count(state) for state in results.STATES},
                "trained_trials": self.trained,
                "env_steps": self.pool.env_steps,
                "block_calls": self.pool.calls,
                "compilations": self.pool.compilations,
                "compile_seconds": round(self.pool.compile_seconds, 2),
                "seconds": round(time.perf_counter() - self.began, 2),
            },
            out=self.folder,
        )
        if self.folder is not None:
            results.write(self.folder, result)
            shown = plots.study_figures(rows, result.importance, self.space.drawn())
            for name, figure in shown.items():
                plots.save(figure, self.folder / f"{name}.png")
        return result


@tool(TuneOptions)
def tune(asked: TuneOptions) -> TuneResult:
    """Search for a better config with Optuna.

    A trial is a point of the axes, trained with every seed; its score is the mean over
    the seeds of the final evaluation (of the training return where the config has no
    evaluations). Trials are asked for in batches, and each batch with its seeds is one
    vmapped call per setting of static fields. `reports` times along the way the pruner
    looks at the scores; the lanes of pruned trials are advanced no more. The first
    trial is the config itself, where its values lie on the axes.

    The same call again goes on with a study: what a stopped or killed call had begun
    is trained anew, and `trials` may be larger than before. Several calls with one
    `storage`, in several processes or on several machines, share the trials. With one
    of them, equal calls give equal trials, also after a kill.

    Raises:
        ConfigError: an axis, value or option that cannot be, a study of other
            settings (with what differs), Optuna missing; before anything is trained.
            After the search: every trial was refused, with the first one's reason.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError(
            "tuning needs Optuna: install it with pip install 'purerl[tune]'."
        )
    space = Space(asked.config, asked.axes)
    require_listing(asked.batch * num_seeds(asked.seeds), asked.config.total_timesteps)
    check_seeds(asked.seeds)
    space.check_effects()
    check_own(asked.fitness, bind(asked.config))
    return StudyLoop(space, asked).run()


def batch_line(rows: Sequence[Row], total: int) -> str:
    """Return a line that says where the study stands."""
    line, best = f"{results.count_of(rows)} of {total}", best_of(rows)
    if best is None:
        return line
    settings = in_a_line(best.params)
    return f"{line}; best {best.score:,.4g} (trial {best.number}: {settings})"


def warnings(result: TuneResult) -> list[str]:
    """Return sentences about trials that were refused, and a fruitless search."""
    sentences = [
        f"trial {row.number} was refused: {row.note}"
        for row in result.rows
        if row.state == "refused"
    ][:1]
    if result.finished and result.best_row is None:
        sentences.append(
            "no trial is complete, so that there is no best config; give axes nearer "
            "to the config's own values, or longer training"
        )
    if result.best_row is not None and result.best_row.is_default:
        sentences.append("no trial was better than the default")
    return sentences


def end_line(result: TuneResult) -> str:
    """Return a line that says how the call went."""
    numbers = result.summary
    return (
        f"{with_noun(numbers['trained_trials'], 'trial')} trained, "
        f"{format_count(numbers['env_steps'])} steps in "
        f"{format_duration(numbers['seconds'])}; compiled "
        f"{with_noun(numbers['compilations'], 'program')} in "
        f"{numbers['compile_seconds']:.1f} s"
    )
