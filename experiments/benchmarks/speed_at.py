"""The speed of purerl beside that of another checkout of it, in one run.

    git worktree add ../before 0dd6977
    python experiments/benchmarks/speed_at.py ../before [--rounds 7] [ROW ...]

A row is a preset, a number of agents and the environment steps of each, such as
`ppo-cartpole:64:100000`. Each checkout runs in a process of its own, which sleeps while
the other one trains; they take turns, round by round. Compilation is apart; a ratio is
that of the rates' medians, with the range of the rounds' own ratios. Above 1 this
checkout is faster. The other one may be as old as 0dd6977.
"""

import argparse
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from peer import ROOT, Peer
from report import Measure, Run, alternate, compare, cpu_seconds, hardware, rates

ROWS = ("ppo-cartpole:1:500000", "ppo-cartpole:64:100000")


def measure(
    stack: ExitStack,
    checkout: Path,
    row: str,
    variables: Mapping[str, str] | None = None,
) -> Measure:
    """Prepare a row in a process of its own.

    Args:
        stack: The stack that ends the process.
        checkout: Code of purerl that runs.
        row: Preset, agents and steps, between colons.
        variables: Variables of the process's environment, beside those of this one.
    """
    preset, agents, steps = row.split(":")
    peer = Peer(Path(sys.executable), "peer_purerl.py", checkout, variables)
    stack.enter_context(peer)
    peer.ask("prepare", preset=preset, agents=int(agents), steps=int(steps))
    return lambda seed: Run(**peer.ask("run", seed=seed))


def main() -> None:
    """Measure the rows of the command line; print a line of the table for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="other code of purerl")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_intermixed_args()
    lines = []
    for row in options.rows or ROWS:
        _, agents, steps = row.split(":")
        with ExitStack() as stack:
            both = {"here": ROOT, "there": options.checkout}
            runs = alternate(
                {name: measure(stack, path, row) for name, path in both.items()},
                options.rounds,
            )
        ours, theirs = (rates(runs[name], int(agents) * int(steps)) for name in both)
        ratio = compare(ours, theirs)
        lines.append(
            f"| `{row}` | {sorted(ours)[len(ours) // 2]:,.0f} | "
            f"{sorted(theirs)[len(theirs) // 2]:,.0f} | {ratio.median:.2f} "
            f"({ratio.low:.2f} to {ratio.high:.2f}) | {cpu_seconds(runs)} |"
        )
    about = hardware()
    print(f"\n{about}\n\n| row | steps/s here | steps/s there | ratio | processors |")
    print("|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
