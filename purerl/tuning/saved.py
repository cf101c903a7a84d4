"""A study read from its folder, finished or not; Optuna is not needed for it."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest, summary_file
from purerl.runner.arguments import stored_folder
from purerl.space.axes import Choice, is_whole
from purerl.space.stored import from_dict
from purerl.storage import folders
from purerl.tuning import result as results
from purerl.tuning.folder import FORMAT
from purerl.tuning.result import Holdout, Row, TuneResult
from purerl.tuning.space import Space

_UNFINISHED = ("running", "waiting")


class Saved(NamedTuple):
    """A study's folder.

    Attributes:
        result: The study's outcome so far.
        space: The axes that the study searches.
        stored: The study's manifest.
    """

    result: TuneResult
    space: Space
    stored: dict[str, Any]


def load_tune(folder: str | Path, config: TrainConfig | None = None) -> TuneResult:
    """Read a study's folder, finished or not.

    Args:
        folder: The folder that `purerl.tune` wrote.
        config: The base config in place of the stored one, where no file can hold it.

    Raises:
        ConfigError: it holds no study, nothing has finished yet, or it is damaged.
    """
    return read(stored_folder(folder), config).result


def read(folder: Path, config: TrainConfig | None = None) -> Saved:
    """Read a study's folder as `load_tune` does, with the space and the manifest."""
    stored = folders.load_kind(folder, "tune", FORMAT)
    config = config or manifest.read_config(folder, stored, "load_tune")
    space = Space(config, from_dict(stored["axes"]))
    numbers = _read_summary(folder)
    rows = _read_rows(folder, space)
    best = results.best_of(rows)
    done = sum(row.state not in _UNFINISHED for row in rows)
    result = TuneResult(
        rows=tuple(rows),
        best_config=space.config_at(space.point(best.params)) if best else None,
        best_row=best,
        holdout=_holdout(numbers.pop("holdout", None)),
        importance=numbers.pop("importance", {}),
        finished=done >= stored["trials"],
        summary={k: v for k, v in numbers.items() if k != "best_trial"},
        out=folder,
    )
    return Saved(result, space, stored)


def _read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary as the last call left it; empty during the first."""
    path = folder / summary_file.FILE
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}); run the study again, which writes it anew."
        ) from None


def _read_rows(folder: Path, space: Space) -> list[Row]:
    path = folder / "trials.csv"
    if not path.exists():
        raise ConfigError(f"no trial of the study in {folder} has finished yet.")
    try:
        with path.open(newline="") as file:
            return [_row(line, space) for line in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise ConfigError(
            f"{path} is damaged ({error}); run the study again, which writes it anew."
        ) from None


def _row(line: Mapping[str, str], space: Space) -> Row:
    seeds = sorted(
        (int(name.removeprefix("score_")), text)
        for name, text in line.items()
        if name.startswith("score_") and name not in space.axes
    )
    scores = tuple(float(text) if text else None for _, text in seeds)
    curve = json.loads(line["curve"])
    return Row(
        number=int(line["number"]),
        state=line["state"],
        score=float(line["score"]) if line["score"] else None,
        params={name: _param(space, name, line[name]) for name in space.axes},
        seed_scores=scores if any(s is not None for s in scores) else (),
        env_steps=int(line["env_steps"]),
        curve={int(step): float(score) for step, score in curve.items()},
        is_default=line["default"] == "1",
        note=line["note"],
    )


def _param(space: Space, name: str, text: str) -> Any:
    axis = space.axes[name]
    if isinstance(axis, Choice):
        return next(label for label in space.names[name] if str(label) == text)
    return int(text) if is_whole(axis) else float(text)


def _holdout(stored: Mapping[str, Any] | None) -> Holdout | None:
    return results.read_holdout(stored) if stored else None
