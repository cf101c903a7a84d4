"""Checkpoints: the only door to orbax. Atomic, the last few kept, nothing pickled."""

import contextlib
import hashlib
import logging
import shutil
import sys
import time
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.execution.format import format_bytes
from purerl.scale.host import DEFAULT_IMPL, HostKey, is_host_key
from purerl.storage.folders import refuse_other_keys
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
# Between the path of random keys and their implementation, where that is no default:
# `.key@rbg`.
_IMPL = "@"
# The error of asyncio in a thread whose loop has ended.
_LATE = "Event loop is closed"
# Bytes for the files beside the arrays.
_MARGIN = 2**16
# Fields of a state whose leaves have a slot for every item of a replay buffer.
_REPLAY = (".buffer", ".priorities.p")


class NotSavedError(ConfigError):
    """A checkpoint could not be written; those that there were are whole."""


def _orbax() -> Any:
    # Imported here so that only callers that save pay for importing orbax.
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)
    return ocp


def flatten(tree: PyTree) -> dict[str, np.ndarray]:
    """Return a pytree of host arrays as a dict by path, keys as their numbers.

    The name of random keys that are not the default ones says what they are.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_host_key)
    named = {}
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path)
        if isinstance(leaf, HostKey):
            name += "" if leaf.impl == DEFAULT_IMPL else f"{_IMPL}{leaf.impl}"
            leaf = leaf.data
        named[name] = leaf
    return named


def unflatten(
    flat: dict[str, np.ndarray],
    like: PyTree,
    source: Path,
    may_grow: bool = True,
    goes_on: bool = False,
) -> PyTree:
    """Invert `flatten`, into the structure and shapes of `like`.

    A replay buffer holds no more items than its run has steps, so that of a run that
    goes on for longer has more slots. They are empty, as if the run had been so long
    from its beginning: the buffer of the shorter run was full at its end at the
    earliest, and nothing in it had been replaced.

    Args:
        flat: Arrays by path, from a checkpoint.
        like: Shapes of one member's state; `flat` has a leading axis of members.
        source: Path of the checkpoint, for error messages.
        may_grow: Whether a replay buffer with more slots is that of a longer run, of
            the same `buffer_size`.
        goes_on: Whether they are to be trained by a program whose random keys are those
            of `like`.

    Raises:
        ConfigError: other names or shapes: a checkpoint of another config; or other
            random keys than the program has that goes on.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    keys = {name for name, leaf in wanted.items() if _is_key(leaf)}
    flat, impls = _without_impls(flat, keys)
    num = next((len(x) for x in flat.values()), 0)  # members
    for name, leaf in wanted.items():
        if 0 in leaf.shape:
            flat.setdefault(name, np.zeros((num, *leaf.shape), leaf.dtype))
    if wanted.keys() != flat.keys():
        odd = sorted(wanted.keys() ^ flat.keys())[:3]
        raise ConfigError(
            f"the checkpoint {source} is of another config: {', '.join(odd)} "
            "differ. Use the config.yaml beside it."
        )
    built = []
    for name, leaf in wanted.items():
        value = flat[name]
        if name in keys:
            impl = impls.get(name, DEFAULT_IMPL)
            if goes_on:
                here = str(leaf.dtype._impl.name)
                refuse_other_keys(f"the checkpoint {source}", impl, here)
            built.append(HostKey(value, impl))
            continue
        if may_grow and name.startswith(_REPLAY):
            value = _with_slots(value, leaf.shape)
        if value.shape[1:] != leaf.shape:
            raise ConfigError(
                f"the checkpoint {source} is of another config: {name} has shape "
                f"{value.shape[1:]}, expected {leaf.shape}. Use the config.yaml beside "
                "it."
            )
        if value.dtype != leaf.dtype:
            raise ConfigError(
                f"the checkpoint {source} has other numbers: {name} is {value.dtype}, "
                f"expected {leaf.dtype}. Read it with the versions and settings of JAX "
                "that wrote it."
            )
        built.append(value)
    return jax.tree.unflatten(structure, built)


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_impls(
    flat: dict[str, np.ndarray], keys: Collection[str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by path alone, and implementations by the path of random keys."""
    plain, impls = {}, {}
    for name, value in flat.items():
        path, at, impl = name.rpartition(_IMPL)
        if at and path in keys:
            impls[path] = impl
        plain[path if at and path in keys else name] = value
    return plain, impls


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
        NotSavedError: the disk has no room for it, or orbax fails otherwise; what was
            written of it is removed, as far as that can be done.
    """
    # orbax saves no arrays without elements; `unflatten` makes them again.
    flat = {name: x for name, x in flatten(tree).items() if x.size}
    flat[_DIGEST] = np.frombuffer(digest(flat, step), np.uint8)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Looked at first: orbax's threads print a traceback each where a disk is full.
        need = sum(array.nbytes for array in flat.values()) + _MARGIN
        free = shutil.disk_usage(folder).free
        if need > free:
            room = f"the disk has {format_bytes(free)} free"
            raise OSError(f"it needs {format_bytes(need)}, and {room}")
        _write(folder, step, flat, keep)
    except Exception as error:
        with contextlib.suppress(OSError):  # Where no file opens, no folder is read.
            for half in folder.glob(f"{step}.*tmp*"):
                shutil.rmtree(half, ignore_errors=True)
        kept = "the others stay as they are"
        with contextlib.suppress(OSError):
            known = steps(folder)
            last = f"the last whole one is {known[-1]}" if known else ""
            kept = last or "there is no other one"
        remedy = "Report it with the run's config"
        if isinstance(error, OSError) or "space" in str(error):
            remedy = "Make room on the disk"
        raise NotSavedError(
            f"the checkpoint {folder / str(step)} could not be written "
            f"({_first_line(error)}); {kept}. {remedy}."
        ) from error


def _write(folder: Path, step: int, flat: dict[str, np.ndarray], keep: int) -> None:
    ocp = _orbax()
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep, enable_async_checkpointing=False
    )
    with ocp.CheckpointManager(folder.absolute(), options=options) as manager:
        manager.save(step, args=ocp.args.StandardSave(flat), force=True)


def steps(folder: Path) -> list[int]:
    """Return the numbers of finished updates that have checkpoints, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def restore(folder: Path, step: int | None = None) -> tuple[int, dict[str, np.ndarray]]:
    """Read a checkpoint, the last one where `step` is not given.

    A run that goes on takes old checkpoints away while it saves new ones. So the last
    one may have been replaced while it was read; then the next one is read.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    while True:
        known = steps(folder)
        wanted = known[-1] if step is None and known else step
        if wanted is None or wanted not in known:
            what = "checkpoint" if step is None else f"checkpoint {step}"
            raise ConfigError(
                f"there is no {what} in {folder}; "
                f"it has {', '.join(map(str, known)) or 'none'}. "
                "Give the folder of a run that saved one."
            )
        try:
            return wanted, _restore_one(folder, wanted)
        except _DamagedError as error:
            if step is None and steps(folder)[-1:] != [wanted]:
                continue
            others = [str(other) for other in known if other != wanted]
            remedy = (
                f"Delete that folder to go on from update {others[-1]}."
                if others
                else "There is no other one: start again with another --out."
            )
            where = folder / str(wanted)
            raise ConfigError(
                f"the checkpoint {where} is damaged ({error}). {remedy}"
            ) from error


class _DamagedError(Exception):
    """A checkpoint cannot be read; the first line of why."""


def _restore_one(folder: Path, step: int) -> dict[str, np.ndarray]:
    try:
        flat = _read(folder, step)
    except Exception as error:
        raise _DamagedError(_first_line(error)) from error
    stored = flat.pop(_DIGEST, None)
    if stored is None or stored.tobytes() != digest(flat, step):
        raise _DamagedError("its checksum differs")
    return flat


@contextlib.contextmanager
def _without_late_errors() -> Iterator[None]:
    """Say nothing of reads that end after another one has failed.

    At the first failure orbax closes its event loop, and every other read then prints a
    traceback that the loop is closed, from a thread and at any time from then on. So
    what keeps them silent stays after a failure.
    """
    before = sys.unraisablehook
    late = r"coroutine '.*' was never awaited"
    warnings.filterwarnings("ignore", late, RuntimeWarning)

    def told(found: Any) -> None:
        error = found.exc_value
        is_late = isinstance(error, RuntimeError) and str(error) == _LATE
        if found.object is not None or not is_late:
            before(found)

    sys.unraisablehook = told
    yield
    sys.unraisablehook = before


def _read(folder: Path, step: int) -> dict[str, np.ndarray]:
    ocp = _orbax()
    handler = ocp.StandardCheckpointHandler()
    with (
        _without_late_errors(),
        ocp.CheckpointManager(folder.absolute(), item_handlers=handler) as manager,
    ):
        meta = manager.item_metadata(step)
        # Without a target orbax would ask for the devices that saved the arrays.
        target = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in meta.items()}
        flat = manager.restore(step, args=ocp.args.StandardRestore(target))
    return {name: np.asarray(value) for name, value in flat.items()}


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
