"""`purerl track`: send to trackers what they have missed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.cli.train import read_trackers
from purerl.report.track_folder import track
from purerl.runner.trackers import TRACKERS


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Track:
    """Send the rows and files that trackers lack of a run, sweep or evolution."""

    folder: Annotated[tyro.conf.Positional[Path], _arg("Of any of them.")]
    track: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        _arg(
            f"Send it to {', '.join(TRACKERS)}; may be repeated. Not given: to those "
            "that have been told of it before."
        ),
    ] = ()
    tracking_uri: Annotated[
        str | None, _arg("Address of MLflow's store; that of before if not given.")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status: 1 where something is still missing."""
    options = flags.parse(Track, argv, "track")
    chosen = read_trackers(options.track, options.tracking_uri) or None
    return 0 if track(options.folder, chosen) else 1
