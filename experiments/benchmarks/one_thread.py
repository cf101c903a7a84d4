"""One agent with one thread of XLA's and with as many as there are cores.

    python experiments/benchmarks/one_thread.py [--rounds 5] [PRESET:STEPS ...]

XLA's CPU runtime spreads the kernels of a program over all cores. Small kernels take
less time than it takes to hand them over, so that a program of small networks is faster
with one thread, which XLA makes where the variable `NPROC` is 1 when JAX starts. One
agent is trained both ways in turns, each in a process of its own that sleeps meanwhile;
compilation is apart. A ratio is that of the medians of the rates, with the range of the
rounds' own ratios: above 1 the one thread is faster.
"""

import sys

import bench
from speed_at import in_turns

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


def cells(row: str, rounds: int) -> list[str]:
    """Return the table's cells of a row, a preset and its environment steps."""
    preset, steps = row.split(":")
    places = {name: (bench.ROOT, variables) for name, variables in THREADS.items()}
    runs, numbers = in_turns(f"{preset}:1:{steps}", places, rounds, sys.stderr)
    busy = [
        bench.spread([run.cpu_seconds / run.seconds for run in found]).median
        for found in runs.values()
    ]
    return [f"`{preset}`", *numbers, *(f"{each:.1f}" for each in busy)]


def main() -> None:
    """Measure the rows of the command line; print a line of the table for each."""
    rows = bench.Words(ROWS, "PRESET:STEPS", is_checked=False)
    asked = bench.options(__doc__, rows=rows, rounds=5)
    print(f"{bench.machine_line()}; medians of {asked.rounds}\n")
    bench.print_table(
        "preset | steps/s, one thread | steps/s, a thread for each core | ratio "
        "| cores busy, one thread | cores busy, a thread for each"
    )
    for row in asked.rows or ROWS:
        bench.print_row(*cells(row, asked.rounds))


if __name__ == "__main__":
    main()
