"""Files of a folder: arrays and JSON, whole or not at all, with checksums."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purerl.atomic import DAMAGE as DAMAGE
from purerl.atomic import write_atomic
from purerl.config import ConfigError
from purerl.types import HostMetrics


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays; a reader sees all of them or nothing."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stub lacks allow_pickle.
    write_atomic(path, buffer.getvalue())


def load_arrays(path: Path) -> HostMetrics:
    """Return the arrays that `save_arrays` wrote.

    Raises:
        OSError: there is no file; or another of `DAMAGE`: it is damaged, or a checksum
            does not match.
    """
    check_arrays(path)
    with np.load(path, allow_pickle=False) as file:
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
    except RecursionError:
        raise ConfigError(f"{path} is damaged (nested too deeply). {remedy}") from None
    except (OSError, ValueError) as error:
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
