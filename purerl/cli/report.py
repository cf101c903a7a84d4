"""`purerl report`: the page of a run or a sweep, one HTML file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.runner import manifest


@dataclasses.dataclass(kw_only=True)
class Report:
    """Write the page of a run or a sweep, also while it runs."""

    folder: Annotated[
        tyro.conf.Positional[Path], tyro.conf.arg(help="Of the run or sweep.")
    ]
    out: Annotated[
        Path | None, tyro.conf.arg(help="The page; FOLDER/report.html if not given.")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = flags.parse(Report, argv, "report")
    path = write(options.folder, options.out or options.folder / "report.html")
    print(f"written to {path}")
    return 0


def write(folder: Path, path: Path) -> Path:
    """The page of whatever a folder holds.

    Raises:
        ConfigError: neither a run nor a sweep, or nothing in it yet.
    """
    from purerl.report import page
    from purerl.sweeps.result import load_sweep

    if manifest.load(folder).get("kind") != "sweep":
        return page.run_page(folder, path)
    load = f"import purerl\n\nresult = purerl.load_sweep({str(folder)!r})"
    return page.sweep_page(load_sweep(folder).dataset, path, load=load)
