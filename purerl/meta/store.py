"""An evolution's folder: what it is, how far it has come, and what it has learned.

config.yaml      the config that members start from, for people
manifest.json    what is evolved and how, lanes, versions, device
checkpoints/     the last two states: strategy, best member, history
snapshots/       the solution every few generations
learned.yaml     the config with the solution in it; and value_loss.npz, ...

Every file is written atomically and none is pickled.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl import serialise
from purerl.config import ConfigError
from purerl.runner import checkpoint, manifest
from purerl.types import PyTree

KIND = "evolution"
# Files written by a program that lays them out otherwise are not read.
FORMAT = 1
KEEP = 2
# What must be the same where a folder is gone on with.
_PARTS = ("config", "settings")


class State(NamedTuple):
    """All that going on needs, beside the settings. `G` generations, on the host.

    Attributes:
        done: int32 `[]`, finished generations.
        strategy: of the strategy, before generation `done`.
        best: `[D]` the best member so far.
        best_fitness: `[]`, NaN before the first.
        best_generation: int32 `[]`, -1 before the first.
        anchors: `[E, 2]`, the returns of each environment that count 0 and 1.
        fitness: `[G, P]`; NaN where a member failed, and from `done` on.
        returns: `[G, E]`, mean over members and rollouts that did not fail.
        sigma: `[G]`, of the strategy, when it asked.
        seconds: `[G]`.
    """

    done: np.ndarray
    strategy: PyTree
    best: np.ndarray
    best_fitness: np.ndarray
    best_generation: np.ndarray
    anchors: np.ndarray
    fitness: np.ndarray
    returns: np.ndarray
    sigma: np.ndarray
    seconds: np.ndarray


HISTORY = ("fitness", "returns", "sigma", "seconds")


def open_folder(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Start an evolution's folder, or go on with it.

    Args:
        folder: of the evolution.
        spec: what it is: `config`, `settings`; `generations`, which may grow; `lanes`
            and `segment_updates`, and what was asked of the first.

    Returns:
        The manifest that holds: a stored one's lanes win.

    Raises:
        ConfigError: another evolution's folder (with what differs), or one that cannot
            be written.
    """
    new = json.loads(json.dumps(spec))
    if (folder / "manifest.json").exists():
        stored = load(folder)
        differences = compare(stored, new)
        if differences:
            raise ConfigError(
                f"out: {folder} holds another evolution: {'; '.join(differences)}. "
                "Give another folder, or the stored settings."
            )
        manifest.require_writable(folder)
        merged = {
            **stored,
            "generations": max(new["generations"], stored["generations"]),
        }
        if merged != stored:
            text = json.dumps(merged, indent=1)
            serialise.write_atomic(folder / "manifest.json", text)
        return merged
    try:
        for name in ("checkpoints", "snapshots"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        manifest.check_writable(folder)
        text = serialise.yaml_text(spec["config"])
        serialise.write_atomic(folder / "config.yaml", text)
        serialise.write_atomic(folder / "manifest.json", json.dumps(new, indent=1))
    except OSError as error:
        raise ConfigError(
            f"out: cannot write to {folder} ({error.strerror or error}). Give a folder "
            "that you may write to."
        ) from None
    return new


def load(folder: Path) -> dict[str, Any]:
    """An evolution's manifest.

    Raises:
        ConfigError: there is none, or it cannot be read, or it is of another kind.
    """
    return manifest.load_kind(folder, KIND, FORMAT)


def set_lanes(folder: Path, lanes: int) -> None:
    """Narrow the lanes of an evolution of which nothing has been trained yet."""
    stored = {**load(folder), "lanes": lanes}
    serialise.write_atomic(folder / "manifest.json", json.dumps(stored, indent=1))


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two evolutions, in words."""
    found = []
    for part in _PARTS:
        for name in sorted({*stored[part], *new[part]}):
            before, now = stored[part].get(name), new[part].get(name)
            if before != now:
                found.append(f"{name} is {_brief(before)} there and {_brief(now)} here")
    asked = new["lanes_asked"]
    if asked and stored["lanes"] != asked:
        found.append(f"lanes is {stored['lanes']} there and {asked} here")
    before, now = stored["segment_updates"], new["segment_updates"]
    if before != now:
        found.append(f"segment_updates is {before} there and {now} here")
    return found


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:100]}..."


def save(folder: Path, state: State) -> None:
    """Write a state; a reader sees all of it or nothing."""
    flat = checkpoint.flatten(state._asdict())
    place = folder / "checkpoints"
    _write(place / f"{int(state.done):06d}.npz", flat)
    for old in _saved(place)[:-KEEP]:
        old.unlink(missing_ok=True)


def restore(folder: Path, like: State) -> State | None:
    """The last state that was saved; None if there is none.

    Args:
        folder: of the evolution.
        like: a fresh state: structure, and the number of generations.

    Raises:
        ConfigError: it is damaged, or of another config.
    """
    saved = _saved(folder / "checkpoints")
    if not saved:
        return None
    flat = _read(saved[-1], [path.name for path in saved[:-1]])
    return _unflatten(flat, like, saved[-1])


def save_snapshot(folder: Path, generation: int, vector: np.ndarray) -> None:
    """Write the solution after a generation."""
    _write(folder / "snapshots" / f"{generation:06d}.npz", {"vector": vector})


def load_snapshots(folder: Path) -> dict[int, np.ndarray]:
    """Solutions by number of finished generations.

    Raises:
        ConfigError: one is damaged.
    """
    return {
        int(path.stem): _read(path, [])["vector"]
        for path in _saved(folder / "snapshots")
    }


def _saved(place: Path) -> list[Path]:
    return sorted(path for path in place.glob("*.npz") if path.stem.isdigit())


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # (of allow_pickle)
    serialise.write_atomic(path, buffer.getvalue())


def _read(path: Path, others: list[str]) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise zipfile.BadZipFile("a checksum does not match")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        remedy = f"Delete it to go on from {others[-1]}." if others else "Delete it."
        raise ConfigError(f"{path} is damaged ({error}). {remedy}") from None


def _unflatten(flat: dict[str, np.ndarray], like: State, path: Path) -> State:
    import jax

    leaves, structure = jax.tree_util.tree_flatten_with_path(like._asdict())
    names = [jax.tree_util.keystr(where) for where, _ in leaves]
    if set(names) != set(flat):
        odd = sorted(set(names) ^ set(flat))[:3]
        raise ConfigError(f"{path} is of another evolution: {', '.join(odd)} differ.")
    built = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        value = flat[name]
        if any(name == f"['{part}']" for part in HISTORY):
            # More generations are asked for than when it was written, or fewer.
            value = np.concatenate([value, leaf[len(value) :]])
        elif value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise ConfigError(
                f"{path} is of another evolution: {name} has shape {value.shape}, "
                f"expected {leaf.shape}."
            )
        built.append(value)
    return State(**jax.tree.unflatten(structure, built))
