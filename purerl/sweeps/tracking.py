"""A finished sweep in trackers: members that a tracker has are not written twice.

trackers.json, in the sweep's folder, holds per tracker how many members it has, in the
order of the results, and of how many (see `purerl.runner.trackers.group`). A sweep that
has been extended since is another one for a tracker.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from purerl import serialise
from purerl.config import ConfigError
from purerl.runner.trackers.base import TrackedRun, Tracker
from purerl.runner.trackers.group import (
    FILE,
    how_to_send,
    lacking,
    load_stored,
    plain_options,
    stored_for,
)
from purerl.runner.trackers.points import dataset_points, write_points
from purerl.runner.trackers.writer import BEGIN_SECONDS, Say, reason
from purerl.sweeps.result import SweepResult


def track_finished(result: SweepResult, trackers: Sequence[Tracker]) -> None:
    """Write a sweep that has just finished into trackers, which may fail.

    What was trained is safe by now. A tracker that writes no member for
    `BEGIN_SECONDS` is given up.

    Args:
        result: The finished sweep.
        trackers: Trackers that have not begun.
    """

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    for tracker in trackers:

        def work(alive: Callable[[], None], tracker: Tracker = tracker) -> None:
            _track(result, tracker, say, alive)

        try:
            _patiently(work, BEGIN_SECONDS)
        except ConfigError:
            raise
        except (Exception, KeyboardInterrupt) as error:
            say(_failed(result, tracker, error))


def track_sweep(result: SweepResult, trackers: Sequence[Tracker], say: Say) -> bool:
    """Send what trackers lack of a sweep's folder; see `purerl.track`.

    Args:
        result: The sweep, read from its folder.
        trackers: Trackers that have not begun.
        say: A function that prints a sentence for people.

    Returns:
        Whether every tracker has everything now.

    Raises:
        ConfigError: the sweep has not finished.
    """
    if not result.finished:
        raise ConfigError(
            f"the sweep in {result.out} has not finished, and trackers are told "
            "finished ones. Run its command again first."
        )
    has_all = True
    for tracker in trackers:
        try:
            _track(result, tracker, say, lambda: None)
        except ConfigError:
            raise
        except Exception as error:
            say(_failed(result, tracker, error))
            has_all = False
        else:
            if where := tracker.where():
                say(where)
    return has_all


def _track(
    result: SweepResult, tracker: Tracker, say: Say, alive: Callable[[], None]
) -> None:
    """Write the members that a tracker lacks, and remember every one of them."""
    config, folder = serialise.to_dict(result.config), result.out
    total = _size(result)
    if folder is not None and not lacking([tracker], folder, total, say):
        return
    stored = stored_for(tracker, load_stored(folder))
    if stored.get("total") != total or stored.get("status"):
        stored = {}
    run = TrackedRun(
        name=folder.name if folder else f"sweep-{config['env']}",
        config=config,
        members={},
        folder=folder,
        id=stored.get("id"),
        is_sweep=True,
    )
    first = int(stored.get("rows", 0))

    def on_member(number: int) -> None:
        alive()
        if folder is not None:
            _remember(folder, tracker, number, total)

    write_points(tracker, dataset_points(result.dataset), run, first, on_member)
    if folder is not None:
        _remember(folder, tracker, total, total, "finished")


def _size(result: SweepResult) -> int:
    """Return the number of members."""
    sizes = result.dataset["env_steps"].sizes
    total = 1
    for name, size in sizes.items():
        total *= 1 if name == "segment" else size
    return total


def _remember(
    folder: Path, tracker: Tracker, number: int, total: int, status: str = ""
) -> None:
    if tracker.id is None:
        return
    entry: dict[str, Any] = {
        "id": tracker.id,
        "rows": number,
        "total": total,
        "status": status,
        "options": plain_options(tracker),
    }
    merged = {**load_stored(folder), tracker.name: entry}
    serialise.write_atomic(folder / FILE, json.dumps(merged, indent=2))


def _failed(result: SweepResult, tracker: Tracker, error: BaseException) -> str:
    how = f" {how_to_send(tracker, result.out)}" if result.out is not None else ""
    return (
        f"tracker {tracker.name!r} failed ({reason(error)}); the results are not "
        f"touched.{how}"
    )


def _patiently(work: Callable[[Callable[[], None]], None], seconds: float) -> None:
    """Do something in a thread, and wait as long as it gets on.

    Args:
        work: A function that takes another one, which it calls whenever it has got on.
        seconds: Seconds without such a call after which the work is left to itself.

    Raises:
        TimeoutError: it has been left to itself.
    """
    done, is_left = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    moved = [time.monotonic()]

    def alive() -> None:
        if is_left.is_set():
            raise TimeoutError("left to itself")
        moved[0] = time.monotonic()

    def target() -> None:
        try:
            work(alive)
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=target, name="tracker of a sweep", daemon=True).start()
    try:
        while not done.wait(max(0.0, moved[0] + seconds - time.monotonic())):
            if time.monotonic() - moved[0] >= seconds:
                raise TimeoutError(f"no answer within {seconds:g} s")
    finally:
        is_left.set()
    if errors:
        raise errors[0]
