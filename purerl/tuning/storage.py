"""A study in Optuna's storage: opened, started, compared with what it should be."""

import contextlib
import json
import sqlite3
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import sqlalchemy.event
import sqlalchemy.exc

from purerl.config import ConfigError
from purerl.storage.folders import refuse
from purerl.tuning import samplers
from purerl.tuning.folder import compare
from purerl.tuning.space import Space
from purerl.tuning.study import DEFAULT, Study, stream_of

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
    space: Space,
    spec: dict[str, Any],
    *,
    storage: str | None,
    name: str,
    budget: int,
    sampler: str,
    pruner: str | None,
) -> Study:
    """Start a study, or go on with it.

    Args:
        space: The axes of the study's trials.
        spec: The specification of the study; a stored one must be equal.
        storage: The URL of Optuna's storage; None keeps the study in memory.
        name: The name of the study in the storage.
        budget: The number of trials that are to finish.
        sampler: The kind of sampler, one of `purerl.tuning.api.SAMPLERS`.
        pruner: The kind of pruner, one of `purerl.tuning.api.PRUNERS`, or None.

    Raises:
        ConfigError: another study of that name, with what differs; a storage that
            cannot be used.
    """
    opened = _storage(storage)
    axes = samplers.distributions(space)
    streams = samplers.Streams(sampler, spec["seed"], axes, stream_of)
    rule = samplers.make_pruner(pruner, spec["config"]["total_timesteps"], stream_of)
    try:
        found = optuna.create_study(
            storage=opened,
            study_name=name,
            direction="maximize",
            sampler=streams,
            pruner=rule,
        )
        is_new = True
    except optuna.exceptions.DuplicatedStudyError:
        found = optuna.load_study(
            study_name=name, storage=opened, sampler=streams, pruner=rule
        )
        is_new = False
    study = Study(found, space, budget, streams)
    streams.learn_from(found)
    if is_new or not _await_spec(found):
        default = space.default_params()
        if default is not None:
            # First, so that "better than the default" is judged on equal terms.
            found.enqueue_trial(default, {DEFAULT: True}, skip_if_exists=True)
        found.set_user_attr(SPEC, spec)
    refuse(
        compare(found.user_attrs[SPEC], json.loads(json.dumps(spec))),
        "the storage",
        f"study {name!r}",
        "Use its settings, another folder, or another study name.",
    )
    return study


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


def reason_of_damage(path: Path) -> str:
    """Return what is wrong with a SQLite file; empty where nothing is."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            (found,) = database.execute("pragma integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        return "" if "locked" in str(error) else str(error)
    return "" if found == "ok" else found


def _storage(url: str | None) -> optuna.storages.BaseStorage:
    if url is None:
        return optuna.storages.InMemoryStorage()
    # SQLite locks the whole file: wait for the others.
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    for attempt in range(5):
        try:
            opened = optuna.storages.RDBStorage(url, engine_kwargs=options)
            if opened.engine.name == "sqlite":
                sqlalchemy.event.listen(opened.engine, "begin", _take_the_lock)
            return opened
        except (sqlalchemy.exc.OperationalError, sqlalchemy.exc.IntegrityError) as e:
            # Two processes that make the tables at once get in each other's way.
            error: Exception = e
            if not any(word in str(e) for word in ("exist", "locked", "UNIQUE")):
                break
            time.sleep(0.3 * (attempt + 1))
        except (ImportError, sqlalchemy.exc.SQLAlchemyError) as e:
            error = e
            break
    words = str(getattr(error, "orig", None) or error).splitlines()[0]
    raise ConfigError(
        f"storage: cannot use {_hidden(url)} ({words}). Give an Optuna storage URL, "
        "such as sqlite:///study.db or postgresql://host/name."
    )


def _take_the_lock(connection: sqlalchemy.Connection) -> None:
    """Begin with SQLite's write lock.

    Optuna looks whether a queued trial still waits, then takes it. Without the lock
    Python's driver begins between the two, and two workers take the same trial.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _hidden(url: str) -> str:
    """A URL that may be shown: without its password."""
    try:
        return sqlalchemy.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return repr(url)
