"""`purerl track`: send to trackers what they have missed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.cli.flags import Repeated, option, read_trackers
from purerl.report.folder import track
from purerl.runner.trackers import TRACKERS


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


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status: 1 where something is still missing."""
    options = flags.parse(Track, argv, "track")
    chosen = read_trackers(options)
    return 0 if track(options.folder, chosen) else 1
