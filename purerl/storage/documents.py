"""JSON files of a folder, each with a checksum: what is read is what was written.

Every reader of a folder's JSON comes through here, so that no reader has to look for
entries that are missing or of another type.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from purerl.atomic import write_atomic
from purerl.config import ConfigError

CHECKSUM = "sha256"  # The last entry of every file.


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write plain values with their checksum; a reader sees all of it or nothing.

    Raises:
        OSError: the file cannot be written.
    """
    stored = json.loads(json.dumps(values))
    stored.pop(CHECKSUM, None)
    write_atomic(
        path, json.dumps({**stored, CHECKSUM: _digest(path, stored)}, indent=1)
    )


def read(path: Path, remedy: str) -> dict[str, Any]:
    """Return the values that `write` wrote.

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
