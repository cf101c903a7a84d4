"""How the folder of a search is read."""

from pathlib import Path

from purerl.config import TrainConfig
from purerl.population.brackets import make_ladder
from purerl.population.halving_result import HalvingResult
from purerl.population.pbt_result import PBTResult, marks_of
from purerl.population.search import Finished, restore
from purerl.population.space import Space, axes_from_dict
from purerl.population.store import load, load_records
from purerl.runner import manifest
from purerl.types import HostMetrics


def load_search(
    folder: str | Path, config: TrainConfig | None = None
) -> PBTResult | HalvingResult:
    """Read the folder of `purerl.pbt` or `purerl.halving`, also while it runs.

    Args:
        folder: of the search.
        config: in place of the stored one, where that names an environment object.

    Raises:
        ConfigError: no search there, or a damaged one.
    """
    folder = Path(folder)
    stored = load(folder)
    space = Space(
        config or manifest.read_config(folder, stored), axes_from_dict(stored["axes"])
    )
    seeds, options = tuple(stored["seeds"]), stored["options"]
    updates = space.bound.plan.num_updates
    if stored["kind"] == "pbt":
        marks = marks_of(updates, options["ready_updates"])
        finished = _finished(folder, space, marks)
        return PBTResult(space, seeds, options, marks, finished, folder)
    ladder = make_ladder(
        updates,
        options["min_updates"],
        options["eta"],
        options["num_points"],
        options["brackets"],
    )
    finished = _finished(folder, space, ladder.marks)
    return HalvingResult(space, seeds, options, ladder, finished, folder)


def _finished(folder: Path, space: Space, marks: tuple[int, ...]) -> Finished:
    done, states = restore(folder, space, marks)
    records: list[HostMetrics] = load_records(folder, done)
    return Finished(records, states if done == len(marks) else None, {})
