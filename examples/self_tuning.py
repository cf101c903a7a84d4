"""An agent that tunes its own step size, discount and entropy bonus while it learns.

    python examples/self_tuning.py --steps 100000 --seeds 4

After every update the meta-gradient says how other numbers would have made the policy
better on the next rollout, and the numbers take a step along it.
"""

import argparse

import jax
import numpy as np

import purerl

NAMES = ("learning_rate", "gamma", "gae_lambda", "entropy_coef")


def main(steps: int, seeds: int) -> dict[str, float]:
    """Train, print the course of the numbers, and return their means at the end.

    Args:
        steps: Environment steps of each agent.
        seeds: Number of agents.
    """
    config = purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=steps,
        num_envs=8,
        learning_rate=1e-4,  # too small on purpose
        num_evaluations=1,
    )
    train = purerl.self_tune(config, NAMES, meta_learning_rate=0.03)
    keys = jax.random.split(jax.random.key(0), seeds)
    tuned = purerl.pmap(train)(keys)
    fixed = purerl.pmap(purerl.make_train(config))(keys)

    rows = tuned.course["update"].shape[1]
    for row in np.linspace(0, rows - 1, 5).astype(int):
        numbers = {name: tuned.course[name][:, row].mean() for name in NAMES}
        words = "  ".join(f"{name} {value:.3g}" for name, value in numbers.items())
        print(f"after {tuned.course['update'][0, row]:4} updates: {words}")
    for words, result in (("tuned by itself", tuned), ("fixed", fixed)):
        print(f"{words}: return {result.evaluation['episode_return'].mean():.1f}")
    return {name: float(tuned.overrides[name].mean()) for name in NAMES}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO that tunes its own numbers.")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=4)
    main(**vars(parser.parse_args()))
