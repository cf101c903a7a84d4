"""trackers.json: what every tracker has been told of a folder, and how it goes on.

It holds, by the tracker's name, the `id` under which it goes on, the `options` that
make it again, the `status` with which it was closed (empty before), and `rows`: how
many rows it has taken, in their order; of a sweep, study or comparison how many members
it has, and which (`members`, as ranges). Where rows that it was told no longer hold,
`rewound` says so until it has begun again (see `rewind`).
"""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from purerl.execution.commands import program
from purerl.execution.format import quoted
from purerl.runner.trackers.base import Tracker
from purerl.runner.trackers.catalogue import TRACKERS
from purerl.runner.trackers.writer import Notify
from purerl.storage import documents, kinds
from purerl.storage.folders import TRACKERS_FILE

REWOUND = "rewound"
# How long a tracker's thread waits for another one that writes the file. A disk that
# does not answer must not stop the end of a run.
LOCK_SECONDS = 10.0
_lock = threading.Lock()


def load_stored(folder: Path | None) -> dict[str, Any]:
    """Read `trackers.json`; nothing where there is none.

    Raises:
        ConfigError: it is damaged.
    """
    path = folder / TRACKERS_FILE if folder else None
    if path is None or not path.exists():
        return {}
    return documents.read(
        path, "Delete it: trackers then begin new runs, with all rows so far."
    )


def stored_for(tracker: Tracker, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is stored of a tracker; nothing where it writes elsewhere now."""
    entry = stored.get(tracker.name, {})
    return entry if entry.get("options") == plain_options(tracker) else {}


def certain(tracker: Tracker, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry without what it counts as told and the tracker can tell better.

    Args:
        tracker: The tracker.
        entry: The entry of the tracker, see `stored_for`.
    """
    if not entry or entry["status"] or not tracker.knows_rows:
        return entry
    nothing = {"members": []} if "members" in entry else {}
    return {**entry, "rows": 0, **nothing}


def lacking(
    trackers: Sequence[Tracker], folder: Path, total: int, notify: Notify
) -> list[Tracker]:
    """Choose the trackers that lack something of a folder; name the others.

    Args:
        trackers: Trackers to be looked at.
        folder: Folder of a run, sweep or evolution.
        total: Number of rows that a tracker should have, of a sweep members.
        notify: Function that prints a sentence for people.

    Raises:
        ConfigError: see `load_stored`.
    """
    stored, missing = load_stored(folder), []
    for tracker in trackers:
        entry = stored_for(tracker, stored)
        if entry.get("status") and entry["rows"] >= total:
            notify(f"tracker {tracker.name!r} has everything of {folder} already.")
        else:
            missing.append(tracker)
    return missing


def plain_options(tracker: Tracker) -> dict[str, Any]:
    """Return the tracker's options as a JSON file gives them back."""
    return json.loads(json.dumps(tracker.options))


def how_to_send(tracker: Tracker, folder: Path, kind: str) -> str:
    """Return the sentence that says how a tracker gets what it lacks of a folder.

    Args:
        tracker: Tracker that lacks something.
        folder: Folder of what it was told.
        kind: Kind of what it was told, see `TrackedRun.kind`.
    """
    if kind and not kinds.is_tracked(kind):
        return (
            f"Repeat the call with out={str(folder)!r}: what is missing is sent then."
        )
    if tracker.name in TRACKERS:
        command = f"{program()} track {quoted(folder)} --track {tracker.name}"
    else:
        command = f"purerl.track({str(folder)!r}, [{type(tracker).__name__}(...)])"
    return f"Send what is missing with: {command}"


def store(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what is known of some trackers; what is stored of others stays.

    Args:
        folder: The folder of what is tracked.
        entries: The entries by name of the tracker.
    """
    if not entries or not _lock.acquire(timeout=LOCK_SECONDS):
        return
    try:
        merged = {**load_stored(folder), **entries}
        documents.write(folder / TRACKERS_FILE, merged)
    finally:
        _lock.release()


def rewind(folder: Path, rows: int, step: int) -> None:
    """Count only the first rows as told: what follows is trained anew, and otherwise.

    Every tracker of the folder is meant, also one that this call does not have. It is
    told of it when it begins next (`TrackedRun.rewound`).

    Args:
        folder: Folder of a run or search.
        rows: Number of rows that still hold.
        step: Number of the last one of them on the axis of the charts; -1 for none.
    """
    entries = {}
    for name, entry in load_stored(folder).items():
        # A tracker may not have begun since it was rewound before.
        before = entry.get(REWOUND, {"step": step, "rows": 0})
        entries[name] = {
            **entry,
            "rows": min(rows, entry["rows"]),
            REWOUND: {
                "step": min(step, before["step"]),
                "rows": before["rows"] + max(0, entry["rows"] - rows),
            },
        }
    store(folder, entries)
