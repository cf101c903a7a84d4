"""purerl.load: the result in a folder, whatever purerl has written there."""

from importlib import import_module
from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.runner.arguments import stored_folder
from purerl.storage import folders

# The module and the name of what reads each kind: nothing is imported before it is
# called.
READERS = {
    "run": "purerl.report.saved:read_run",
    "sweep": "purerl.sweeps.result:load_sweep",
    "pbt": "purerl.population.saved:load_search",
    "halving": "purerl.population.saved:load_search",
    "tune": "purerl.tuning.saved:load_tune",
    "evolution": "purerl.meta.result:load_evolution",
    folders.COMPARISON: "purerl.comparison.result:load_comparison",
}


def load(folder: str | Path) -> Any:
    """Read the result in a folder, also while it is written.

    Args:
        folder: Folder of a run, sweep, search, study, evolution or comparison.

    Returns:
        What the call that wrote the folder returns: a `RunResult`, a `SweepResult`, a
        `PBTResult` and so on. A run or a sweep whose config names what is not known
        here comes with its metrics and without its agents, and a sentence says why.

    Raises:
        ConfigError: it holds nothing that purerl has written, or something damaged, or
            what has no result of its own, as a search that is not of the library.
    """
    folder = stored_folder(folder)
    kind = folders.kind_of(folder)
    if kind not in READERS:
        raise ConfigError(
            folders.refusal(folder, kind, ", which has no result to load")
        )
    module, _, name = READERS[kind].partition(":")
    return getattr(import_module(module), name)(folder)
