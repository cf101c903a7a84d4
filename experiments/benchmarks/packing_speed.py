"""The cost of packing a loop's outputs on this machine's own platform.

    python experiments/benchmarks/packing_speed.py

PPO on CartPole-v1 is compiled twice, once as for an accelerator and once as for a CPU
(`purerl.accelerator.packing`), and both are run in turn, results waited for. A figure
is the ratio of the medians; compilation is apart.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
from report import hardware

import purerl
from purerl import presets
from purerl.tracing import traced_for

# Agents -> environment steps of each.
CASES = {1: 100_000, 64: 10_000}


def compiled(agents: int, steps: int, platform: str) -> Callable[[], Any]:
    """Return a compiled run of some agents, traced for a platform.

    Args:
        agents: Agents that are trained side by side.
        steps: Environment steps of each.
        platform: The platform that the program is traced for.
    """
    config = presets.load("ppo-cartpole").replace(
        total_timesteps=steps, num_evaluations=0
    )
    keys = jax.random.split(jax.random.key(0), agents)
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    with traced_for(platform):
        program = train.lower(keys).compile()
    return lambda: jax.block_until_ready(program(keys))


def seconds(run: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(hardware())
    for agents, steps in CASES.items():
        packed, plain = (compiled(agents, steps, p) for p in ("cuda", "cpu"))
        seconds(packed), seconds(plain)  # once without counting
        pairs = [(seconds(packed), seconds(plain)) for _ in range(options.rounds)]
        one, other = (median(each) for each in zip(*pairs, strict=True))
        ratios = sorted(a / b for a, b in pairs)
        print(
            f"{agents} agents x {steps:,} steps: packed {one:.2f} s, plain "
            f"{other:.2f} s, {one / other:.2f} times "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
