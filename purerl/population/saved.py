"""The reading of the folder of a search over hyperparameters."""

from pathlib import Path
from typing import Any, NamedTuple

from purerl.config import TrainConfig
from purerl.population.halving import HalvingResult, HalvingSearch
from purerl.population.pbt import PBTResult, PBTSearch
from purerl.population.space import Space
from purerl.runner import manifest
from purerl.runner.arguments import stored_folder
from purerl.runner.trackers.group import Told
from purerl.search.drive import Finished
from purerl.search.folder import FORMAT, restore, told_of
from purerl.search.protocol import Search
from purerl.space.axes import from_dict
from purerl.storage import folders
from purerl.storage.folders import keys_of

KINDS = ("pbt", "halving")


class Stored(NamedTuple):
    """A search as its folder describes it.

    Attributes:
        search: The search.
        space: Axes that it searches.
        seeds: Seeds of the searches.
        options: Options that fix the result, as plain values.
    """

    search: Search
    space: Space
    seeds: tuple[int, ...]
    options: dict[str, Any]


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
    search, space, seeds, options = read(folder, config)
    # What was asked for is asked again, with the keys of then.
    with keys_of(folders.load(folder)):
        restored = restore(folder, search)
    has_finished = len(restored.steps) == len(search.steps)
    states = restored.states if has_finished else None
    finished = Finished(restored.steps, states, {})
    if search.kind == "pbt":
        return PBTResult(space, seeds, options, finished, folder)
    plan = HalvingSearch(space, seeds, options).plan
    return HalvingResult(space, seeds, options, plan, finished, folder)


def read(folder: Path, config: TrainConfig | None = None) -> Stored:
    """Read what search a folder holds, without what came of it.

    Raises:
        ConfigError: no search there.
    """
    stored = folders.load_kind(folder, KINDS, FORMAT)
    config = config or manifest.read_config(folder, stored, "load_search")
    space = Space(config, from_dict(stored["axes"]))
    seeds, options = tuple(stored["seeds"]), dict(stored["options"])
    kind = PBTSearch if stored["kind"] == "pbt" else HalvingSearch
    return Stored(kind(space, seeds, options).search(), space, seeds, options)


def told_of_search(folder: Path) -> Told:
    """Return what trackers are told of the folder of a search."""
    return told_of(folder, read(folder).search)
