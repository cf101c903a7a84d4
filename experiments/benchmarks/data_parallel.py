"""One agent over all cores against one core: PPO on HalfCheetah (brax, spring).

    python experiments/benchmarks/data_parallel.py [--rounds 5]

Physics is what it costs, so splitting the 64 environments over two devices should
nearly double the rate. Rounds take turns; compilation is apart; medians are compared.
"""

import argparse
import statistics
import time
from typing import Any

import jax

import purerl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40_960)
    args = parser.parse_args()
    devices = purerl.use_all_cores()
    config = purerl.presets.load("ppo-halfcheetah").replace(
        total_timesteps=args.steps, num_evaluations=0
    )
    key = jax.random.key(0)
    programs: dict[str, Any] = {}
    for name, train in (
        ("one device", purerl.make_train(config)),
        (f"data_parallel, {devices} devices", purerl.data_parallel(config)),
    ):
        began = time.perf_counter()
        programs[name] = jax.jit(train).lower(key).compile()
        print(f"{name}: compiled in {time.perf_counter() - began:.1f} s", flush=True)
    rates: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(key))
            rates[name].append(args.steps / (time.perf_counter() - began))
    for name, values in rates.items():
        print(
            f"{name}: {statistics.median(values):,.0f} steps/s "
            f"({min(values):,.0f} to {max(values):,.0f})"
        )
    one, two = map(statistics.median, rates.values())
    print(f"ratio {two / one:.2f}")


if __name__ == "__main__":
    main()
