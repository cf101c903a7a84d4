"""The folder of a study.

config.yaml      the base config
manifest.json    axes, seeds, how it is searched, versions, device
study.db         Optuna's study, where no other storage is given
trials.csv       a line per trial, after every batch
best.yaml        the best config, for `purerl train --config`
summary.json     numbers of the study, costs of all its calls, the comparison
*.png            history, importance, contour, slice
"""

import json
from pathlib import Path
from typing import Any

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig
from purerl.storage import folders
from purerl.storage.folders import FIELD, check_keys, differences, refuse
from purerl.tuning.pool import TrialSettings
from purerl.tuning.space import Space

FORMAT, KIND = 1, "tune"
DATABASE = "study.db"


def start(folder: Path, spec: dict[str, Any], name: str) -> None:
    """Make the folder, or go on in it.

    Args:
        folder: The folder of the study.
        spec: The specification of the study that is to go on there, see `spec`.
        name: The name of that study.

    Raises:
        ConfigError: it holds something else, perhaps without a manifest, or another
            study, or has other random keys, or cannot be written.
    """
    folders.check_out(folder, KIND)
    if folders.is_begun(folder):
        stored = folders.load(folder)
        check_keys(f"out: {folder}", stored)
        new = {**json.loads(json.dumps(spec)), "study": name}
        there = {key: stored[key] for key in new}
        if there["study"] is None:  # A name that nobody gave was not always written.
            there["study"] = name
        differ = compare(there, new)
        refuse(
            differ, f"out: {folder}", "study", "Use its settings, or another folder."
        )
    folders.make(folder)


def kept_lanes(folder: Path | None, asked: int | None) -> int | None:
    """Return the width of a block that was asked for, or with which a folder was begun.

    Args:
        folder: The folder of the study, or None.
        asked: The number of lanes that was asked for, or None.

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
    parts = {"config": FIELD, "axes": "the axis {}"}
    return differences(stored, new, parts, text=_text)


def _text(value: Any) -> str:
    """A value or a described axis."""
    if isinstance(value, dict) and "kind" in value:
        inside = value.get("values", [value.get("low"), value.get("high")])
        return f"{value['kind']}({', '.join(map(str, inside))})"
    return repr(value)


def spec(space: Space, settings: TrialSettings, seed: int) -> dict[str, Any]:
    """Return what makes scores of a study comparable: none of it may change.

    Args:
        space: The axes that the study searches.
        settings: The base config, seeds, fitness and reports of the study.
        seed: The seed of the sampler.
    """
    return {
        "format": FORMAT,
        "config": serialise.to_dict(settings.config),
        "axes": space.to_dict(),
        "seeds": list(settings.seeds),
        "fitness": settings.fitness,
        "reports": settings.reports,
        "seed": seed,
    }


def describe(
    folder: Path, config: TrainConfig, spec: dict[str, Any], run: dict[str, Any]
) -> None:
    """Write config.yaml and manifest.json.

    Args:
        folder: The folder of the study.
        config: The base config of the study.
        spec: The specification of what makes the study's scores comparable, see `spec`.
        run: Settings of how this call searches the study.
    """
    about = {
        "kind": KIND,
        **spec,
        "auto": auto.values(config, auto.resolve(config, resolve_env(config))),
        **run,
        **folders.made_with(),
    }
    folders.write(folder, about)
