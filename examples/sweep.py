"""Sweep over a step size and a discount, with several seeds of each.

    python examples/sweep.py --steps 20000 --seeds 4

Both are numbers, so that all agents are lanes of one compiled program. With
`out="runs/my-sweep"` the sweep would survive a kill: the same call goes on.
"""

import argparse

import purerl
from purerl.report.statistics import mean_interval


def main(steps: int, seeds: int) -> dict[str, float]:
    """Sweep, print a row per setting, and return the best one.

    Args:
        steps: Environment steps of each agent.
        seeds: Agents of each setting.
    """
    config = purerl.PPOConfig(
        env="CartPole-v1", total_timesteps=steps, num_envs=8, num_evaluations=0
    )
    result = purerl.sweep(
        config,
        {"learning_rate": [1e-4, 1e-3, 1e-2], "gamma": [0.9, 0.99]},
        seeds=seeds,
        progress=False,
    )

    # A labelled array (learning_rate, gamma, seed): the return at the end of training.
    scores = result.scores("episode_return")
    print("step size   discount   return in training, over the seeds")
    for rate in scores.learning_rate.values:
        for gamma in scores.gamma.values:
            values = scores.sel(learning_rate=rate, gamma=gamma).values
            print(
                f"{rate:9g}   {gamma:8g}   {values.mean():6.1f}"
                f"   ({mean_interval(values).text()})"
            )

    best = result.best("episode_return")
    print(f"best: {best.point}")
    return dict(best.point)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Sweep over PPO's numbers.")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=4)
    main(**vars(parser.parse_args()))
