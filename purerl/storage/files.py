"""Files of a folder: arrays and JSON with checksums, and the lock of its writer.

Two programs that train into one folder would mix their rows and lose each other's
checkpoints, as where a job is put in the queue again while it is still running. The
operating system ends a lock with the process, so that a kill leaves none behind.
"""

import hashlib
import json
import os
import platform
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from purerl.atomic import DAMAGE as DAMAGE
from purerl.atomic import open_arrays as open_arrays
from purerl.atomic import remove_leftovers, write_atomic
from purerl.config import ConfigError
from purerl.types import HostMetrics

try:
    import fcntl as _fcntl
except ImportError:  # On Windows there is none, and folders are not locked.
    _fcntl = None
fcntl: Any = _fcntl

LOCK = ".lock"


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays; a reader sees all of them or nothing."""
    # numpy's stub lacks allow_pickle.
    write_atomic(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load_arrays(path: Path) -> HostMetrics:
    """Return the arrays that `save_arrays` wrote.

    Raises:
        OSError: there is no file; or another of `DAMAGE`: it is damaged, or a checksum
            does not match.
    """
    check_arrays(path)
    with open_arrays(path) as file:
        return {name: file[name] for name in file.files}


def check_arrays(path: Path) -> None:
    """Read a file's checksums.

    Raises:
        zipfile.BadZipFile: one does not match; see `load_arrays` for the others.
    """
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise zipfile.BadZipFile("a checksum does not match")


CHECKSUM = "sha256"  # The last entry of every file.


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write plain values with their checksum; a reader sees all of it or nothing.

    Raises:
        OSError: the file cannot be written.
    """
    stored = json.loads(json.dumps(values))
    stored.pop(CHECKSUM, None)
    write_atomic(
        path, json.dumps({**stored, CHECKSUM: _digest(path, stored)}, indent=1)
    )


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Return the values that `write_json` wrote.

    Args:
        path: The file.
        remedy: The sentence that says what to do where the file is damaged.

    Raises:
        ConfigError: the file is damaged or missing; with its name and the remedy.
    """
    try:
        values = json.loads(path.read_text())
        if not isinstance(values, dict):
            raise ValueError("no mapping in it")
        if values.pop(CHECKSUM, None) != _digest(path, values):
            raise ValueError("its checksum differs")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}). {remedy}") from None
    return values


def _digest(path: Path, values: Mapping[str, Any]) -> str:
    # With the name, as one file may be exchanged with another.
    text = f"{path.name} {json.dumps(values, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()


def cache_base() -> Path | None:
    """Return the folder of this user's caches, or None where there is none.

    `XDG_CACHE_HOME` wins; without it a user who has no home has no caches.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given) if given else Path.home() / ".cache"
    except RuntimeError:  # The user has no home, as in some containers.
        return None


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
            with suppress(OSError):  # The disk is full: the lock holds all the same.
                file.truncate(0)
                owner = {"pid": os.getpid(), "host": platform.node()}
                os.write(file.fileno(), json.dumps(owner).encode())
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
