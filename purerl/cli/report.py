"""`purerl report`: the page of whatever a folder holds, one HTML file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.cli.flags import option


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
