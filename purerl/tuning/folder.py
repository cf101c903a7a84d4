"""The folder of a study.

config.yaml      the base config
manifest.json    axes, seeds, how it is searched, versions, device
study.db         Optuna's study, where no other storage is given
trials.csv       a line per trial, after every batch
best.yaml        the best config, for `purerl train --config`
summary.json     numbers of the study, costs of all its calls, the comparison
*.png            history, importance, contour, slice
"""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig
from purerl.runner import manifest
from purerl.runner.arguments import check_seeds, stored_folder
from purerl.runner.options import FIXED
from purerl.runner.trackers.group import Told
from purerl.space.axes import Choice, from_dict, is_whole
from purerl.storage import folders
from purerl.storage.folders import FIELD, check_keys, differences, refuse
from purerl.streams import say
from purerl.tuning import result as results
from purerl.tuning.options import TuneOptions
from purerl.tuning.result import TABLE, Row, TuneResult
from purerl.tuning.space import Space

FORMAT, KIND = 2, "tune"
DATABASE = "study.db"


def start(folder: Path, spec: dict[str, Any], name: str) -> None:
    """Make the folder, or go on in it.

    Raises:
        ConfigError: it holds something else, perhaps without a manifest, or another
            study, or has other random keys, or cannot be written.
    """
    folders.check_out(folder, KIND)
    if folders.is_begun(folder):
        stored = folders.load(folder)
        check_keys(f"out: {folder}", stored)
        # The other options are told anew by every call.
        kept = {key: stored["options"][key] for key in spec["options"]}
        new = {**json.loads(json.dumps(spec)), "study": name}
        before = {**{key: stored[key] for key in new}, "options": kept}
        differ = compare(before, new)
        remedy = "Use its settings, or another folder."
        refuse(differ, f"out: {folder}", "study", remedy)
    folders.make(folder)


def kept_lanes(folder: Path | None, asked: int | None) -> int | None:
    """Return the width of a block that was asked for, or with which a folder was begun.

    Raises:
        ConfigError: another one was asked for than the folder has, or the folder holds
            no study.
    """
    if folder is None or not folders.is_begun(folder):
        return asked
    folders.check_out(folder, KIND)
    kept = folders.load(folder).get("lanes")
    if asked is not None and kept is not None and asked != kept:
        raise ConfigError(
            f"lanes must be {kept}, got {asked}: the trials of the study in {folder} "
            "were trained in blocks of that width, which changes how numbers are "
            "rounded. Leave lanes out, or use another folder."
        )
    return kept if asked is None else asked


def compare(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what differs between two studies, in words.

    Args:
        stored: The specification of the study that is there.
        new: The specification of the study that was asked for.
    """
    parts = {"config": FIELD, "axes": "the axis {}", "options": FIELD}
    return differences(stored, new, parts, text=_text)


def _text(value: Any) -> str:
    """A value or a described axis."""
    if isinstance(value, dict) and "kind" in value:
        inside = value.get("values", [value.get("low"), value.get("high")])
        return f"{value['kind']}({', '.join(map(str, inside))})"
    return repr(value)


def spec(space: Space, options: TuneOptions) -> dict[str, Any]:
    """Return what makes scores of a study comparable: none of it may change."""
    return {
        "format": FORMAT,
        "config": serialise.to_dict(options.config),
        "axes": space.to_dict(),
        "seeds": list(check_seeds(options.seeds)),
        "options": options.kept(FIXED),
    }


def describe(
    folder: Path, spec: dict[str, Any], name: str, options: TuneOptions
) -> None:
    """Write config.yaml and manifest.json.

    Args:
        folder: The folder of the study.
        spec: The specification of what makes the study's scores comparable, see `spec`.
        name: The name of the study in its storage.
        options: The options of this call, of which some may be others than before.
    """
    config = options.config
    about = {
        "kind": KIND,
        **spec,
        "options": options.kept(),
        "auto": auto.values(config, auto.resolve(config, resolve_env(config))),
        "study": name,
        "lanes": options.lanes,
        **folders.made_with(),
    }
    folders.write(folder, about)


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
    trials = stored["options"]["trials"]
    if done >= trials and not numbers:
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
        finished=done >= trials,
        summary={k: v for k, v in numbers.items() if k != "best_trial"},
        out=folder,
    )
    return Saved(result, space, stored)


def told_of_study(folder: Path) -> Told:
    """Return what trackers are told of a study's folder.

    Raises:
        ConfigError: no trial has finished.
    """
    result, space, stored = read(folder)
    if not any(row.state in results.STATES for row in result.rows):
        raise ConfigError(f"no trial of the study in {folder} has finished yet.")
    return Told(
        results.tracked(space.config, folder),
        int(stored["options"]["trials"]),
        lambda group: results.tell(group, result.rows),
        results.tracked_files(result),
        result.finished,
        is_fixed=False,
    )


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
