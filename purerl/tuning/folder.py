"""The folder of a study.

config.yaml      the base config
manifest.json    axes, seeds, how it is searched, versions, device
study.db         Optuna's study, where no other storage is given
trials.csv       a line per trial, after every batch
best.yaml        the best config, for `purerl train --config`
summary.json     numbers of the last call that trained, the comparison on fresh seeds
*.png            history, importance, contour, slice
"""

from pathlib import Path
from typing import Any

from purerl import auto, serialise
from purerl.acting.environment import resolve_env
from purerl.config import TrainConfig
from purerl.storage import folders
from purerl.storage.prng import check_keys
from purerl.tuning.pool import TrialSettings
from purerl.tuning.space import Space

FORMAT = 1


def start(folder: Path) -> None:
    """Make the folder, or go on in it.

    Raises:
        ConfigError: it holds something else, perhaps without a manifest, or has other
            random keys, or cannot be written.
    """
    folders.check_out(folder, "tune")
    if (folder / folders.MANIFEST).exists():
        check_keys(f"out: {folder}", folders.load(folder))
    folders.make(folder)


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
        "kind": "tune",
        **spec,
        "auto": auto.values(config, auto.resolve(config, resolve_env(config))),
        **run,
        **folders.made_with(),
    }
    folders.write(folder, about)
