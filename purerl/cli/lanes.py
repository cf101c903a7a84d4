"""`purerl lanes`: which width of blocks trains fastest on this machine."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from rich.console import Console

from purerl.cli import flags, settings
from purerl.cli.options import ConfigSource, MemoryLimit, option
from purerl.cli.train import base_config
from purerl.sweeps import lanes
from purerl.sweeps.console import lanes_table


@dataclasses.dataclass(kw_only=True)
class Lanes:
    """Measure training throughput over lane widths, and remember the best one.

    `purerl sweep --lanes auto` takes it from then on.
    """

    widths: Annotated[
        tuple[int, ...], option("Widths to measure; powers of two if not given.")
    ] = ()
    seconds: Annotated[float, option("Seconds of measurement per width.")] = 2.0
    memory_limit: MemoryLimit = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parsed = flags.parse(flags.parser_class(base, Lanes, ConfigSource), argv, "lanes")
    settings.enable_compile_cache()
    rates = lanes.find_lanes(
        flags.read_config(parsed, base),
        widths=sorted(parsed.widths) or None,
        memory_limit=parsed.memory_limit,
        seconds=parsed.seconds,
    )
    console = Console()
    console.print(lanes_table(rates))
    path = lanes.cache_file()
    words = f"remembered in {path}" if path else _FORGOTTEN
    console.print(words, highlight=False, soft_wrap=True)
    return 0


_FORGOTTEN = (
    "not remembered, because you have no home folder; set XDG_CACHE_HOME to a folder "
    "that you may write to"
)
