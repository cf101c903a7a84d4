"""A search's folder: a manifest, one atomic file per request, and the last states.

config.yaml      the base config, for people
manifest.json    kind, axes, options, seeds, lanes and segments, versions, device
records/         00000.npz, ...: what came of a request, and the search's state after it
checkpoints/     states of the members after the last request, by its number

All that a search decides follows from what came of its requests, so what was lost with
a kill is computed again with the same result. Nothing is pickled.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.execution.cohort import Evaluation
from purerl.search.protocol import Outcome, Search, State, Step
from purerl.storage import arrays, checkpoint, folders
from purerl.train import make_algorithm
from purerl.types import HostMetrics, PyTree

# Files written by a program that lays them out otherwise are not read.
FORMAT = 2
KEEP_CHECKPOINTS = 2
_STATE, _TRAIN, _EVALUATION, _FRESH = "state/", "train/", "evaluation/", "fresh/"


class Restored(NamedTuple):
    """How far a search has come for good.

    Attributes:
        steps: The steps up to the last checkpoint.
        states: States of the members of the last of them, on the host; None where
            there is no checkpoint.
        is_longer: Whether the last step was the end of a shorter search: what is
            decided after it is not yet in its record.
    """

    steps: list[Step]
    states: PyTree | None
    is_longer: bool = False


def open_folder(
    folder: Path, search: Search, widths: dict[str, Any], extend: bool = False
) -> dict[str, Any]:
    """Start a search's folder, or go on with it.

    Args:
        folder: The folder.
        search: What is to be in it.
        widths: `lanes`, `segment_updates`, and what was asked of them, by the same
            names with `_asked`.
        extend: A stored search of fewer environment steps may be gone on with.

    Returns:
        The manifest that holds: the lanes and segments of a stored one win.

    Raises:
        ConfigError: see `purerl.storage.folders.open_folder`.
    """
    spec = {
        "kind": search.kind,
        "format": FORMAT,
        **search.spec,
        **widths,
        **folders.made_with(),
    }

    def compare_here(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return compare(_extended(stored, new) if extend else stored, new)

    return folders.open_folder(
        folder,
        spec,
        kind=search.kind,
        version=FORMAT,
        noun="search",
        compare=compare_here,
        merge=_extended if extend else lambda stored, new: stored,
        places=("records",),
    )


def _extended(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What is stored, with the environment steps of a search that is no shorter."""
    before, now = (x["config"].get("total_timesteps", 0) for x in (stored, new))
    if now < before:
        return stored
    return {**stored, "config": {**stored["config"], "total_timesteps": now}}


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two searches, in words."""
    found = []
    for part in ("config", "auto", "options"):
        found += folders.differing(stored.get(part, {}), new.get(part, {}))
    axes = [json.dumps(x.get("axes")) for x in (stored, new)]
    if axes[0] != axes[1]:  # Their order counts as well.
        found.append(f"axes are {axes[0]} there and {axes[1]} here")
    if stored["seeds"] != new["seeds"]:
        found.append(f"seeds are {stored['seeds']} there and {new['seeds']} here")
    return found + folders.differing_widths(stored, new)


def save_step(folder: Path, number: int, step: Step) -> None:
    """Write what came of a request; a reader sees all of it or nothing."""
    outcome = step.outcome
    record = {
        "diverged_at": outcome.diverged_at,
        "keys": outcome.keys,
        **{_TRAIN + name: rows for name, rows in outcome.train.items()},
        **{_EVALUATION + name: rows for name, rows in outcome.evaluation.items()},
        **_state_record(step.after),
    }
    if outcome.fresh is not None:
        fresh = outcome.fresh._asdict()
        record |= {_FRESH + name: values for name, values in fresh.items()}
    arrays.save(_path(folder, number), record)


def _state_record(state: State) -> HostMetrics:
    flat = checkpoint.flatten(state)
    return {_STATE + name: np.asarray(value) for name, value in flat.items()}


def save_states(folder: Path, number: int, states: PyTree) -> None:
    """Write the members' states after a request, in place of older ones.

    Raises:
        NotSavedError: see `purerl.storage.checkpoint.save`.
    """
    checkpoint.save(folder / "checkpoints", number, states, KEEP_CHECKPOINTS)


def restore(folder: Path, search: Search) -> Restored:
    """Ask and tell again what a folder holds, up to its last checkpoint.

    Args:
        folder: The folder of the search.
        search: The search, perhaps of more environment steps than when it was stored.

    Raises:
        ConfigError: a damaged record or checkpoint, or one of another program, which
            decided otherwise.
    """
    place = folder / "checkpoints"
    if not checkpoint.steps(place):
        return Restored([], None)
    done, flat = checkpoint.restore(place)
    state, steps, is_longer = search.init(), [], False
    for number in range(done):
        request = search.ask(state)
        if request is None:
            break
        record = _load(_path(folder, number))
        outcome = _outcome(record)
        step = Step(request, outcome, state, search.tell(state, request, outcome))
        odd = _differing(record, step.after)
        # After what was its end, an extended search goes on otherwise.
        is_longer = bool(odd) and number + 1 == done < len(search.steps)
        if odd and not is_longer:
            raise ConfigError(
                f"{_path(folder, number)} was written by a program that decided "
                f"otherwise ({odd[0]} differs). Go on with the versions in "
                "manifest.json, or give another folder."
            )
        steps.append(step)
        state = step.after
    shapes = jax.eval_shape(make_algorithm(search.bound.config).init, jax.random.key(0))
    states = checkpoint.unflatten(flat, shapes, place)
    return Restored(steps, states, is_longer)


def read_outcomes(folder: Path) -> list[Outcome]:
    """Read what came of the requests up to the last checkpoint, of any search.

    Raises:
        ConfigError: nothing has been saved, or something is damaged.
    """
    known = checkpoint.steps(folder / "checkpoints")
    if not known:
        raise ConfigError(
            f"the search in {folder} has saved nothing yet. Run its command again."
        )
    return [_outcome(_load(_path(folder, number))) for number in range(known[-1])]


def _load(path: Path) -> HostMetrics:
    try:
        return arrays.load(path)
    except arrays.DAMAGE as error:
        raise ConfigError(
            f"{path} is missing or damaged ({error}). Delete the folder checkpoints "
            "beside it: the search is then computed again, with the same result."
        ) from None


def _outcome(record: HostMetrics) -> Outcome:
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


def _differing(record: HostMetrics, state: State) -> list[str]:
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


def _is_float(values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.floating)


def _path(folder: Path, number: int) -> Path:
    return folder / "records" / f"{number:05d}.npz"
