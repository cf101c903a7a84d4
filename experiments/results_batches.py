"""A learning result that is trained a few seeds at a time, over days and machines.

The file of a row that takes many hours has the numbers of every batch of seeds under
`batches`, and beside them those of all batches together, in the form of a row that was
trained at once. So a batch that is in the repository is never trained again.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Numbers = dict[str, Any]


def read_batches(path: Path) -> list[Numbers]:
    """Return the batches of a row's file, none where there is no file.

    Args:
        path: The file, which need not be there.

    Raises:
        SystemExit: the row was trained at once.
    """
    if not path.exists():
        return []
    numbers = json.loads(path.read_text())
    if "batches" not in numbers:
        raise SystemExit(
            f"{path.name} has all {numbers['seeds']} seeds, trained at once; leave "
            "--at-once out, or delete the file to begin anew."
        )
    return numbers["batches"]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time read a row's file and write it.

    Args:
        folder: Folder of the runs of the row.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def next_seeds(
    batches: Sequence[Numbers], seeds: Sequence[int], at_once: int
) -> list[int]:
    """Return the seeds that are trained next, none where all are.

    Args:
        batches: Numbers of the batches that are there.
        seeds: Seeds that are wanted, in the order of training.
        at_once: Number of seeds of a batch.
    """
    done = {seed for batch in batches for seed in batch["which"]}
    return [seed for seed in seeds if seed not in done][:at_once]


def check_alike(batches: Sequence[Numbers], config: Numbers, at_once: int) -> None:
    """Refuse to go on with batches of other numbers.

    Args:
        batches: Numbers of the batches that are there.
        config: The config of the row, as plain values.
        at_once: Number of seeds of a batch, which is its lane width.

    Raises:
        SystemExit: they were of another config, or of another width.
    """
    for batch in batches:
        if batch["config"] != config or batch["at_once"] != at_once:
            raise SystemExit(
                f"the batch of seeds {batch['which']} had other settings or another "
                f"--at-once ({batch['at_once']}); go on with those, or delete the file "
                "to begin anew."
            )


def together(batches: Sequence[Numbers]) -> Numbers:
    """Return the numbers of all batches as those of one row, with the batches.

    Args:
        batches: Numbers of the batches, one at least.
    """
    ordered = sorted(batches, key=lambda batch: batch["which"])
    first, counts = ordered[0], [len(batch["which"]) for batch in ordered]
    per_seed = [score for batch in ordered for score in batch["per_seed"]]
    curve = np.average([batch["curve"] for batch in ordered], axis=0, weights=counts)
    times = [batch["train_seconds"] for batch in ordered]
    dates = sorted({batch["date"] for batch in ordered})
    numbers = {
        **first,
        "seeds": len(per_seed),
        "mean": float(np.mean(per_seed)),
        "per_seed": per_seed,
        "curve": [round(float(x), 2) for x in curve],
        "compile_seconds": round(sum(b["compile_seconds"] for b in ordered), 1),
        "train_seconds": None if None in times else round(sum(times), 1),
        "load_before": max(batch["load_before"] for batch in ordered),
        **{name: _named(ordered, name) for name in ("hardware", "python", "jax")},
        "date": " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        "batches": ordered,
    }
    return {k: v for k, v in numbers.items() if k not in ("which", "at_once", "config")}


def _named(batches: Sequence[Numbers], name: str) -> str:
    """Return what the batches have under a name, each once."""
    return " and ".join(dict.fromkeys(batch[name] for batch in batches))
