"""The description of a search over hyperparameters, for its folder and trackers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purerl import serialise
from purerl.population.space import Space
from purerl.search.protocol import Row, Step
from purerl.storage import folders


def spec_of(
    space: Space, seeds: tuple[int, ...], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all that fixes a search's result, as plain values.

    Args:
        space: Axes that are searched.
        seeds: Seeds, one search each.
        options: The options of the search.
    """
    return {
        "config": serialise.to_dict(space.config),
        "auto": space.bound.automatic,
        "axes": space.to_dict(),
        "options": dict(options),
        "seeds": list(seeds),
    }


def stored_options(folder: Path | None, kind: str, extend: bool) -> dict[str, Any]:
    """Return the options of the search in a folder that is to be extended.

    Args:
        folder: The folder, if any.
        kind: The kind of search that it must hold to be looked at.
        extend: Whether it is to be extended; nothing is read otherwise.
    """
    if not extend or folder is None or not (folder / folders.MANIFEST).exists():
        return {}
    stored = folders.load(folder)
    return stored["options"] if stored.get("kind") == kind else {}


def names_of(seeds: tuple[int, ...], size: int) -> dict[int, str]:
    """Return names of the members of all searches, `size` each, by their number."""
    return {
        search * size + number: f"seed={seed}-member={number}"
        for search, seed in enumerate(seeds)
        for number in range(size)
    }


def rows_of(space: Space, numbers: np.ndarray, step: Step) -> list[Row]:
    """Return a row per member: its last metrics, its score, its hyperparameters.

    Args:
        space: Axes that are searched.
        numbers: The number of each member of the step, `[N]`.
        step: The step, whose states have `hyper` by number, and `score` `[N]`.
    """
    outcome, rows = step.outcome, []
    for row, number in enumerate(numbers.tolist()):
        last = {name: x[row, -1].item() for name, x in outcome.train.items()}
        last.pop("env_steps", None)
        hyper = {name: float(x[number]) for name, x in step.before.hyper.items()}
        named = {f"hyper_{n}": v for n, v in space.values(hyper).items()}
        numeric = {n: v for n, v in named.items() if isinstance(v, int | float)}
        rows.append((number, {**last, **numeric, **_score(step, row)}))
    return rows


def _score(step: Step, row: int) -> dict[str, float]:
    """The member's score, where one is known."""
    score = float(step.after.score[row])
    return {"score": score} if np.isfinite(score) else {}
