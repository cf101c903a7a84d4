"""The folder of a study.

config.yaml      the base config
manifest.json    axes, seeds, how it is searched, versions, device
study.db         Optuna's study, where no other storage is given
trials.csv       a line per trial, after every batch
best.yaml        the best config, for `purerl train --config`
summary.json     numbers of the last call, the comparison on fresh seeds
*.png            history, importance, contour, slice
"""

import json
from pathlib import Path
from typing import Any

import jax

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.config import ConfigError, TrainConfig
from purerl.runner import kinds, manifest
from purerl.tuning.pool import Setup
from purerl.tuning.space import Space

FORMAT = 1


def start(folder: Path) -> None:
    """Make the folder, or go on in it.

    Raises:
        ConfigError: it holds something else, or cannot be written.
    """
    path = folder / "manifest.json"
    if path.exists():
        kind = manifest.kind_of(folder)
        if kind != "tune":
            raise ConfigError(
                f"out: {folder} holds {kinds.words_of(kind)}, not a tuning study; give "
                "another folder."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"out: cannot write to {folder} ({error.strerror or error}). Give a folder "
            "that you may write to."
        ) from None
    manifest.require_writable(folder)


def spec(space: Space, setup: Setup, seed: int) -> dict[str, Any]:
    """What makes scores of a study comparable: none of it may change."""
    return {
        "format": FORMAT,
        "config": serialise.to_dict(setup.config),
        "axes": space.to_dict(),
        "seeds": list(setup.seeds),
        "fitness": setup.fitness,
        "reports": setup.reports,
        "seed": seed,
    }


def describe(
    folder: Path, config: TrainConfig, spec: dict[str, Any], run: dict[str, Any]
) -> None:
    """Write config.yaml and manifest.json.

    Args:
        folder: of the study.
        config: its base.
        spec: what it is.
        run: how this call searches it.
    """
    device = jax.local_devices()[0]
    about = {
        "kind": "tune",
        **spec,
        "auto": auto.values(config, auto.resolve(config, resolve_env(config))),
        **run,
        "device": f"{device.platform} {device.device_kind}",
        "versions": manifest.versions(),
    }
    serialise.to_yaml(config, folder / "config.yaml")
    serialise.write_atomic(folder / "manifest.json", json.dumps(about, indent=1))
