"""`purerl lanes`: which width of blocks trains fastest on this machine."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from purerl import presets
from purerl.algorithms import ALGORITHMS
from purerl.cli import flags, settings
from purerl.cli.train import base_config
from purerl.sweeps import lanes
from purerl.sweeps.console import lanes_table


def _arg(text: str) -> object:
    return tyro.conf.arg(help=text)


@dataclasses.dataclass(kw_only=True)
class Lanes:
    """Measure training throughput over lane widths, and remember the best one.

    `purerl sweep --lanes auto` takes it from then on.
    """

    algorithm: Annotated[str, _arg(f"One of {', '.join(ALGORITHMS)}.")] = "ppo"
    preset: Annotated[
        str | None, _arg(f"Start from a preset: {', '.join(presets.names())}.")
    ] = None
    config: Annotated[Path | None, _arg("Start from a YAML file.")] = None
    widths: Annotated[
        tuple[int, ...], _arg("Widths to try; powers of two if not given.")
    ] = ()
    seconds: Annotated[float, _arg("Of measurement per width.")] = 2.0
    memory_limit: Annotated[str | None, _arg("Bytes for training, such as 2GB.")] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, Lanes), argv, "lanes")
    settings.enable_compile_cache()
    rates = lanes.find_lanes(
        flags.read_config(parsed, base),
        widths=sorted(parsed.widths) or None,
        memory_limit=parsed.memory_limit,
        seconds=parsed.seconds,
    )
    console = Console()
    console.print(lanes_table(rates))
    console.print(
        f"remembered in {lanes.cache_file()}", highlight=False, soft_wrap=True
    )
    return 0
