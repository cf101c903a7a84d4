"""`purerl report`, `plot` and `track`: what a folder holds, on a page and elsewhere."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from purerl.cli import flags
from purerl.cli.flags import Repeated, option
from purerl.config import ConfigError
from purerl.report import plots
from purerl.report.folder import load, read_result, track
from purerl.report.sweep_data import ENV, environments
from purerl.runner.options import read_trackers
from purerl.runner.trackers import TRACKERS
from purerl.storage import folders

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(kw_only=True)
class Report:
    """Write the page of whatever a folder holds, also while it goes on."""

    folder: Annotated[tyro.conf.Positional[Path], option("Folder to write of.")]
    out: Annotated[
        Path | None, option("Page to write; FOLDER/report.html if not given.")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Report, argv, "report")
    path = write(options.folder, options.out)
    print(f"written to {path}")
    return 0


def write(folder: Path, path: Path | None = None, kind: str = "") -> Path:
    """Write the page of whatever a folder holds; see `folder_page`."""
    from purerl.report.page import folder_page

    return folder_page(folder, path, kind)


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw the curves of a folder from its files, also while it is written."""

    folder: Annotated[
        tyro.conf.Positional[Path],
        option(
            "Folder of a run, a sweep, an evolution, a comparison or an own search."
        ),
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


def main_plot(argv: Sequence[str]) -> int:
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
        folder: The folder of a run, sweep, evolution, comparison or own search.
        metrics: Names of metrics of a run or sweep, in place of the returns.

    Raises:
        ConfigError: it holds something else, or nothing yet, or no such metric.
    """
    kind = folders.kind_of(folder)
    if kind not in folders.KINDS and (folder / "records").is_dir():
        from purerl.report.page import score_of
        from purerl.search.folder import read_outcomes

        return plots.request_scores([score_of(x) for x in read_outcomes(folder)])
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


@dataclasses.dataclass(kw_only=True)
class Track:
    """Send the rows and files that trackers lack of a run, sweep or evolution."""

    folder: Annotated[
        tyro.conf.Positional[Path],
        option("Folder of a run, sweep, search or comparison."),
    ]
    track: Annotated[
        Repeated,
        option(
            f"Tracker to send to: {', '.join(TRACKERS)}; may be repeated. If not "
            "given, those that have been told of the folder before."
        ),
    ] = ()
    tracking_uri: Annotated[
        str | None,
        option(
            "Address of MLflow's store; the one it was sent to before if not given."
        ),
    ] = None


def main_track(argv: Sequence[str]) -> int:
    """Run the command; return the exit status: 1 where something is still missing."""
    options = flags.parse(Track, argv, "track")
    chosen = read_trackers(options.track, options.tracking_uri)
    return 0 if track(options.folder, chosen) else 1
