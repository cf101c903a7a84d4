"""PPO on CartPole-v1 with environments on the host: Gymnasium's two ways, and EnvPool.

    python experiments/benchmarks/host_speed.py
    python experiments/benchmarks/host_speed.py --ways sync envpool --rounds 9

The ways take turns, round by round. A number is environment steps per second of one
agent with the default networks, learning included, compilation and the start of
environments and processes left out: the median of the rounds, with the smallest and the
largest. EnvPool needs `pip install 'purerl[envpool]'`.
"""

import argparse
import os
import time
from contextlib import ExitStack, closing

import jax
from report import PACKAGES, Measure, Run, alternate, hardware, rates, spread

import purerl
from purerl.execution.hosted import HostedCohort, HostedProgram
from purerl.train import bind

NUM_STEPS = 128  # what PPO takes where actions are discrete
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "sync": ("gymnasium/CartPole-v1", {"vectorization_mode": "sync"}),
    "async": ("gymnasium/CartPole-v1", {"vectorization_mode": "async"}),
    "envpool": ("envpool/CartPole-v1", {}),
}


def started(way: str, num_envs: int, updates: int) -> HostedCohort:
    """Return an agent after its first update, with its environments.

    Args:
        way: One of `WAYS`.
        num_envs: Environments of the agent.
        updates: Updates that it will make after the first.
    """
    env, options = WAYS[way]
    config = purerl.PPOConfig(
        env=env,
        env_kwargs=options,
        num_envs=num_envs,
        num_steps=NUM_STEPS,
        num_evaluations=0,
        total_timesteps=NUM_STEPS * num_envs * (updates + 1),
    )
    keys = jax.random.split(jax.random.key(0), 1)
    cohort = HostedCohort(HostedProgram(bind(config, on_host=True)), keys, 1)
    cohort.init()
    list(cohort.segments(1))
    return cohort


def goes_on(cohort: HostedCohort, updates: int) -> Measure:
    """Return what trains an agent for some updates and says how long it took."""

    def measure(index: int) -> Run:
        del index
        began = time.perf_counter()
        list(cohort.segments(cohort.update + updates))
        return Run(time.perf_counter() - began)

    return measure


def main() -> None:
    """Print a line for each number of environments and each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-envs", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=16_384, help="in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(hardware((*PACKAGES, "gymnasium", "envpool")))
    for num_envs in options.num_envs:
        updates = max(1, options.steps // (num_envs * NUM_STEPS))
        steps = updates * num_envs * NUM_STEPS
        with ExitStack() as stack:
            measures = {}
            for way in options.ways:
                cohort = started(way, num_envs, updates * options.rounds)
                measures[way] = goes_on(stack.enter_context(closing(cohort)), updates)
            found = alternate(measures, options.rounds)
        for way, runs in found.items():
            middle, low, high = spread(rates(runs, steps))
            print(
                f"{num_envs} environments, {way}: {middle:,.0f} steps/s "
                f"({low:,.0f} to {high:,.0f})",
                flush=True,
            )
    print(f"load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
