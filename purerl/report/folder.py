"""Folders of results, read again: `purerl.load` and `purerl.track`."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.execution.format import program, quoted, say
from purerl.runner import manifest
from purerl.runner.arguments import stored_folder
from purerl.runner.result import RunResult, load_run
from purerl.runner.rows import read_diverged_at, read_members, saved_records, stack_rows
from purerl.runner.run import tracked_files
from purerl.runner.trackers import Tracker, choose
from purerl.runner.trackers.base import describe
from purerl.runner.trackers.group import Told, send
from purerl.storage import folders
from purerl.storage.checkpoint import steps
from purerl.train import bind
from purerl.types import HostMetrics

# Of each kind its module, and there the names of what reads a folder, and of what says
# what trackers are told. Nothing is imported before it is called.
KINDS = {
    "run": ("purerl.report.folder", "read_run", "told_of_run"),
    "sweep": ("purerl.sweeps.result", "load_sweep", "told_of_sweep"),
    "pbt": ("purerl.population.search", "load_search", "told_of_search"),
    "halving": ("purerl.population.search", "load_search", "told_of_search"),
    "tune": ("purerl.tuning.result", "load_tune", "told_of_study"),
    "evolution": ("purerl.meta.result", "load_evolution", "told_of_evolution"),
    folders.COMPARISON: (
        "purerl.comparison.result",
        "load_comparison",
        "told_of_comparison",
    ),
}


def load(folder: str | Path) -> Any:
    """Read the result in a folder, also while it is written.

    Args:
        folder: Folder of a run, sweep, search, study, evolution or comparison.

    Returns:
        What the call that wrote the folder returns: a `RunResult`, a `SweepResult`, a
        `PBTResult` and so on. A run or a sweep whose config names what is not known
        here comes with its metrics and without its agents, and a sentence says why.

    Raises:
        ConfigError: it holds nothing that purerl has written, or something damaged, or
            what has no result of its own.
    """
    folder = stored_folder(folder)
    kind = folders.kind_of(folder)
    if kind in KINDS:
        module, reader, _ = KINDS[kind]
        return getattr(import_module(module), reader)(folder)
    if (folder / "records").is_dir():
        return read_own_search(folder)
    raise ConfigError(folders.refusal(folder, kind, ", which has no result to load"))


def look(folder: Path) -> Any:
    """Read a result for pictures and pages: of a run the curves alone.

    These need no config, which may name what only the program that wrote it knows.

    Raises:
        ConfigError: as of `load`, or nothing has been written yet.
    """
    is_run = folders.kind_of(folder) == "run"
    return read_result(folder) if is_run else load(folder)


def read_own_search(folder: Path) -> Any:
    """Read a search that is not of the library: its outcomes, without its states."""
    from purerl.search.protocol import Finished, Step, read_outcomes

    unknown: Any = None
    outcomes = read_outcomes(folder)
    steps = [Step(unknown, outcome, unknown, unknown) for outcome in outcomes]
    return Finished(steps, None, {})


def read_result(folder: Path) -> RunResult:
    """Read a run's curves from its files, without its states and most of its config.

    Raises:
        ConfigError: no run there, nothing logged yet, or a file of rows that is damaged
            or missing.
    """
    stored = manifest.load_run(folder)
    seeds = tuple(stored["seeds"])
    update = max(steps(folder / "checkpoints"), default=0)
    records = read_members(folder / "metrics", seeds, update)
    train = stack_rows(records["train"])
    if not train:
        raise ConfigError(f"the run in {folder} has logged nothing yet.")
    last = int(train["update"].max())
    return RunResult(
        config=manifest.task_config(stored),
        seeds=seeds,
        update=update,
        state=None,
        diverged_at=read_diverged_at(stored, seeds, last),
        metrics=train,
        evaluation=stack_rows(records["evaluation"]),
        finished=_has_finished(stored, train),
        out=folder,
    )


def read_run(folder: Path) -> RunResult:
    """Read the curves of a run and, where it has finished, its agents.

    Where its config cannot be made again here, a sentence says why, and the curves come
    without agents.

    Raises:
        ConfigError: as of `read_result`, or the checkpoints of a finished run are lost.
    """
    curves, stored = read_result(folder), manifest.load_run(folder)
    try:
        config = manifest.read_config(folder, stored)
        bind(config, on_host=True, trains=False)
    except ConfigError as error:
        say(f"{error} Without it, {folder} is read without agents.")
        return curves
    if not steps(folder / "checkpoints"):  # It has begun, and saved nothing yet.
        folders.refuse_lost_checkpoints(folder)
        return curves._replace(config=config, finished=False)
    saved = load_run(folder, config)
    state = saved.state if saved.finished else None
    return curves._replace(config=config, state=state, finished=saved.finished)


def _has_finished(stored: dict[str, Any], metrics: HostMetrics) -> bool:
    """Not even one update of a run is left to be done, by its manifest and metrics."""
    steps = int(metrics["env_steps"][0, -1])
    each = steps // int(metrics["update"][0, -1])
    return steps + each > stored["config"]["total_timesteps"]


def track(folder: str | Path, trackers: Sequence[str | Tracker] | None = None) -> bool:
    """Send the rows and files of a folder that trackers lack.

    The folder is that of a run, sweep, search, study, comparison or evolution.

    A tracker goes on where it left off (`trackers.json` in the folder), so that no row
    is written twice; one that has not been told of the folder yet gets everything. This
    takes as long as it takes: a tracker is called until it has all, or fails.

    Args:
        folder: Folder of what has ended, or was interrupted or killed.
        trackers: Names and objects, as for `purerl.run`; those that have been told of
            the folder where none are given.

    Returns:
        Whether every tracker has everything now; what it lacks is printed.

    Raises:
        ConfigError: a folder that holds nothing which trackers are told, an unknown
            tracker, none, or one that cannot begin.
    """
    folder = stored_folder(folder)
    kind = folders.kind_of(folder)
    if not folders.is_tracked(kind):
        own = "; repeat the call that wrote it" * (folder / "records").is_dir()
        what = f", of which trackers are told nothing{own}"
        raise ConfigError(folders.refusal(folder, kind, what))
    chosen = choose(trackers, folder)
    if not chosen:
        raise ConfigError(f"no tracker has been told of {folder}; name one: --track.")
    module, _, told = KINDS[kind]
    return send(getattr(import_module(module), told)(folder), chosen, say)


def told_of_run(folder: Path) -> Told:
    """Return what trackers are told of a run's folder, up to its last checkpoint.

    Raises:
        ConfigError: nothing has been saved.
    """
    stored = folders.load(folder)
    result = read_result(folder)
    # Rows after the last checkpoint are computed again, and told, when the run goes on.
    if not steps(folder / "checkpoints"):
        raise ConfigError(
            f"the run in {folder} has saved nothing yet. To go on with it: "
            f"{program()} train --resume {quoted(folder)}"
        )
    records = saved_records(folder, stored["seeds"])
    last = max(steps(folder / "checkpoints"))
    folders.say_what_is_cut(folder, last >= int(result.metrics["update"].max()))
    run = describe(folder, stored["config"], stored["seeds"])
    files = partial(tracked_files, result, say)
    return Told(run, records.num_updates, records.send_missing, files, result.finished)
