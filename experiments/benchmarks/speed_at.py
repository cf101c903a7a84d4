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

import bench

ROWS = ("ppo-cartpole:1:500000", "ppo-cartpole:64:100000")


def program(
    stack: ExitStack,
    checkout: Path,
    row: str,
    variables: Mapping[str, str] | None = None,
) -> bench.Measure:
    """Prepare a row in a process of its own, with some code of purerl."""
    preset, agents, steps = row.split(":")
    request = {"preset": preset, "agents": int(agents), "steps": int(steps)}
    place = (Path(sys.executable), "peer_purerl.py", checkout, variables)
    return bench.peer_program(stack, *place, **request)[0]


def main() -> None:
    """Measure the rows of the command line; print a line of the table for each."""
    asked = bench.options(
        __doc__,
        checkout=bench.Words((), "CHECKOUT", is_checked=False, is_one=True),
        rows=bench.Words(ROWS, is_checked=False),
        rounds=7,
    )
    lines = []
    for row in asked.rows or ROWS:
        _, agents, steps = row.split(":")
        both = {"here": bench.ROOT, "there": Path(asked.checkout)}
        with ExitStack() as stack:
            measures = {name: program(stack, path, row) for name, path in both.items()}
            runs = bench.alternate(measures, asked.rounds)
        work = int(agents) * int(steps)
        ours, theirs = (bench.rates(runs[name], work) for name in both)
        ratio = bench.compare(ours, theirs)
        middle = [f"{bench.spread(each).median:,.0f}" for each in (ours, theirs)]
        words = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        lines.append([f"`{row}`", *middle, words, bench.cpu_seconds(runs)])
    print(f"\n{bench.machine_line()}\n")
    bench.print_table("row | steps/s here | steps/s there | ratio | processors", lines)


if __name__ == "__main__":
    main()
