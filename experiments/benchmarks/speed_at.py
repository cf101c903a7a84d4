"""The speed of purerl beside that of another checkout of it, in one run.

    git worktree add ../before 0dd6977
    python experiments/benchmarks/speed_at.py ../before [--rounds 7] [ROW ...]

A row is a preset, a number of agents and the environment steps of each, such as
`ppo-cartpole:64:100000`. Each checkout runs in a process of its own, which sleeps while
the other one trains; they take turns, round by round. Compilation is apart; a ratio is
that of the rates' medians, with the range of the rounds' own ratios. Above 1 this
checkout is faster. The other one may be as old as 0dd6977.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bench

ROWS = ("ppo-cartpole:1:500000", "ppo-cartpole:64:100000")


def in_turns(
    row: str,
    places: Mapping[str, tuple[Path, Mapping[str, str]]],
    rounds: int,
    out: Any = None,
) -> tuple[dict[str, list[bench.Run]], list[str]]:
    """Train a row in two processes that take turns.

    Args:
        row: Preset, agents and steps, between colons.
        places: Of each process its code of purerl, and its variables.
        rounds: Number of rounds.
        out: Where the progress is printed.

    Returns:
        The runs of both, and the table's cells: two rates and their ratio.
    """
    preset, agents, steps = row.split(":")
    request = {"preset": preset, "agents": int(agents), "steps": int(steps)}
    with ExitStack() as stack:
        measures = {}
        for name, (checkout, variables) in places.items():
            own = (Path(sys.executable), "peer_purerl.py", checkout, variables)
            measures[name], _ = bench.peer_program(stack, *own, **request)
        runs = bench.alternate(measures, rounds, out)
    work = int(agents) * int(steps)
    both = [bench.rates(found, work) for found in runs.values()]
    middle, low, high = bench.compare(*both)
    medians = [f"{bench.spread(rates).median:,.0f}" for rates in both]
    return runs, [*medians, f"{middle:.2f} ({low:.2f} to {high:.2f})"]


def main() -> None:
    """Measure the rows of the command line; print a line of the table for each."""
    asked = bench.options(
        __doc__,
        checkout=bench.Words((), "CHECKOUT", is_checked=False, is_one=True),
        rows=bench.Words(ROWS, is_checked=False),
        rounds=7,
    )
    lines = []
    places = {"here": (bench.ROOT, {}), "there": (Path(asked.checkout), {})}
    for row in asked.rows or ROWS:
        runs, numbers = in_turns(row, places, asked.rounds)
        lines.append([f"`{row}`", *numbers, bench.cpu_seconds(runs)])
    print(f"\n{bench.machine_line()}\n")
    bench.print_table("row | steps/s here | steps/s there | ratio | processors", lines)


if __name__ == "__main__":
    main()
