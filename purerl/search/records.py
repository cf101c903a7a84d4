"""The record of a request: what came of it, and what the search made of that.

A record is a file of named arrays. `request` tells requests apart, `state/...` is the
search's state after it was told, all else is the outcome.
"""

from pathlib import Path

import numpy as np

from purerl.config import ConfigError
from purerl.execution.cohort import Evaluation
from purerl.scale.host import to_host
from purerl.search.protocol import Outcome, Request, State, Step
from purerl.storage import checkpoint
from purerl.storage.files import DAMAGE, load_arrays
from purerl.types import HostMetrics, PyTree

_STATE, _TRAIN, _EVALUATION, _FRESH = "state/", "train/", "evaluation/", "fresh/"


def path_of(folder: Path, number: int) -> Path:
    """Return the file of a step's record in the folder of a search."""
    return folder / "records" / f"{number:05d}.npz"


def make(step: Step, has_ended: bool) -> HostMetrics:
    """Return the record of a step; `has_ended`: it was the last one of the search.

    Raises:
        ConfigError: the state of the search is no arrays and numbers.
    """
    outcome = step.outcome
    record = {
        "request": digest(step.request),
        "has_ended": np.asarray(has_ended),
        "diverged_at": outcome.diverged_at,
        "keys": outcome.keys,
        **{_TRAIN + name: rows for name, rows in outcome.train.items()},
        **{_EVALUATION + name: rows for name, rows in outcome.evaluation.items()},
        **_state_record(step.after),
    }
    if outcome.fresh is not None:
        fresh = outcome.fresh._asdict()
        record |= {_FRESH + name: values for name, values in fresh.items()}
    return record


def load(path: Path) -> HostMetrics:
    """Read a record.

    Raises:
        ConfigError: it is missing or damaged.
    """
    try:
        return load_arrays(path)
    except DAMAGE as error:
        raise ConfigError(
            f"{path} is missing or damaged ({error}). Put back a copy of it, or "
            "delete checkpoints and summary.json: the search is then computed again, "
            "with the same result."
        ) from None


def outcome_of(record: HostMetrics) -> Outcome:
    """Return the outcome that a record holds."""

    def named(prefix: str) -> HostMetrics:
        cut = len(prefix)
        return {n[cut:]: x for n, x in record.items() if n.startswith(prefix)}

    fresh = named(_FRESH)
    return Outcome(
        train=named(_TRAIN),
        evaluation=named(_EVALUATION),
        diverged_at=record["diverged_at"],
        keys=record["keys"],
        fresh=Evaluation(**fresh) if fresh else None,
    )


def differing(record: HostMetrics, state: State) -> list[str]:
    """Return what of a search's state is not as its record says."""
    now = _state_record(state)
    stored = {name: x for name, x in record.items() if name.startswith(_STATE)}
    return [
        name.removeprefix(_STATE)
        for name in sorted({*now, *stored})
        if name not in now
        or name not in stored
        or not np.array_equal(now[name], stored[name], equal_nan=_is_float(now[name]))
    ]


def digest(request: Request) -> np.ndarray:
    """Return bytes that tell requests apart: members, how far, parents, evaluation."""
    return np.frombuffer(checkpoint.digest(_flat(tuple(request))), np.uint8)


def _flat(tree: PyTree) -> HostMetrics:
    """A pytree as named arrays on the host, random keys as their numbers."""
    flat = checkpoint.flatten(to_host(tree))
    return {name: np.asarray(value) for name, value in flat.items()}


def _state_record(state: State) -> HostMetrics:
    record = {_STATE + name: array for name, array in _flat(state).items()}
    for name, array in record.items():
        if array.dtype.hasobject:
            raise ConfigError(
                f"the state of a search must be arrays and numbers, "
                f"{name.removeprefix(_STATE)} is neither: nothing is pickled. Leave "
                "out what follows from the rest."
            )
    return record


def _is_float(values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.floating)
