"""One agent with one thread of XLA's and with as many as there are cores.

    python experiments/benchmarks/one_thread.py [--rounds 5] [PRESET:STEPS ...]

XLA's CPU runtime spreads the kernels of a program over all cores. Small kernels take
less time than it takes to hand them over, so that a program of small networks is faster
with one thread, which XLA makes where the variable `NPROC` is 1 when JAX starts. One
agent is trained both ways in turns, each in a process of its own that sleeps meanwhile;
compilation is apart. A ratio is that of the medians of the rates, with the range of the
rounds' own ratios: above 1 the one thread is faster.
"""

import argparse
import contextlib
import sys
from contextlib import ExitStack

from peer import ROOT
from report import alternate, compare, hardware, rates, spread
from speed_at import measure

ROWS = (
    "ppo-cartpole:200000",
    "vpg-cartpole:200000",
    "pqn-cartpole:200000",
    "recurrent-ppo-cartpole:30000",
    "dqn-cartpole:100000",
    "td3-pendulum:8000",
    "sac-pendulum:8000",
    "mpo-pendulum:4000",
    "ppo-halfcheetah:40960",
    "ppo-minatar:40960",
)
THREADS = {"one thread": {"NPROC": "1"}, "a thread for each core": {}}


def main() -> None:
    """Measure the rows of the command line; print a line of the table for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="PRESET:STEPS", default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{hardware()}, medians of {options.rounds}\n")
    print(
        "| preset | steps/s, one thread | steps/s, a thread for each core | ratio "
        "| cores busy, one thread | cores busy, a thread for each |"
    )
    print("|---|---|---|---|---|---|")
    for row in options.rows:
        print(line(row, options.rounds), flush=True)


def line(row: str, rounds: int) -> str:
    """Return the table's line of a row.

    Args:
        row: Preset and steps, with a colon between them.
        rounds: How often each way trains.
    """
    preset, steps = row.split(":")
    with ExitStack() as stack, contextlib.redirect_stdout(sys.stderr):
        contenders = {
            name: measure(stack, ROOT, f"{preset}:1:{steps}", variables)
            for name, variables in THREADS.items()
        }
        runs = alternate(contenders, rounds)
    one, many = (rates(runs[name], int(steps)) for name in THREADS)
    ratio = compare(one, many)
    busy = [
        spread([run.cpu_seconds / run.seconds for run in runs[name]]).median
        for name in THREADS
    ]
    return (
        f"| `{preset}` | {spread(one).median:,.0f} | {spread(many).median:,.0f} | "
        f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) | "
        f"{busy[0]:.1f} | {busy[1]:.1f} |"
    )


if __name__ == "__main__":
    main()
