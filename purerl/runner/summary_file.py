"""summary.json: numbers of what a folder holds, and about the call that trained it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from purerl.atomic import write_atomic

FILE = "summary.json"


def write(
    folder: Path,
    facts: Mapping[str, Any],
    call: Mapping[str, Any],
    has_trained: bool,
) -> None:
    """Write the file; a call that trained nothing leaves the times of an earlier one.

    Args:
        folder: Folder of the results.
        facts: Numbers of what the folder holds, whoever trained it, by name.
        call: Numbers about the call, such as its times, by name.
        has_trained: Whether the call has trained something.
    """
    earlier = {} if has_trained else _read(folder / FILE)
    text = json.dumps({**call, **earlier, **facts}, indent=2)
    write_atomic(folder / FILE, text)


def _read(path: Path) -> dict[str, Any]:
    """Numbers of an earlier call; none where they cannot be read."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}
