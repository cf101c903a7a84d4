"""The description of a search over hyperparameters, for its folder and trackers."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from purerl import auto, serialise
from purerl.config import TrainConfig
from purerl.population.space import Space
from purerl.runner import manifest
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
    return stored_search(folder, kind).get("options", {}) if extend else {}


def stored_search(folder: Path | None, kind: str) -> dict[str, Any]:
    """Return the manifest of the search in a folder; empty where there is none.

    Args:
        folder: The folder, if any.
        kind: The kind of search that it must hold to be looked at.
    """
    if folder is None or not folders.is_begun(folder):
        return {}
    stored = folders.load(folder)
    return stored if stored.get("kind") == kind else {}


def with_stored_values(
    folder: Path | None, kind: str, config: TrainConfig, axes: Container[str]
) -> TrainConfig:
    """Return the config with what `auto` stood for in a search that is to be extended.

    A search that goes on keeps what it began with, such as the number of steps over
    which exploration decays, also where that follows the length of a run.

    Args:
        folder: The folder, if any.
        kind: The kind of search that it must hold to be looked at.
        config: The config with more environment steps.
        axes: Names of the fields that are searched; `auto` may follow them.
    """
    stored = stored_search(folder, kind)
    values = {**stored.get("config", {}), **stored.get("auto", {})}
    fixed = {
        name: value
        for name, value in values.items()
        if not any(field in axes for field in auto.followed_by(name))
    }
    return manifest.with_values_of({"config": fixed}, config)


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
