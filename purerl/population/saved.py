"""The reading of the folder of a search over hyperparameters."""

from pathlib import Path
from typing import Any

from purerl.config import TrainConfig
from purerl.population.halving import HalvingResult, HalvingSearch
from purerl.population.pbt import PBTResult, PBTSearch
from purerl.population.space import Space
from purerl.runner import manifest
from purerl.runner.arguments import stored_folder
from purerl.runner.trackers.group import Told
from purerl.search.drive import Finished
from purerl.search.folder import FORMAT, restore, told_of
from purerl.space.axes import from_dict
from purerl.storage import folders
from purerl.storage.folders import keys_of

KINDS = {"pbt": (PBTSearch, PBTResult), "halving": (HalvingSearch, HalvingResult)}


def load_search(
    folder: str | Path, config: TrainConfig | None = None
) -> PBTResult | HalvingResult:
    """Read the folder of `purerl.pbt` or `purerl.halving`, also while it runs.

    Args:
        folder: Folder of the search.
        config: Config in place of the stored one, where that names an environment
            object.

    Raises:
        ConfigError: no search there, or a damaged one.
    """
    folder = stored_folder(folder)
    stored = folders.load_kind(folder, tuple(KINDS), FORMAT)
    found, is_whole = _read(folder, stored, config)
    # What was asked for is asked again, with the keys of then.
    with keys_of(stored):
        steps, states = restore(folder, found.search, with_states=is_whole)
    if not is_whole:
        env = found.space.bound.env.name
        found.space.config = found.space.config.replace(env=env)
    is_finished = len(steps) == len(found.milestones)
    finished = Finished(steps, states if is_finished else None, {})
    return KINDS[stored["kind"]][1](found, finished, folder)


def _read(
    folder: Path, stored: dict[str, Any], config: TrainConfig | None = None
) -> tuple[PBTSearch | HalvingSearch, bool]:
    """What search a folder holds, and whether its environment is known here."""
    is_whole = True
    if config is None:
        config, is_whole = manifest.read_or_stand_in(folder, stored, "load_search")
    space = Space(config, from_dict(stored["axes"]))
    make, seeds = KINDS[stored["kind"]][0], tuple(stored["seeds"])
    return make(space, seeds, stored["options"]), is_whole


def told_of_search(folder: Path) -> Told:
    """Return what trackers are told of the folder of a search."""
    stored = folders.load_kind(folder, tuple(KINDS), FORMAT)
    return told_of(folder, _read(folder, stored)[0].search)
