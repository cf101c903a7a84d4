"""`purerl lanes`: which width of blocks trains fastest here."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from purerl.cli import flags, settings
from purerl.cli.train import base_config
from purerl.execution.format import format_bytes, with_noun
from purerl.sweeps import plan


@dataclasses.dataclass(kw_only=True)
class FindLanes:
    """Measure training throughput over lane widths, for `--lanes`."""

    widths: Annotated[
        tuple[int, ...],
        flags.option("Widths to measure; powers of two if not given."),
    ] = ()
    seconds: Annotated[float, flags.option("Seconds of measurement per width.")] = 2.0
    memory_limit: Annotated[str | None, flags.option(flags.tools.MEMORY_LIMIT)] = None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    base = base_config(argv)
    parser = flags.parser_class(base, FindLanes, flags.ConfigSource)
    parsed = flags.parse(parser, argv, "lanes")
    settings.enable_compile_cache()
    rates = plan.find_lanes(
        flags.read_config(parsed, base),
        widths=sorted(parsed.widths) or None,
        memory_limit=parsed.memory_limit,
        seconds=parsed.seconds,
    )
    best = max(rate.steps_per_second for rate in rates)
    for rate in rates:
        print(
            f"{with_noun(rate.lanes, 'lane')}: {rate.steps_per_second:,.0f} steps/s "
            f"with all workers busy ({rate.steps_per_second / best:.0%} of the best), "
            f"{format_bytes(rate.memory)} a worker, "
            f"compiled in {rate.compile_seconds:.1f} s"
        )
    print(f"fastest: --lanes {plan.best_of(rates)}")
    return 0
