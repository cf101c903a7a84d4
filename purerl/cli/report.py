"""`purerl report`, `plot` and `track`: what a folder holds, on a page and elsewhere."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from purerl.cli import flags
from purerl.cli.flags import Repeated, option
from purerl.config import ConfigError
from purerl.report import plots
from purerl.report.folder import load, read_result, track
from purerl.report.sweep_data import ENV, environments
from purerl.runner.options import read_trackers
from purerl.runner.trackers import TRACKERS
from purerl.storage import folders


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


def write(folder: Path, path: Path | None = None) -> Path:
    """Write the page of whatever a folder holds; see `folder_page`."""
    from purerl.report.page import folder_page

    return folder_page(folder, path)


def end(out: Path | None, *sentences: str) -> None:
    """Write the page of what a tool has written, and print where everything is.

    Args:
        out: The folder, if there is one.
        *sentences: Sentences that are printed before.
    """
    if out is None:
        return
    write(out)
    where = f"{out}/, with report.html; in Python purerl.load({str(out)!r})"
    text = "\n".join((*sentences, f"written to {where}"))
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw the curves of folders from their files, also while they are written."""

    folders: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            metavar="[NAME=]FOLDER",
            help="Folder of anything. Several runs, sweeps (of which the best point is "
            "drawn) and comparisons come into one picture, a panel per environment; "
            "the legend has the name that is given, or the folder's.",
        ),
    ]
    metric: Annotated[
        Repeated,
        option(
            "Metric of runs or sweeps to draw in place of the returns; of one folder "
            "it may be repeated. An unknown name is answered with the names of all "
            "metrics."
        ),
    ] = ()
    iqm: Annotated[
        bool, option("Draw the interquartile mean over seeds, not the mean.")
    ] = False
    columns: Annotated[
        int | None,
        option(
            "Columns of a paper that the picture is wide, 1 or 2; its title goes "
            "into the caption."
        ),
    ] = None
    out: Annotated[
        Path | None,
        option(
            "Picture to write, .pdf, .svg or .png; FOLDER/curve.png if not given, or "
            "FOLDER/METRIC.png; for several folders curves.png here."
        ),
    ] = None


def main_plot(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    options = flags.parse(Plot, argv, "plot")
    name = "-".join(options.metric).replace("/", "-")
    if len(options.folders) == 1 and not options.iqm:
        folder = _named(options.folders[0])[1]
        path = options.out or folder / f"{name or 'curve'}.png"
        drawn = partial(draw, folder, options.metric)
    else:
        path = options.out or Path(f"{name or 'curves'}.png")
        drawn = partial(draw_several, options.folders, options.metric, options.iqm)
    columns = options.columns
    with nullcontext() if columns is None else plots.paper(columns):
        picture = drawn()
    try:
        picture.save(path)
    except (OSError, ValueError) as error:  # ValueError: a name without a stem
        raise ConfigError(
            f"out: cannot write the picture {path} ({error}). Give a .pdf, .svg or "
            ".png in a folder that you may write to."
        ) from None
    caption = picture.figure.get_label()
    print(f"written to {path}")
    if columns is not None:
        print(f"caption: {caption}")
    return 0


def draw(folder: Path, metrics: Sequence[str] = ()) -> plots.Picture:
    """Draw the learning curves of whatever a folder holds, or metrics of it.

    Args:
        folder: The folder.
        metrics: Names of metrics of a run or sweep, in place of the returns.

    Raises:
        ConfigError: there is nothing yet, or no such metric.
    """
    kind = folders.kind_of(folder)
    if kind not in folders.KINDS and (folder / "records").is_dir():
        from purerl.search.drive import score_of
        from purerl.search.folder import read_outcomes

        return plots.request_scores([score_of(x) for x in read_outcomes(folder)])
    if metrics and kind not in ("run", "sweep"):
        raise ConfigError(
            f"metric: {folder} holds {folders.words_of(kind)}, and metrics are drawn "
            "of a run or a sweep; leave --metric out."
        )
    result = _read(folder, kind)
    if not metrics:
        return result.plot()
    if kind == "run":
        return plots.metric_curves(result, metrics)
    # Several environments have no best configurations in common, but one each.
    by = ENV if len(environments(result.dataset)) > 1 else None
    return plots.sweep_curves(result.dataset, by, metric=metrics)


def _read(folder: Path, kind: str) -> Any:
    """Read a result for a picture: of a run its curves alone, which need no config."""
    return read_result(folder) if kind == "run" else load(folder)


def draw_several(
    given: Sequence[str], metrics: Sequence[str], iqm: bool
) -> plots.Picture:
    """Draw the curves of several folders into one picture, a panel per environment.

    Raises:
        ConfigError: two of one name in one environment, a folder without curves of
            returns, more than one metric.
    """
    if len(metrics) > 1:
        raise ConfigError("metric: of several folders one metric is drawn; give one.")
    named = [_named(text) for text in given]
    results = [(name, _read(path, folders.kind_of(path))) for name, path in named]
    return plots.curves(
        results, "iqm" if iqm else "mean", metric=next(iter(metrics), None)
    )


def _named(text: str) -> tuple[str, Path]:
    """The name in a legend and the folder, of `NAME=FOLDER` or of a folder."""
    name, _, folder = text.rpartition("=")
    if not name or Path(text).exists():
        return Path(text).resolve().name, Path(text)
    return name, Path(folder)


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
