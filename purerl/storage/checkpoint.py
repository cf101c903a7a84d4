"""Checkpoints: the states of all members, the last few kept, nothing pickled.

checkpoints/     <number of finished updates>.npz: arrays by path, and their checksum
"""

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.execution.format import format_bytes
from purerl.scale.host import HostKey, is_host_key
from purerl.storage.files import DAMAGE, open_arrays, save_arrays
from purerl.types import PyTree

# Saving gets a tenth of the time in between: less than a tenth of all time.
SHARE = 10.0


class Pace:
    """The time that passes between checkpoints.

    Args:
        seconds: The least time from the end of a save to the next one; ten times what
            the last save took, where that is longer. 0: every one is due.
    """

    def __init__(self, seconds: float) -> None:
        self._least, self._took = seconds, 0.0
        self._saved_at = time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        wait = max(self._least, SHARE * self._took) if self._least else 0.0
        return time.monotonic() - self._saved_at >= wait

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Measure the time that a save takes, also one that fails."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._saved_at = time.monotonic()
            self._took = self._saved_at - began


_DIGEST = "__sha256__"
# Types of numbers that NumPy does not have, such as bfloat16, by the name of the array.
_TYPES = "__types__"
# Bytes for the files beside the arrays.
_MARGIN = 2**16
# Fields of a state whose leaves have a slot for every item of a replay buffer.
_REPLAY = (".buffer", ".priorities.p")
_KEY = jax.dtypes.prng_key


class NotSavedError(ConfigError):
    """A checkpoint could not be written; those that there were are whole."""


def flatten(tree: PyTree) -> dict[str, np.ndarray]:
    """Return a pytree of host arrays as a dict by path, keys as their numbers."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_host_key)
    return {
        jax.tree_util.keystr(path): leaf.data if isinstance(leaf, HostKey) else leaf
        for path, leaf in leaves
    }


def unflatten(flat: dict[str, np.ndarray], like: PyTree, source: Path) -> PyTree:
    """Invert `flatten`, into the structure and shapes of `like`.

    A replay buffer holds no more items than its run has steps, so that of a run that
    goes on for longer has more slots. They are empty, as if the run had been so long
    from its beginning: the buffer of the shorter run was full at its end at the
    earliest, and nothing in it had been replaced.

    Args:
        flat: Arrays by path, from a checkpoint.
        like: Shapes of one member's state; `flat` has a leading axis of members. Its
            random keys are those of the checkpoint, see `folders.keys_of`.
        source: Path of the checkpoint, for error messages.

    Raises:
        ConfigError: other names or shapes: a checkpoint of another config.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    if wanted.keys() != flat.keys():
        odd = sorted(wanted.keys() ^ flat.keys())[:3]
        raise ConfigError(
            f"the checkpoint {source} is of another config: {', '.join(odd)} differ."
        )
    built = []
    for name, leaf in wanted.items():
        value, is_key = flat[name], jax.dtypes.issubdtype(leaf.dtype, _KEY)
        if name.startswith(_REPLAY):
            value = _with_slots(value, leaf.shape)
        shape, dtype = leaf.shape, leaf.dtype
        if is_key:
            shape, dtype = (*shape, *leaf.dtype._impl.key_shape), np.dtype(np.uint32)
        if (value.shape[1:], value.dtype) != (shape, dtype):
            raise ConfigError(
                f"the checkpoint {source} is of another config: {name} has shape "
                f"{value.shape[1:]} and is {value.dtype}, expected {shape} {dtype}."
            )
        built.append(HostKey(value, str(leaf.dtype._impl.name)) if is_key else value)
    return jax.tree.unflatten(structure, built)


def _with_slots(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return `[S, C, ...]` with empty slots at its end, where `shape` has more."""
    if not shape or value.ndim != len(shape) + 1 or value.shape[2:] != shape[1:]:
        return value
    missing = max(0, shape[0] - value.shape[1])
    return np.pad(value, [(0, 0), (0, missing), *[(0, 0)] * (value.ndim - 2)])


def save(folder: Path, step: int, tree: PyTree, keep: int) -> None:
    """Write a checkpoint; a reader sees all of it or nothing.

    Args:
        folder: The folder of all checkpoints of a run.
        step: The number of finished updates, which names the checkpoint.
        tree: Arrays on the host, from `Cohort.gather`.
        keep: The number of last checkpoints that stay.

    Raises:
        NotSavedError: it cannot be written, such as where the disk has no room for it.
    """
    flat = flatten(tree)
    types = {name: x.dtype.name for name, x in flat.items() if x.dtype.kind == "V"}
    plain = {n: x.view(f"u{x.itemsize}") if n in types else x for n, x in flat.items()}
    plain[_DIGEST] = np.frombuffer(digest(flat, step), np.uint8)
    plain[_TYPES] = np.frombuffer(json.dumps(types).encode(), np.uint8)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Looked at first, so that a disk is not filled in vain.
        if lacking := lacking_room(folder, sum(x.nbytes for x in flat.values())):
            raise OSError(lacking)
        save_arrays(path_of(folder, step), plain)
        for old in steps(folder)[:-keep]:
            path_of(folder, old).unlink(missing_ok=True)
    except OSError as error:
        kept = ", ".join(map(str, steps(folder))) or "none"
        raise NotSavedError(
            f"the checkpoint {path_of(folder, step)} could not be written "
            f"({_first_line(error)}); whole ones: {kept}. Make room on the disk."
        ) from error


def lacking_room(folder: Path, num_bytes: int) -> str:
    """Return words on the room that a disk lacks for a checkpoint; empty if it has it.

    Args:
        folder: A folder on the disk, which is there.
        num_bytes: Bytes of the checkpoint's arrays.
    """
    need, free = num_bytes + _MARGIN, shutil.disk_usage(folder).free
    if need <= free:
        return ""
    return f"it needs {format_bytes(need)}, and the disk has {format_bytes(free)} free"


def path_of(folder: Path, step: int) -> Path:
    """Return the file of a checkpoint."""
    return folder / f"{step}.npz"


def steps(folder: Path) -> list[int]:
    """Return the numbers of finished updates that have checkpoints, ascending."""
    return sorted(int(x.stem) for x in folder.glob("*.npz") if x.stem.isdecimal())


def restore(folder: Path, step: int | None = None) -> tuple[int, dict[str, np.ndarray]]:
    """Read a checkpoint, the last one where `step` is not given.

    A run that goes on takes old checkpoints away while it saves new ones. So the last
    one may have been replaced while it was read; then the next one is read.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    while True:
        known = steps(folder)
        has = ", ".join(map(str, known)) or "none"
        wanted = known[-1] if step is None and known else step
        if wanted is None or wanted not in known:
            what = "checkpoint" if step is None else f"checkpoint {step}"
            raise ConfigError(f"there is no {what} in {folder}; it has {has}.")
        path = path_of(folder, wanted)
        try:
            return wanted, _read(path)
        except DAMAGE as error:
            if step is None and steps(folder)[-1:] != [wanted]:
                continue
            raise ConfigError(
                f"the checkpoint {path} is damaged ({_first_line(error)}). Delete it "
                f"to go on from an earlier one; there are {has}."
            ) from error


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint; one of `DAMAGE` where it is damaged."""
    with open_arrays(path) as file:
        flat = {name: file[name] for name in file.files}
    stored, types = flat.pop(_DIGEST), json.loads(flat.pop(_TYPES).tobytes())
    flat |= {name: flat[name].view(np.dtype(kind)) for name, kind in types.items()}
    if stored.tobytes() != digest(flat, int(path.stem)):
        raise ValueError("its checksum differs")
    return flat


def _first_line(why: Any) -> str:
    return str(why).strip().splitlines()[0][:200] if str(why).strip() else repr(why)


def digest(flat: dict[str, np.ndarray], step: int | None = None) -> bytes:
    """Return the SHA-256 of named arrays: of names, types, shapes and contents.

    Args:
        flat: Arrays by name.
        step: The number of the checkpoint that they are, if they are one.
    """
    total = hashlib.sha256(b"" if step is None else str(step).encode())
    for name in sorted(flat):
        array = np.ascontiguousarray(flat[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        # No copy: a replay buffer may be most of what the memory holds. numpy's view,
        # as that of Python knows neither bfloat16 nor arrays without elements.
        total.update(array.reshape(-1).view(np.uint8).data if array.nbytes else b"")
    return total.digest()
