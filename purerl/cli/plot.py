"""`purerl plot`: the curves of a run, sweep, evolution or comparison."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from purerl.cli import flags
from purerl.cli.flags import Repeated, option
from purerl.config import ConfigError
from purerl.report import plots
from purerl.report.sweep_data import ENV, environments
from purerl.storage import folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw the curves of a folder from its files, also while it is written."""

    folder: Annotated[
        tyro.conf.Positional[Path],
        option("Folder of a run, a sweep, an evolution or a comparison."),
    ]
    metric: Annotated[
        Repeated,
        option(
            "Metric of a run or sweep to draw in place of the returns; may be "
            "repeated. An unknown name is answered with the names of all metrics."
        ),
    ] = ()
    out: Annotated[
        Path | None,
        option("PNG to write; FOLDER/curve.png if not given, or FOLDER/METRIC.png."),
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Plot, argv, "plot")
    name = "-".join(options.metric).replace("/", "-") or "curve"
    path = options.out or options.folder / f"{name}.png"
    figure = draw(options.folder, options.metric)
    try:
        plots.save(figure, path)
    except (OSError, ValueError) as error:  # ValueError: a name without a stem
        raise ConfigError(
            f"out: cannot write the picture {path} ({error}). Give a PNG in a folder "
            "that you may write to."
        ) from None
    print(f"written to {path}")
    return 0


def draw(folder: Path, metrics: Sequence[str] = ()) -> "Figure":
    """Draw the learning curves of whatever a folder holds, or metrics of it.

    Args:
        folder: The folder of a run, sweep, evolution or comparison.
        metrics: Names of metrics of a run or sweep, in place of the returns.

    Raises:
        ConfigError: it holds something else, or nothing yet, or no such metric.
    """
    from purerl.report.folder import load, read_result

    kind = folders.kind_of(folder)
    if kind not in ("run", "sweep", "evolution", folders.COMPARISON):
        raise ConfigError(
            folders.refusal(folder, kind, ", for which there is no picture")
        )
    if kind == "run":
        result = read_result(folder)
        return (
            plots.metric_curves(result, metrics) if metrics else plots.run_curve(result)
        )
    if kind == "sweep":
        dataset = load(folder).dataset
        # Several environments have no best configurations in common, but one each.
        by = ENV if len(environments(dataset)) > 1 else None
        return plots.sweep_curves(dataset, by, metric=metrics or None)
    if metrics:
        raise ConfigError(
            f"metric: {folder} holds {folders.words_of(kind)}, and metrics are drawn "
            "of a run or a sweep; leave --metric out."
        )
    return load(folder).plot()
