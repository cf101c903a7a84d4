"""purerl.track: what trackers lack of a folder, sent when training has ended."""

from collections.abc import Callable, Sequence
from pathlib import Path

from purerl.config import ConfigError
from purerl.execution.format import program, quoted
from purerl.runner.arguments import stored_folder
from purerl.runner.loop import close_trackers
from purerl.runner.rows import saved_records
from purerl.runner.trackers import Tracker, choose
from purerl.runner.trackers.base import describe
from purerl.runner.trackers.group import Group
from purerl.runner.trackers.writer import Notify
from purerl.storage import checkpoint, folders
from purerl.streams import say


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
    if not folders.is_tracked(kind) and (folder / "records").is_dir():
        raise ConfigError(
            f"{folder} holds a search that only its own program can read again. "
            f"Repeat the call that wrote it, with out={str(folder)!r}: what trackers "
            "lack is sent then."
        )
    if not folders.is_tracked(kind):
        raise ConfigError(
            folders.refusal(folder, kind, ", of which trackers are told nothing")
        )
    chosen = choose(trackers, folder)
    if not chosen:
        raise ConfigError(
            f"no tracker has been told of {folder}; name one, such as --track mlflow "
            "(trackers=['mlflow'])."
        )
    return _sender(kind)(folder, chosen, say)


def _run(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    from purerl.report.saved import has_finished, read_result

    stored = folders.load(folder)
    result = read_result(folder)
    # Rows after the last checkpoint are computed again, and told, when the run goes on.
    if not checkpoint.steps(folder / "checkpoints"):
        raise ConfigError(
            f"the run in {folder} has saved nothing yet. Send it when it has ended, or "
            f"go on with it: {program()} train --resume {quoted(folder)}"
        )
    records = saved_records(folder, stored["seeds"])
    finished = has_finished(stored, result.metrics)
    group = Group(trackers, in_threads=False)
    with group:
        run = describe(folder, stored["config"], stored["seeds"])
        group.begin(run, notify, records.num_rows)
        records.send_missing(group)
        close_trackers(group, result._replace(finished=finished))
    return group.lacks_nothing


def _search(folder: Path, trackers: Sequence[Tracker], notify: Notify) -> bool:
    from purerl.population.saved import read
    from purerl.search.tracking import track_search

    return track_search(folder, read(folder).search, trackers, notify)


def _sender(kind: str) -> Callable[[Path, Sequence[Tracker], Notify], bool]:
    """The function that sends what a folder of a kind holds."""
    if kind == "run":
        return _run
    if kind == "sweep":
        from purerl.sweeps.tracking import track_sweep as send
    elif kind == "evolution":
        from purerl.meta.tracking import track_evolution as send
    elif kind == "tune":
        from purerl.tuning.tracking import track_study as send
    elif kind == folders.COMPARISON:
        from purerl.comparison.tracking import track_comparison as send
    else:
        return _search
    return send
