"""The reading of the folder of a search over hyperparameters."""

from pathlib import Path

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

KINDS = {kind.kind: kind for kind in (PBTSearch, HalvingSearch)}


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
    found, is_whole = read(folder, config)
    # What was asked for is asked again, with the keys of then.
    with keys_of(folders.load(folder)):
        steps, states = restore(folder, found.search, with_states=is_whole)
    if len(steps) < len(found.milestones):
        states = None
    if not is_whole:
        env = found.space.bound.env.name
        found.space.config = found.space.config.replace(env=env)
    finished = Finished(steps, states, {})
    if isinstance(found, PBTSearch):
        return PBTResult(found, finished, folder)
    return HalvingResult(found, finished, folder)


def read(
    folder: Path, config: TrainConfig | None = None
) -> tuple[PBTSearch | HalvingSearch, bool]:
    """Read what search a folder holds, without what came of it.

    Whether its environment is known here comes beside it.

    Raises:
        ConfigError: no search there.
    """
    stored = folders.load_kind(folder, tuple(KINDS), FORMAT)
    is_whole = True
    if config is None:
        config, is_whole = manifest.read_or_stand_in(folder, stored, "load_search")
    space = Space(config, from_dict(stored["axes"]))
    seeds, options = tuple(stored["seeds"]), stored["options"]
    return KINDS[stored["kind"]](space, seeds, options), is_whole


def told_of_search(folder: Path) -> Told:
    """Return what trackers are told of the folder of a search."""
    return told_of(folder, read(folder)[0].search)
