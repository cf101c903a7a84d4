"""summary.json: numbers of what a folder holds, and about the call that trained it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from purerl.atomic import write_atomic

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
    earlier = read(folder)
    if has_trained:
        sums = {name: (earlier.get(name) or 0) + call[name] for name in added}
        earlier = {
            name: round(total, 2) if isinstance(total, float) else total
            for name, total in sums.items()
        }
    text = json.dumps({**call, **earlier, **facts}, indent=2)
    write_atomic(folder / FILE, text)


def read(folder: Path) -> dict[str, Any]:
    """Return the numbers of a folder's summary; none where they cannot be read.

    Args:
        folder: Folder of the results.
    """
    try:
        return dict(json.loads((folder / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return {}
