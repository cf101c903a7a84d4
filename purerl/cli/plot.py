"""`purerl plot`: the curves of a run, sweep, evolution or comparison."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from purerl.cli import flags
from purerl.config import ConfigError
from purerl.report import plots
from purerl.storage import folders, kinds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw the curves of a folder from its files, also while it is written."""

    folder: Annotated[
        tyro.conf.Positional[Path],
        tyro.conf.arg(help="Of a run, a sweep, an evolution or a comparison."),
    ]
    out: Annotated[
        Path | None,
        tyro.conf.arg(help="PNG to write; FOLDER/curve.png if not given."),
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Plot, argv, "plot")
    path = options.out or options.folder / "curve.png"
    figure = draw(options.folder)
    try:
        plots.save(figure, path)
    except (OSError, ValueError) as error:  # ValueError: a name without a stem
        raise ConfigError(
            f"out: cannot write the picture {path} ({error}). Give a PNG in a folder "
            "that you may write to."
        ) from None
    print(f"written to {path}")
    return 0


def draw(folder: Path) -> "Figure":
    """Draw the learning curves of whatever a folder holds.

    Args:
        folder: The folder of a run, sweep, evolution or comparison.

    Raises:
        ConfigError: it holds something else, or nothing yet.
    """
    kind = folders.kind_of(folder)
    if kind not in _PICTURES:
        raise ConfigError(
            kinds.refusal(folder, kind, ", for which there is no picture")
        )
    return _PICTURES[kind](folder)


def _run(folder: Path) -> "Figure":
    from purerl.report.saved import read_result

    return plots.run_curve(read_result(folder))


def _sweep(folder: Path) -> "Figure":
    from purerl.sweeps.result import load_sweep

    return plots.sweep_curves(load_sweep(folder).dataset)


def _evolution(folder: Path) -> "Figure":
    from purerl.meta.result import load_evolution

    return load_evolution(folder).plot()


def _comparison(folder: Path) -> "Figure":
    from purerl.comparison.result import load_comparison

    return load_comparison(folder).plot()


_PICTURES: dict[str, Callable[[Path], "Figure"]] = {
    "run": _run,
    "sweep": _sweep,
    "evolution": _evolution,
    kinds.COMPARISON: _comparison,
}
