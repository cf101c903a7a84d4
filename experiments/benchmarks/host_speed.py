"""PPO on CartPole-v1 with environments on the host: Gymnasium's two ways, and EnvPool.

    python experiments/benchmarks/host_speed.py
    python experiments/benchmarks/host_speed.py --num-envs 8 64 256 --rounds 5

The ways take turns, round by round. A number is environment steps per second of one
agent with the default networks, learning included and compilation left out: the median
of the rounds, with the smallest and the largest. EnvPool needs `pip install
'purerl[envpool]'`.
"""

import argparse
import os
from functools import partial

from report import PACKAGES, Measure, Run, alternate, hardware, rates, spread

import purerl

WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "Gymnasium, sync": ("gymnasium/CartPole-v1", {"vectorization_mode": "sync"}),
    "Gymnasium, async": ("gymnasium/CartPole-v1", {"vectorization_mode": "async"}),
    "EnvPool": ("envpool/CartPole-v1", {}),
}


def trained(way: str, num_envs: int, steps: int, seed: int) -> Run:
    """Train one agent; return the seconds without compilation.

    Args:
        way: One of `WAYS`.
        num_envs: Environments of the agent.
        steps: Environment steps.
        seed: Seed of the agent.
    """
    env, options = WAYS[way]
    config = purerl.PPOConfig(
        env=env,
        env_kwargs=options,
        num_envs=num_envs,
        total_timesteps=steps,
        num_evaluations=0,
    )
    result = purerl.run(config, seeds=[seed], progress=False)
    return Run(result.train_seconds, float(result.metrics["episode_return"][0, -1]))


def main() -> None:
    """Print a line for each number of environments and each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-envs", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--steps", type=int, default=81_920)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(hardware((*PACKAGES, "gymnasium", "envpool")))
    for num_envs in options.num_envs:
        measures: dict[str, Measure] = {
            way: partial(trained, way, num_envs, options.steps) for way in WAYS
        }
        for way, runs in alternate(measures, options.rounds).items():
            middle, low, high = spread(rates(runs, options.steps))
            print(
                f"{num_envs} environments, {way}: {middle:,.0f} steps/s "
                f"({low:,.0f} to {high:,.0f})",
                flush=True,
            )
    print(f"load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
