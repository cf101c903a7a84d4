"""A study in Optuna's storage: the budget, who works on what, what becomes of trials.

Workers share nothing else. A trial is live while it waits, runs, or has finished; it is
kept by the worker that asked for it only if fewer live trials than the budget have
lower numbers. So the finished trials are exactly as many as asked for, whatever crashes
and however many workers there are: what a dead worker ran fails and is queued again. On
one machine a process is looked up; of another machine's one knows only that its beat, a
number that it keeps raising in the study, has not stopped.

Optuna's samplers and pruners come first, seeded so that a study can be resumed.
"""

import contextlib
import copy
import datetime
import json
import math
import os
import platform
import sqlite3
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import sqlalchemy
import sqlalchemy.event
import sqlalchemy.exc
from optuna import distributions as kinds
from optuna.trial import FrozenTrial, TrialState

from purerl.config import ConfigError
from purerl.space.axes import Choice, LogUniform, is_whole
from purerl.storage.folders import refuse
from purerl.tuning.result import (
    DATABASE,
    Row,
    check_study,
    differing,
    read_row,
    study_is_damaged,
)
from purerl.tuning.space import Space, TuneOptions

# Hyperband: a third goes on at each rung, the first rung after a ninth of the budget.
REDUCTION = 3
FIRST_RUNG = 9
# Median: full trials before any is pruned.
STARTUP_TRIALS = 5

# Attribute of a trial: the number of the first trial of its batch.
BATCH = "batch"
RUNG = "completed_rung"  # The beginning of the attributes of Optuna's Hyperband.


def distributions(space: Space) -> dict[str, kinds.BaseDistribution]:
    """Return Optuna's distribution of every axis; whole ends make whole numbers."""
    found: dict[str, kinds.BaseDistribution] = {}
    for name, axis in space.axes.items():
        if isinstance(axis, Choice):
            found[name] = kinds.CategoricalDistribution(tuple(space.names[name]))
            continue
        make = kinds.IntDistribution if is_whole(axis) else kinds.FloatDistribution
        number: Any = int if is_whole(axis) else float
        is_log = isinstance(axis, LogUniform)
        found[name] = make(number(axis.low), number(axis.high), log=is_log)
    return found


def make_pruner(name: str | None, total_steps: int) -> Any:
    """Make a pruner whose resource is environment steps; None prunes nothing."""
    if name is None:
        return None
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS)
    return _Hyperband(
        min_resource=max(1, total_steps // FIRST_RUNG),
        max_resource=total_steps,
        reduction_factor=REDUCTION,
    )


class _Hyperband(optuna.pruners.HyperbandPruner):
    """Optuna's Hyperband, which would read a bracket's trials from the storage."""

    def _create_bracket_study(self, study: Any, bracket_id: int) -> Any:
        trials = study.get_trials()
        return _Shown(
            study, [t for t in trials if self._get_bracket_id(study, t) == bracket_id]
        )


def stops(pruner: Any, study: optuna.Study, number: int, step: int) -> bool:
    """Return whether to stop a trial that has just reported a step.

    The pruner is shown what an uninterrupted study knew at that moment. Of the trial's
    own batch these are the scores up to that report: a batch that a stopped worker left
    has trials that have ended, or were further, already.
    """
    if pruner is None:
        return False
    trials = {
        trial.number: trial
        for trial in study.get_trials(deepcopy=False)
        if trial.state != TrialState.FAIL and BATCH in trial.user_attrs
    }
    for other, trial in trials.items():
        if trial.user_attrs[BATCH] == trials[number].user_attrs[BATCH]:
            trials[other] = _until(trial, step + (other <= number))
    return pruner.prune(_Shown(study, list(trials.values())), trials[number])


class _Shown:
    """A study of which a pruner is shown some trials."""

    def __init__(self, study: optuna.Study, trials: list[FrozenTrial]) -> None:
        self._wrapped, self._trials = study, trials

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return trials as `optuna.Study.get_trials` does."""
        del deepcopy  # No pruner changes them.
        return [t for t in self._trials if states is None or t.state in states]


def _until(trial: FrozenTrial, step: int) -> FrozenTrial:
    """A trial as it was when it had reported the steps before `step`."""
    values = {at: x for at, x in trial.intermediate_values.items() if at < step}
    rungs = {
        name: x
        for name, x in trial.system_attrs.items()
        if not name.startswith(RUNG) or x in values.values()
    }
    trial = copy.copy(trial)
    trial.state, trial.value = TrialState.RUNNING, None
    trial.intermediate_values, trial.system_attrs = values, rungs
    return trial


class SeededSampler:
    """A sampler with a random stream per trial, so that it holds nothing in memory.

    It has all methods of Optuna's sampler, which it makes anew for every trial.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self._inner = _make(name, seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Start the trial's own stream."""
        words = np.random.SeedSequence([self.seed, trial.number])
        self._inner = _make(self.name, int(words.generate_state(1)[0]))
        self._inner.before_trial(study, trial)


def _make(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # A trial that runs counts as a bad one: a batch does not repeat itself.
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


BEAT_SECONDS = 15.0
# A worker elsewhere whose beat stood still for so long is taken for dead.
GRACE_SECONDS = 120.0


def home() -> str:
    """Return the scope of unique process ids: host and PID namespace."""
    try:
        return f"{platform.node()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # Not Linux: the name has to do.
        return platform.node()


def identity() -> dict[str, Any]:
    """Return a name of the caller, unique among processes and calls."""
    pid, name = os.getpid(), uuid.uuid4().hex[:12]
    return {"id": name, "home": home(), "pid": pid, "started": _started(pid)}


def _started(pid: int) -> str | None:
    """Return when a process began, in ticks; None if there is none.

    Process ids are used again, but not with the same start.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A killed child that nobody has waited for is dead too.
    return None if fields[0] in "ZX" else fields[19]


def is_running(worker: dict[str, Any]) -> bool | None:
    """Return whether a worker's process is there; None where nobody here can know."""
    if worker["home"] != home():
        return None
    if worker["started"] is not None:
        return _started(worker["pid"]) == worker["started"]
    try:
        os.kill(worker["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class Watch:
    """Remembers when each worker's beat was last seen to change."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self._seen: dict[str, tuple[Any, float]] = {}

    def is_dead(self, worker: dict[str, Any], beat: Any) -> bool:
        """Return whether a worker has certainly or very probably stopped."""
        running = is_running(worker)
        if running is not None:
            return not running
        now = time.monotonic()
        last, since = self._seen.get(worker["id"], (None, now))
        if worker["id"] not in self._seen or last != beat:
            self._seen[worker["id"]] = (beat, now)
            return False
        return now - since > self.grace


@contextlib.contextmanager
def beating(beat: Callable[[int], None]) -> Iterator[None]:
    """Call `beat(number)` every few seconds from a thread while active."""
    is_over = threading.Event()

    def run() -> None:
        number = 0
        while not is_over.wait(BEAT_SECONDS):
            number += 1
            with contextlib.suppress(
                Exception
            ):  # A busy storage: the next one says it.
                beat(number)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


BEAT = "beat:"  # study attribute of a worker
# User attributes of a trial; the last one is what its row says beside its point.
WORKER, DEFAULT, ATTEMPT, DETAIL = "worker", "default", "attempt", "detail"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# A trial whose worker died so often is given up: it may be what kills them.
MAX_ATTEMPTS = 3
# A trial without a worker's name is one that is being asked for, unless it is older.
UNNAMED_SECONDS = 60.0


class Counts(NamedTuple):
    """Trials of a study: those that have finished, that a worker has, that wait again.

    Those wait again whose worker stopped.
    """

    finished: int
    running: int
    again: int


class Study:
    """Asks for trials, tells how they went.

    Args:
        study: The study of Optuna.
        space: The axes of the trials.
        budget: The number of trials that are to finish.
        pruner: The study's pruner; None prunes nothing.
    """

    def __init__(
        self, study: optuna.Study, space: Space, budget: int, pruner: Any
    ) -> None:
        self.study, self.space, self.budget = study, space, budget
        self.pruner = pruner
        self.axes = distributions(space)
        self.me = identity()
        self.watch = Watch()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, by number."""
        return self.study.get_trials(deepcopy=False)

    def counts(self) -> Counts:
        """Return the number of trials by state."""
        trials = self.trials()
        states = [trial.state for trial in trials]
        waiting = [t for t in trials if t.state == TrialState.WAITING]
        return Counts(
            sum(state in FINISHED for state in states),
            states.count(TrialState.RUNNING),
            sum(ATTEMPT in trial.user_attrs for trial in waiting),
        )

    def ask(self, most: int) -> list[optuna.Trial]:
        """Return up to `most` trials for this worker; interrupted ones first and alone.

        So a resumed study asks for new ones with the history that it would have had.
        """
        counts = self.counts()
        room = self.budget - counts.finished - counts.running
        asked: list[optuna.Trial] = []
        for _ in range(max(0, min(most, room, counts.again or most))):
            asked.append(self._ask_one(asked))
        return self._within_budget(asked)

    def _ask_one(self, batch: Sequence[optuna.Trial]) -> optuna.Trial:
        trial = self.study.ask(self.axes)
        trial.set_user_attr(WORKER, self.me)
        if BATCH not in trial.user_attrs:  # Else it had waited again.
            trial.set_user_attr(BATCH, (batch[0] if batch else trial).number)
        return trial

    def _within_budget(self, asked: Sequence[optuna.Trial]) -> list[optuna.Trial]:
        """Return the trials that the budget has room for, and fail the others.

        Every trial with a lower number than one that was asked for exists by now, so
        that the trials are listed once for all: each time, Optuna reads those that have
        not finished from the storage again.
        """
        if not asked:
            return []
        live = [t.number for t in self.trials() if t.state != TrialState.FAIL]
        kept = []
        for trial in asked:
            if sum(number < trial.number for number in live) < self.budget:
                kept.append(trial)
            else:
                self._tell(trial, TrialState.FAIL)
        return kept

    def finish(
        self, trial: optuna.Trial, score: float | None, detail: dict[str, Any]
    ) -> None:
        """End a trial; without a score it was pruned, or came to nothing."""
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr(DETAIL, detail)
        if score is None or not math.isfinite(score):
            self._tell(trial, TrialState.PRUNED)
        else:
            self._tell(trial, TrialState.COMPLETE, score)

    def report(self, trial: optuna.Trial, score: float, step: int) -> bool:
        """Report a trial's score so far; return whether to stop it."""
        with warnings.catch_warnings():
            # A trial that has come again has reported the same score at this step.
            warnings.simplefilter("ignore")
            try:
                trial.report(score, step)
            except optuna.exceptions.UpdateFinishedTrialError:
                return True  # Another worker took this one for dead, and ended it.
        return stops(self.pruner, self.study, trial.number, step)

    def _tell(
        self, trial: optuna.Trial, state: TrialState, value: float | None = None
    ) -> None:
        # Another worker may have taken this one for dead: then it does not count.
        with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
            self.study.tell(trial, value, state=state, skip_if_finished=True)

    def give_back(self, trials: Sequence[optuna.Trial]) -> None:
        """Queue trials that this worker does not finish."""
        numbers = {trial.number for trial in trials}
        for trial in self.trials():
            # Another worker may have taken this one for dead, and train it now.
            is_own = trial.user_attrs.get(WORKER) == self.me
            if trial.number in numbers and trial.state == TrialState.RUNNING and is_own:
                self._requeue(trial, counts_as_attempt=False)

    def rescue(self) -> int:
        """Queue the trials of workers that have stopped; return how many there were."""
        beats = self.study.user_attrs
        rescued = 0
        for trial in self.trials():
            if trial.state != TrialState.RUNNING:
                continue
            by, began = trial.user_attrs.get(WORKER), trial.datetime_start
            if by is None:
                now = datetime.datetime.now()
                dead = not began or (now - began).total_seconds() > UNNAMED_SECONDS
            else:
                is_own = by["id"] == self.me["id"]
                beat = beats.get(BEAT + by["id"])
                dead = not is_own and self.watch.is_dead(by, beat)
            if dead:
                rescued += self._requeue(trial)
        return rescued

    def _requeue(self, trial: FrozenTrial, counts_as_attempt: bool = True) -> bool:
        """Let a trial wait again, with its number; False if another worker ended it."""
        attempt = int(trial.user_attrs.get(ATTEMPT, 0)) + counts_as_attempt
        is_given_up = attempt >= MAX_ATTEMPTS
        storage, id = self.study._storage, trial._trial_id
        try:
            storage.set_trial_user_attr(id, ATTEMPT, attempt)
            storage.set_trial_user_attr(id, WORKER, None)
            for name in trial.system_attrs:
                if name.startswith(RUNG):
                    storage.set_trial_system_attr(id, name, None)
            storage.set_trial_state_values(
                id, TrialState.FAIL if is_given_up else TrialState.WAITING
            )
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def at_work(self) -> contextlib.AbstractContextManager[None]:
        """Show other workers that this one goes on, while active."""
        name = BEAT + self.me["id"]
        return beating(lambda beat: self.study.set_user_attr(name, beat))

    def rows(self) -> list[Row]:
        """Return what is known of every trial that waits, runs or has finished."""
        return [
            self._row(trial)
            for trial in self.trials()
            if trial.state != TrialState.FAIL and len(trial.params) == len(self.axes)
        ]

    def _row(self, trial: FrozenTrial) -> Row:
        values = {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "score": trial.value if trial.state == TrialState.COMPLETE else None,
            "params": {name: trial.params[name] for name in self.space.axes},
            "is_default": bool(trial.user_attrs.get(DEFAULT)),
        }
        # A trial that a worker has lost, and that comes again, may have ended before.
        has_ended = trial.state in FINISHED
        return read_row(
            values | (trial.user_attrs.get(DETAIL, {}) if has_ended else {})
        )

    def importance(self) -> dict[str, float]:
        """Return each axis's share in what makes a trial good; empty after few trials.

        PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255), over complete trials.
        """
        complete = self.study.get_trials(False, (TrialState.COMPLETE,))
        values = {trial.value for trial in complete}
        if len(complete) < 4 or len(values) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            importances = optuna.importance.get_param_importances(
                self.study, evaluator=evaluator
            )
        return {name: float(value) for name, value in importances.items()}


SPEC = "purerl"  # study attribute: what it is
# How long another process may take from making a study to describing it.
START_SECONDS = 20.0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let Optuna log errors only, while active."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(
    space: Space, spec: dict[str, Any], options: TuneOptions, name: str
) -> Study:
    """Start a study, or go on with it.

    Args:
        space: The axes of the trials.
        spec: What makes the study's scores comparable.
        options: The options of the call, with the URL of the storage.
        name: The study's name in the storage.

    Raises:
        ConfigError: another study of that name, with what differs; a storage that
            cannot be used.
    """
    storage = _storage(options.storage)
    sampler: Any = SeededSampler(options.sampler, options.seed)
    pruner = make_pruner(options.pruner, options.config.total_timesteps)
    try:
        found = optuna.create_study(
            storage=storage, study_name=name, direction="maximize", sampler=sampler
        )
        is_new = True
    except optuna.exceptions.DuplicatedStudyError:
        found = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
        is_new = False
    if is_new or not _await_spec(found):
        default = space.default_params()
        if default is not None:
            # First, so that "better than the default" is judged on equal terms.
            found.enqueue_trial(default, {DEFAULT: True}, skip_if_exists=True)
        found.set_user_attr(SPEC, spec)
    refuse(
        differing(found.user_attrs[SPEC], json.loads(json.dumps(spec))),
        "the storage",
        f"study {name!r}",
        "Use its settings, another folder, or another study name.",
    )
    return Study(found, space, options.trials, pruner)


def _await_spec(study: optuna.Study) -> bool:
    """Return whether the process that made the study has described it."""
    until = time.monotonic() + START_SECONDS
    while SPEC not in study.user_attrs:
        if study.trials or time.monotonic() > until:
            # The study is somebody else's, or its maker was killed in between.
            return SPEC in study.user_attrs
        time.sleep(0.2)
    return True


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    url = sqlalchemy.URL.create("sqlite", database=str(path.absolute()))
    return url.render_as_string(hide_password=False)


def check_database(folder: Path) -> None:
    """Refuse a folder whose own database is gone or damaged; nothing is written.

    Raises:
        ConfigError: see `purerl.tuning.result.check_study`.
    """
    path, why = folder / DATABASE, ""
    if not path.exists() or not path.stat().st_size:
        check_study(folder, list)
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            (found,) = database.execute("pragma integrity_check(1)").fetchone()
        why = "" if found == "ok" else found
    except sqlite3.DatabaseError as error:
        why = "" if "locked" in str(error) else str(error)
    if why:
        raise study_is_damaged(folder, why)


def _storage(url: str | None) -> optuna.storages.BaseStorage:
    if url is None:
        return optuna.storages.InMemoryStorage()
    options: dict[str, Any] = {}
    if url.startswith("sqlite") and not url.endswith(("//", ":memory:")):
        # SQLite locks the whole file: wait for the others, and keep no connection open.
        options = {"connect_args": {"timeout": 60}, "poolclass": sqlalchemy.NullPool}
    words = ""
    for attempt in range(5):
        try:
            opened = optuna.storages.RDBStorage(url, engine_kwargs=options)
            if opened.engine.name == "sqlite":
                sqlalchemy.event.listen(opened.engine, "begin", _take_the_lock)
            return opened
        except (ImportError, sqlalchemy.exc.SQLAlchemyError) as error:
            words = str(getattr(error, "orig", None) or error).splitlines()[0]
            # Two processes that make the tables at once get in each other's way.
            if not any(word in str(error) for word in ("exist", "locked", "UNIQUE")):
                break
            time.sleep(0.3 * (attempt + 1))
    with contextlib.suppress(sqlalchemy.exc.ArgumentError):  # Without its password.
        url = sqlalchemy.make_url(url).render_as_string(hide_password=True)
    raise ConfigError(
        f"storage: cannot use {url} ({words}). Give an Optuna storage URL, such as "
        "sqlite:///study.db or postgresql://host/name."
    )


def _take_the_lock(connection: sqlalchemy.Connection) -> None:
    """Begin with SQLite's write lock.

    Optuna looks whether a queued trial still waits, then takes it. Without the lock
    Python's driver begins between the two, and two workers take the same trial.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")
