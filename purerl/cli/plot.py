"""`purerl plot`: the learning curves of a run, from its files."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from purerl.cli import flags
from purerl.config import ConfigError
from purerl.report import plots
from purerl.report.saved import read_result


@dataclasses.dataclass(kw_only=True)
class Plot:
    """Draw a run's learning curves from its metrics files, also while it goes on."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(help="Folder of the run.")]
    out: Annotated[
        Path | None, tyro.conf.arg(help="PNG to write; <run>/curve.png if not given.")
    ] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = flags.parse(Plot, argv, "plot")
    path = options.out or options.run / "curve.png"
    result = read_result(options.run)
    try:
        plots.learning_curve(result, path)
    except (OSError, ValueError) as error:  # ValueError: a name without a stem
        raise ConfigError(
            f"out: cannot write the picture {path} ({error}). Give a PNG in a folder "
            "that you may write to."
        ) from None
    print(f"written to {path}")
    return 0
