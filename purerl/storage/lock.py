"""One process at a time in a folder whose files are appended to, or go on from others.

Two programs that train into one folder would mix their rows and lose each other's
checkpoints, as where a job is put in the queue again while it is still running. The
operating system ends a lock with the process, so that a kill leaves none behind.
"""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from purerl.atomic import remove_leftovers
from purerl.config import ConfigError

try:
    import fcntl as _fcntl
except ImportError:  # On Windows there is none, and folders are not locked.
    _fcntl = None
fcntl: Any = _fcntl

LOCK = ".lock"


@contextmanager
def locked(folder: Path | None, shared: bool = False) -> Iterator[None]:
    """Keep other processes from training into a folder.

    What a killed process left half written there is removed. Where the file system
    knows no locks, nothing is kept away and nothing removed.

    Args:
        folder: The folder, which is made where there is none; None for no folder.
        shared: Whether others may train into it too, who all say so.

    Raises:
        ConfigError: another process trains into it, naming that process.
    """
    if folder is None or fcntl is None or not (file := _hold(folder, shared)):
        yield
        return
    with file:
        if not shared or _lock(file, fcntl.LOCK_EX):
            file.truncate(0)
            file.write(json.dumps({"pid": os.getpid(), "host": platform.node()}))
            file.flush()
            remove_leftovers(folder, os.fstat(file.fileno()).st_mtime)
        if shared:
            fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            if not shared or _lock(file, fcntl.LOCK_EX):
                (folder / LOCK).unlink(missing_ok=True)


def _hold(folder: Path, shared: bool) -> Any:
    """The lock's file, held by this process, or None where there can be none.

    Raises:
        ConfigError: another process holds it.
    """
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / LOCK).open("a+")
        except OSError:  # Whoever writes to the folder says so, with the remedy.
            return None
        try:
            if shared:
                fcntl.flock(file, fcntl.LOCK_SH)
            elif not _lock(file, fcntl.LOCK_EX):
                with file:
                    raise ConfigError(
                        f"out: {folder} is in use by {_owner(file)}, which is training "
                        "into it; wait for its end or stop it, or give another folder."
                    )
        except OSError:
            file.close()
            return None
        if _is_there(folder / LOCK, file):
            return file
        file.close()  # It was taken away since it was opened, by whoever held it.


def _lock(file: Any, kind: int) -> bool:
    """Lock a file, and return False where another process holds it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(path: Path, file: Any) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _owner(file: Any) -> str:
    """The process that has a lock, in words."""
    file.seek(0)
    try:
        owner = json.loads(file.read())
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError):
        return "another process"
