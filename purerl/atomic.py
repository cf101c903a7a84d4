"""Files that are written whole or not at all, and signs of a damaged one."""

import contextlib
import os
import re
import secrets
import time
import zipfile
import zlib
from pathlib import Path

LEFTOVER_SECONDS = 600.0
# `.<name>.<eight characters>`, as `write_atomic` names them.
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")

# What NumPy and zipfile raise for a file that is missing, cut off or changed.
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,  # A changed byte may say a version that zipfile does not read.
    zipfile.BadZipFile,
    zlib.error,
)


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write so that a reader sees the old file or the new one, never half."""
    path = Path(path)
    # Not mkstemp's: its files are for their owner only, and the process's umask cannot
    # be asked for without setting it, which is no thread's business.
    name = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        data = content.encode() if isinstance(content, str) else content
        with name.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = str(path)  # What the user has named, and will look for.
        with contextlib.suppress(OSError):
            name.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: str | Path) -> None:
    """Remove what `write_atomic` left in a folder when its process was killed.

    Files that were touched in the last ten minutes may be another process's.
    """
    for path in Path(folder).glob(".*"):
        with contextlib.suppress(OSError):  # The file is gone, or not ours to remove.
            is_old = time.time() - path.stat().st_mtime > LEFTOVER_SECONDS
            if is_old and _TEMPORARY.fullmatch(path.name) and path.is_file():
                path.unlink()
