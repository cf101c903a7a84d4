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

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.meta.strategy import Optimiser
from purerl.storage import checkpoint, folders
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


def open_folder(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Start an evolution's folder, or go on with it; return the manifest that holds.

    A stored one's lanes win, and its `generations` may grow.

    Raises:
        ConfigError: see `purerl.storage.folders.open_folder`.
    """

    def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
        parts = {"config": FIELD, "settings": FIELD}
        free = ("auto", "generations", "evosax", "options")
        found = differences(stored, new, parts, free=free)
        # Equal mappings may have another order, which is that of the vector's numbers.
        before, now = (list(spec["settings"]["evolve"]) for spec in (stored, new))
        if before != now and set(before) == set(now):
            found.append(f"the order of evolve is {before} there and {now} here")
        return found

    def merge(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        generations = max(new["generations"], stored["generations"])
        return {**stored, "options": new["options"], "generations": generations}

    parts = "checkpoints", "snapshots"
    return folders.open_folder(folder, spec, *parts, compare=compare, merge=merge)


def load(folder: Path) -> dict[str, Any]:
    """Return an evolution's manifest.

    Raises:
        ConfigError: there is none, or it cannot be read, or it is of another kind.
    """
    return folders.load_kind(folder, KIND, FORMAT)


def fresh_state(
    optimiser: Optimiser, key: Any, generations: int, environments: int
) -> State:
    """Return the state before the first generation; its anchors are not known yet.

    Args:
        optimiser: The strategy over the genome.
        key: The key of the strategy's first state, consumed.
        generations: The number of generations of the whole evolution, G.
        environments: The number of environments, E.
    """
    nan = np.array(np.nan, np.float32)
    return State(
        done=np.array(0, np.int32),
        strategy=optimiser.init(key),
        best=optimiser.genome.start(),
        best_fitness=nan,
        best_generation=np.array(-1, np.int32),
        anchors=np.full((environments, 2), nan),
        fitness=np.full((generations, optimiser.population), nan),
        returns=np.full((generations, environments), nan),
        sigma=np.full(generations, nan),
        seconds=np.full(generations, nan),
    )


def with_generation(
    state: State, vectors: np.ndarray, scores: np.ndarray, returns: np.ndarray
) -> State:
    """Return the state with a generation's scores in its history, and the best member.

    Args:
        state: The state before the generation.
        vectors: Vectors of the generation's members, `[P, D]`.
        scores: The worth of the members, `[P]`; NaN where they failed.
        returns: Returns of the members' runs, `[E, P, R]`.
    """
    number = int(state.done)
    state = state._replace(
        done=np.array(number + 1, np.int32),
        fitness=state.fitness.copy(),
        returns=state.returns.copy(),
        sigma=state.sigma.copy(),
        seconds=state.seconds.copy(),
    )
    state.fitness[number] = scores
    known = np.isfinite(returns)
    total = np.where(known, returns, 0.0).sum((1, 2), dtype=float)
    count = known.sum((1, 2))
    state.returns[number] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    if not np.isfinite(scores).any():
        return state
    best = int(np.nanargmax(scores))
    if state.best_fitness >= scores[best]:  # False for NaN: there was none before.
        return state
    return state._replace(
        best=vectors[best].copy(),
        best_fitness=np.array(scores[best], np.float32),
        best_generation=np.array(number, np.int32),
    )


def save(folder: Path, state: State) -> None:
    """Write a state; a reader sees all of it or nothing.

    Raises:
        NotSavedError: see `purerl.storage.checkpoint.save`.
    """
    # A checkpoint holds members; an evolution is one.
    tree = jax.tree.map(lambda x: np.asarray(x)[None], state._asdict())
    checkpoint.save(folder / "checkpoints", int(state.done), tree, KEEP)


def restore(folder: Path, like: State) -> State | None:
    """Return the last state that was saved; None if there is none.

    Args:
        like: A fresh state: structure, and the number of generations.

    Raises:
        ConfigError: it is damaged, or of another config.
    """
    checkpoints = folder / "checkpoints"
    if not checkpoint.steps(checkpoints):
        return None
    _, flat = checkpoint.restore(checkpoints)
    for name in HISTORY:  # More generations may be asked for than when it was written.
        known, all_of_them = flat.get(f"['{name}']"), getattr(like, name)
        if known is not None:
            missing = all_of_them[None, known.shape[1] :]
            flat[f"['{name}']"] = np.concatenate([known, missing], 1)
    found = checkpoint.unflatten(flat, like._asdict(), checkpoints)
    return State(**jax.tree.map(lambda x: x[0], found))


def save_snapshot(folder: Path, generation: int, vector: np.ndarray) -> None:
    """Write the solution `[D]` after a number of generations."""
    tree = {"vector": vector}
    checkpoint.save(folder / "snapshots", generation, tree, keep=sys.maxsize)


def load_snapshots(folder: Path) -> dict[int, np.ndarray]:
    """Return solutions by number of finished generations.

    Raises:
        ConfigError: one is damaged.
    """
    snapshots = folder / "snapshots"
    return {
        step: checkpoint.restore(snapshots, step)[1]["['vector']"]
        for step in checkpoint.steps(snapshots)
    }
