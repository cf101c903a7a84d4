"""PPO on CartPole-v1 with environments on the host: Gymnasium's two ways, and EnvPool.

    python experiments/benchmarks/host_speed.py
    python experiments/benchmarks/host_speed.py --ways sync envpool --rounds 9

The ways take turns, round by round. A number is environment steps per second of one
agent with the default networks, learning included, compilation and the start of
environments and processes left out: the median of the rounds, with the smallest and the
largest. EnvPool needs `pip install 'purerl[envpool]'`.
"""

import os
from contextlib import ExitStack, closing
from functools import partial

import bench
import jax
from bench import options

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


def more_updates(agent: HostedCohort, updates: int) -> None:
    """Train an agent for some more updates."""
    list(agent.segments(agent.update + updates))


def main() -> None:
    """Print a line for each number of environments and each way."""
    asked = options(
        __doc__,
        num_envs=[8, 64],
        ways=(list(WAYS), WAYS),
        steps=(16_384, "in a round"),
        rounds=5,
    )
    print(bench.machine_line(bench.machine((*bench.PACKAGES, "gymnasium", "envpool"))))
    for num_envs in asked.num_envs:
        updates = max(1, asked.steps // (num_envs * NUM_STEPS))
        with ExitStack() as stack:
            measures = {}
            for way in asked.ways:
                agent = started(way, num_envs, updates * asked.rounds)
                stack.enter_context(closing(agent))
                measures[way] = bench.calls(partial(more_updates, agent, updates))
            found = bench.alternate(measures, asked.rounds)
        for way, runs in found.items():
            middle, low, high = bench.spread(
                bench.rates(runs, updates * num_envs * NUM_STEPS)
            )
            print(
                f"{num_envs} environments, {way}: {middle:,.0f} steps/s "
                f"({low:,.0f} to {high:,.0f})",
                flush=True,
            )
    print(f"load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
