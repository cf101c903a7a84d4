"""Files that are written whole or not at all, and signs of a damaged one."""

import contextlib
import os
import re
import secrets
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

# As `write_atomic` names them, and probes of whether a folder can be written.
_TEMPORARY = re.compile(
    r"\..+\.(json|jsonl|yaml|csv|npz|png|html|onnx)\.[0-9a-f]{8}|\.write-test-\d+"
)

# What NumPy and zipfile raise for a file that is missing, cut off or changed.
DAMAGE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,  # A changed byte may say that it is encrypted, or of a new version.
    zipfile.BadZipFile,
    zlib.error,
)


@contextlib.contextmanager
def open_arrays(file: str | Path | IO[bytes]) -> Iterator[np.lib.npyio.NpzFile]:
    """Open the arrays of an .npz file, by name; nothing pickled is read.

    Raises:
        ValueError: it is one array, as of an .npy file; or another of `DAMAGE`.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(file, str | Path):  # NumPy would not close a damaged one.
            file = stack.enter_context(Path(file).open("rb"))
        opened = np.load(file, allow_pickle=False)
        if not isinstance(opened, np.lib.npyio.NpzFile):
            raise ValueError("it is one array, not an .npz file of arrays by name")
        yield stack.enter_context(opened)


def write_atomic(
    path: str | Path, content: str | bytes | Callable[[IO[bytes]], None]
) -> None:
    """Write so that a reader sees the old file or the new one, never half.

    Args:
        content: What is written, or a function that writes it into an open file.
    """
    path = Path(path)
    # Not mkstemp's: its files are for their owner only, and the process's umask cannot
    # be asked for without setting it, which is no thread's business.
    name = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        with name.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = str(path)  # What the user has named, and will look for.
        with contextlib.suppress(OSError):
            name.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path, before: float) -> None:
    """Remove what processes that were killed left half written in a folder of results.

    Args:
        folder: The folder, which nobody else writes to.
        before: The time, as files have it, before which such a file was written.
    """
    for path in (*folder.glob(".*"), *folder.glob("*/.*")):
        with contextlib.suppress(OSError):  # The file is gone, or not ours to remove.
            if _TEMPORARY.fullmatch(path.name) and path.stat().st_mtime <= before:
                path.unlink()
