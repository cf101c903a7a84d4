"""A small folder of every kind: how it is written, gone on with, and what it holds."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import purerl
from purerl.storage.files import jsonable
from tests.helpers import plain, tiny_config, tiny_table

# Checkpoints of a run hold networks; the other kinds are quicker of a table.
NETWORKS = tiny_config(num_evaluations=2)
CONFIG = tiny_table(num_evaluations=2)
AXES = {"learning_rate": [1e-3, 1e-2]}
RANGE = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}
NARROW = {"lanes": 2, "progress": False}
SHARED = NARROW | {"segment_updates": 10}
SAVED = SHARED | {"checkpoint_seconds": 0.0}
BRACKET = {"brackets": "one", "eta": 2, "min_updates": 10}
GENERATIONS = {"generations": 3, "snapshot_every": 1}

# What writes a folder of each kind; called again, it goes on with it.
WRITE: dict[str, Callable[[Path], Any]] = {
    "run": lambda out: purerl.run(
        NETWORKS, seeds=2, out=out, resume=(out / "manifest.json").exists(), **SAVED
    ),
    "sweep": lambda out: purerl.sweep(CONFIG, AXES, seeds=2, out=out, **SHARED),
    "pbt": lambda out: purerl.pbt(
        CONFIG, RANGE, population=2, ready_updates=10, out=out, **SAVED
    ),
    "halving": lambda out: purerl.halving(
        CONFIG, AXES, num_points=2, **BRACKET, out=out, **SAVED
    ),
    "evolution": lambda out: purerl.evolve(
        CONFIG, "learning_rate", population=2, **GENERATIONS, out=out, **SAVED
    ),
    "tune": lambda out: purerl.tune(
        CONFIG, RANGE, trials=5, batch=2, seeds=2, holdout_seeds=2, out=out, **NARROW
    ),
    "comparison": lambda out: purerl.compare(
        CONFIG, {"slow": {"learning_rate": 1e-3}, "own": {}}, seeds=2, out=out, **SHARED
    ),
}


def contents(kind: str, result: Any) -> Any:
    """All that a result holds but times, as nested plain values."""
    if kind == "run":
        own = dict(vars(result), compile_seconds=0, train_seconds=0, train_steps=0)
        return _plain({**own, "out": None})
    if kind == "sweep":
        return _plain({name: result[name].values for name in sorted(result.names)})
    if kind in ("pbt", "halving"):
        data = {name: result.dataset[name].values for name in result.dataset}
        return _plain([data, result.states, result.finished, result.best()])
    if kind == "evolution":
        return _plain([result.history, result.vector, result.best(), result.done])
    if kind == "tune":
        held_out = result.holdout and jsonable(result.holdout)
        return _plain([result.rows, held_out, result.importance, result.finished])
    about = {name: getattr(result, name) for name in ("scores", "curves", "steps")}
    return _plain([about, repr(result.rows), result.seeds, result.baseline])


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    is_config = dataclasses.is_dataclass(value) and hasattr(value, "replace")
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    if is_config or isinstance(value, str | int | float | None | Path):
        return repr(value)
    value = plain(value)
    if not isinstance(value, np.ndarray) or value.dtype == object:
        return repr(value)
    if np.issubdtype(value.dtype, np.floating):
        value = np.where(np.isnan(value), value.dtype.type(np.nan), value)
    return str(value.dtype), value.shape, value.tobytes()
