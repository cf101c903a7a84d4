"""purerl.load: the result in a folder, whatever purerl has written there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from purerl.config import ConfigError
from purerl.runner.arguments import stored_folder
from purerl.storage import folders, kinds


def load(folder: str | Path) -> Any:
    """Read the result in a folder, also while it is written.

    Args:
        folder: Folder of a run, sweep, search, study, evolution or comparison.

    Returns:
        What the call that wrote the folder returns: a `RunResult`, a `SweepResult`, a
        `PBTResult` and so on.

    Raises:
        ConfigError: it holds nothing that purerl has written, or something damaged, or
            what has no result of its own, as a search that is not of the library.
    """
    folder = stored_folder(folder)
    kind = folders.kind_of(folder)
    if kind not in _READERS:
        raise ConfigError(kinds.refusal(folder, kind, ", which has no result to load"))
    return _READERS[kind]()(folder)


def _run() -> Callable[[Path], Any]:
    return _load_run


def _load_run(folder: Path) -> Any:
    """The curves of a run and, where it has finished, its agents."""
    from purerl.report.saved import read_result
    from purerl.runner.result import load_run
    from purerl.train import bind

    curves, saved = read_result(folder), load_run(folder)
    finished = saved.update == bind(saved.config, on_host=True).plan.num_updates
    state = saved.state if finished else None
    return curves._replace(config=saved.config, state=state, finished=finished)


def _sweep() -> Callable[[Path], Any]:
    from purerl.sweeps.result import load_sweep

    return load_sweep


def _search() -> Callable[[Path], Any]:
    from purerl.population.saved import load_search

    return load_search


def _study() -> Callable[[Path], Any]:
    from purerl.tuning.saved import load_tune

    return load_tune


def _evolution() -> Callable[[Path], Any]:
    from purerl.meta.result import load_evolution

    return load_evolution


def _comparison() -> Callable[[Path], Any]:
    from purerl.comparison.result import load_comparison

    return load_comparison


# Each reader imports what it needs only when it is called.
_READERS: dict[str, Callable[[], Callable[[Path], Any]]] = {
    "run": _run,
    "sweep": _sweep,
    "pbt": _search,
    "halving": _search,
    "tune": _study,
    "evolution": _evolution,
    kinds.COMPARISON: _comparison,
}
