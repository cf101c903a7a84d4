"""Named arrays in a file: written atomically, checked when read, never pickled."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from purerl.atomic import DAMAGE as DAMAGE
from purerl.atomic import write_atomic
from purerl.types import HostMetrics


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays; a reader sees all of them or nothing."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # numpy's stub lacks allow_pickle.
    write_atomic(path, buffer.getvalue())


def load(path: Path) -> HostMetrics:
    """Return the arrays that `save` wrote.

    Raises:
        OSError: there is no file; or another of `DAMAGE`: it is damaged, or a checksum
            does not match.
    """
    check(path)
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def check(path: Path) -> None:
    """Read a file's checksums.

    Raises:
        zipfile.BadZipFile: one does not match; see `load` for the others.
    """
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise zipfile.BadZipFile("a checksum does not match")
