"""summary.json: numbers of what a folder holds, and about the call that trained it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.storage import documents

FILE = "summary.json"


def write(
    folder: Path,
    facts: Mapping[str, Any],
    call: Mapping[str, Any],
    has_trained: bool,
    added: Sequence[str] = (),
) -> None:
    """Write the file; a call that trained nothing leaves the times of an earlier one.

    Args:
        folder: Folder of the results.
        facts: Numbers of what the folder holds, whoever trained it, by name.
        call: Numbers about the call, such as its times, by name.
        has_trained: Whether the call has trained something.
        added: Names of the numbers of the call that are added to those of earlier ones.
    """
    try:
        earlier = read(folder)
    except ConfigError:  # It is written anew.
        earlier = {}
    if has_trained:
        sums = {name: (earlier.get(name) or 0) + call[name] for name in added}
        earlier = {
            name: round(total, 2) if isinstance(total, float) else total
            for name, total in sums.items()
        }
    documents.write(folder / FILE, {**call, **earlier, **facts})


def read(folder: Path) -> dict[str, Any]:
    """Return the numbers of a folder's summary; none where there is no file.

    Args:
        folder: Folder of the results.

    Raises:
        ConfigError: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    return documents.read(path, "Repeat the call that wrote it: it is written anew.")


def refuse_lost(folder: Path) -> None:
    """Refuse to begin again what has a summary and no checkpoint any more.

    Raises:
        ConfigError: naming both.
    """
    if (folder / FILE).exists():
        raise ConfigError(
            f"{folder / 'checkpoints'} has no checkpoint, and {folder / FILE} is of "
            "what had been trained. Put back a copy of the checkpoints, or give "
            "another folder; nothing was changed."
        )
