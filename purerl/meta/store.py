"""An evolution's folder: what it is, how far it has come, and what it has learned.

config.yaml      the config that members start from, for people
manifest.json    what is evolved and how, lanes, versions, device
checkpoints/     the last two states: strategy, best member, history
snapshots/       the solution every few generations
learned.yaml     the config with the solution in it; and value_loss.npz,
                 optimiser.npz, ...
summary.json     what all generations have cost

Every file is written atomically and none is pickled.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.storage import checkpoint, folders
from purerl.storage.files import DAMAGE, load_arrays, save_arrays
from purerl.storage.folders import FIELD, differences
from purerl.types import PyTree

KIND = "evolution"
# Files written by a program that lays them out otherwise are not read.
FORMAT = 1
KEEP = 2


class State(NamedTuple):
    """The state that going on needs beside the settings. `G` generations, on the host.

    Attributes:
        done: The number of finished generations, int32 `[]`.
        strategy: The state of the strategy, before generation `done`.
        best: The vector of the best member so far, `[D]`.
        best_fitness: The fitness of the best member so far, `[]`; NaN before the first.
        best_generation: The generation of the best member so far, int32 `[]`; -1 before
            the first.
        anchors: The returns of each environment that count 0 and 1, `[E, 2]`.
        fitness: The worth of the members, `[G, P]`; NaN where a member failed, and from
            `done` on.
        returns: The mean return over members and rollouts that did not fail, `[G, E]`;
            negated where the fitness is.
        sigma: The strategy's sigma when it asked, `[G]`.
        seconds: Seconds that each generation took, `[G]`.
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


def open_folder(
    folder: Path, spec: dict[str, Any], snapshot_every: int | None = None
) -> dict[str, Any]:
    """Start an evolution's folder, or go on with it.

    Args:
        folder: The folder.
        spec: The specification of the evolution: `config`, `settings`; `generations`,
            which may grow; `lanes` and `segment_updates`, and the lanes that were asked
            for.
        snapshot_every: Generations between two snapshots, if some were asked for.

    Returns:
        The manifest that holds: a stored one's lanes win, and its `snapshot_every`
        unless one was asked for.

    Raises:
        ConfigError: see `purerl.storage.folders.open_folder`.
    """
    asked = {} if snapshot_every is None else {"snapshot_every": snapshot_every}
    return folders.open_folder(
        folder,
        spec,
        "checkpoints",
        "snapshots",
        compare=compare,
        merge=lambda stored, new: {**_extended(stored, new), **asked},
    )


def _extended(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {**stored, "generations": max(new["generations"], stored["generations"])}


def load(folder: Path) -> dict[str, Any]:
    """Return an evolution's manifest.

    Raises:
        ConfigError: there is none, or it cannot be read, or it is of another kind.
    """
    return folders.load_kind(folder, KIND, FORMAT)


def set_lanes(folder: Path, lanes: int) -> None:
    """Narrow the lanes of an evolution of which nothing has been trained yet."""
    folders.update(folder, {"lanes": lanes})


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two evolutions, in words."""
    parts = {"config": FIELD, "settings": FIELD}
    free = ("auto", "generations", "evosax", "snapshot_every")
    found = differences(stored, new, parts, free=free)
    # Equal mappings may have another order, which is that of the vector's numbers.
    before, now = (list(spec["settings"]["evolve"]) for spec in (stored, new))
    if before != now and set(before) == set(now):
        found.append(f"the order of evolve is {before} there and {now} here")
    return found


def save(folder: Path, state: State) -> None:
    """Write a state; a reader sees all of it or nothing."""
    flat = checkpoint.flatten(state._asdict())
    checkpoints = folder / "checkpoints"
    save_arrays(checkpoints / f"{int(state.done):06d}.npz", flat)
    for old in _saved(checkpoints)[:-KEEP]:
        old.unlink(missing_ok=True)


def restore(folder: Path, like: State) -> State | None:
    """Return the last state that was saved; None if there is none.

    Args:
        like: A fresh state: structure, and the number of generations.

    Raises:
        ConfigError: it is damaged, or of another config.
    """
    saved = _saved(folder / "checkpoints")
    if not saved:
        return None
    flat = _read(saved[-1], [path.name for path in saved[:-1]])
    return _unflatten(flat, like, saved[-1])


def save_snapshot(folder: Path, generation: int, vector: np.ndarray) -> None:
    """Write the solution after a generation.

    Args:
        generation: The number of finished generations.
        vector: The solution, `[D]`.
    """
    named = {"done": np.array(generation), "vector": vector}
    save_arrays(folder / "snapshots" / f"{generation:06d}.npz", named)


def load_snapshots(folder: Path) -> dict[int, np.ndarray]:
    """Return solutions by number of finished generations.

    Raises:
        ConfigError: one is damaged.
    """
    return {
        int(path.stem): _read(path, [])["vector"]
        for path in _saved(folder / "snapshots")
    }


def _saved(checkpoints: Path) -> list[Path]:
    found = [path for path in checkpoints.glob("*.npz") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem))


def _read(path: Path, others: list[str]) -> dict[str, np.ndarray]:
    try:
        flat = load_arrays(path)
        done = flat["done"] if "done" in flat else flat["['done']"]
        if int(done) != int(path.stem):
            raise ValueError(f"it is that of generation {int(done)}")
        return flat
    except DAMAGE as error:
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
                f"{path} is of another evolution: {name} is {value.dtype} of shape "
                f"{value.shape}, expected {leaf.dtype} of shape {leaf.shape}. Give "
                "another folder."
            )
        built.append(value)
    return State(**jax.tree.unflatten(structure, built))
