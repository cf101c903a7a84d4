"""A study read from its folder, finished or not; Optuna is not needed for it."""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest
from purerl.runner.arguments import stored_folder
from purerl.space.axes import Choice, is_whole
from purerl.space.stored import from_dict
from purerl.storage import folders
from purerl.streams import say
from purerl.tuning import result as results
from purerl.tuning.folder import DATABASE, FORMAT
from purerl.tuning.result import TABLE, Row, TuneResult
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
    numbers = folders.read_summary(folder)
    holdout = numbers.pop("holdout", None)
    rows = _read_rows(folder, space)
    best = results.best_of(rows)
    done = sum(row.state not in _UNFINISHED for row in rows)
    if done < numbers.get("trials", 0):
        raise ConfigError(
            f"{folder / TABLE} has {done} trials that ended, and "
            f"{folder / folders.SUMMARY} has {numbers['trials']}: one of them is of "
            "another time. Run the study again, which writes both anew."
        )
    if done >= stored["trials"] and not numbers:
        say(
            f"{folder / folders.SUMMARY} is missing, which has the comparison on "
            "fresh seeds; run the study again, which writes it anew"
        )
    result = TuneResult(
        rows=tuple(rows),
        best_config=space.config_at(space.point(best.params)) if best else None,
        best_row=best,
        holdout=results.read_holdout(holdout) if holdout else None,
        importance=numbers.pop("importance", {}),
        finished=done >= stored["trials"],
        summary={k: v for k, v in numbers.items() if k != "best_trial"},
        out=folder,
    )
    return Saved(result, space, stored)


def _read_rows(folder: Path, space: Space) -> list[Row]:
    path = folder / TABLE
    if not path.exists():
        raise ConfigError(
            f"there is no {path}: no trial of the study has finished yet, or it was "
            "deleted. Run the study again, which goes on and writes it anew."
        )
    try:
        with path.open(newline="") as file:
            lines = results.checked(file.read())
        return [_row(line, space) for line in csv.DictReader(io.StringIO(lines))]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}); run the study again, which writes it anew."
        ) from None


def check_study(folder: Path, space: Space, known: Callable[[], Sequence[Row]]) -> None:
    """Refuse to go on with a study that has lost trials of its folder.

    Args:
        folder: The folder of the study.
        space: The axes that the study searches.
        known: A function that reads the trials from the study's storage.

    Raises:
        ConfigError: the storage lacks a trial that the table has, or has another one.
    """
    done: list[Row] = []
    with contextlib.suppress(ConfigError):  # There is none, or it is written anew.
        done = [r for r in _read_rows(folder, space) if r.state not in _UNFINISHED]
    told = 0
    with contextlib.suppress(ConfigError):
        told = int(folders.read_summary(folder).get("trials", 0))
    if not done and not told:
        return
    try:
        found = {r.number: _facts(r) for r in known() if r.state not in _UNFINISHED}
    except Exception as error:  # Anything: its text may be another by a byte.
        raise study_is_damaged(folder, f"{type(error).__name__}: {error}") from None
    odd = [str(r.number) for r in done if found.get(r.number) != _facts(r)]
    if odd or len(found) < told:
        raise study_is_damaged(
            folder,
            f"{max(told, len(done))} trials had ended, and it has {len(found)}"
            + (f"; trial {odd[0]} is missing or another" if odd else ""),
        )


def study_is_damaged(folder: Path, why: str) -> ConfigError:
    """Return the error for a storage that is not the one of the folder's study."""
    return ConfigError(
        f"{folder / DATABASE} (or the storage in its place) is not that of the study "
        f"in {folder}: {why.splitlines()[0][:200]}. Put back a copy of it, or give "
        "another folder; what had finished is in the folder, and stays."
    )


def _facts(row: Row) -> tuple[Any, ...]:
    return row.state, row.score, row.params, row.env_steps


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
