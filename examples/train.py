"""Train PPO agents with several seeds, and act with one of them.

    python examples/train.py --steps 30000 --seeds 4

The whole run of every agent, evaluations included, is one compiled call.
"""

import argparse

import jax

import purerl


def main(steps: int, seeds: int) -> float:
    """Train, print how the agents learned, and return their mean final score.

    Args:
        steps: Environment steps of each agent.
        seeds: Number of agents.
    """
    config = purerl.PPOConfig(
        env="CartPole-v1",
        total_timesteps=steps,
        num_envs=8,
        learning_rate=1e-3,
        num_evaluations=3,
        eval_share=1.0,
    )
    train = purerl.make_train(config)  # a pure function: key -> TrainResult
    keys = jax.random.split(jax.random.key(0), seeds)
    result = purerl.pmap(train)(keys)  # on every core or device

    steps_done = result.evaluation["env_steps"][0]  # [evaluations]
    scores = result.evaluation["episode_return"].mean(-1)  # [seeds, evaluations]
    for index, step in enumerate(steps_done):
        row = "  ".join(f"{score:6.1f}" for score in scores[:, index])
        print(f"after {int(step):7,} steps, the score of each seed: {row}")

    best = int(scores[:, -1].argmax())
    agent = jax.tree.map(lambda x: x[best], result.state)
    policy = purerl.make_policy(config, agent)
    pole_falls_right = [0.0, 0.0, 0.1, 0.5]  # position, velocity, angle, its velocity
    action = int(policy(pole_falls_right))
    print(
        f"seed {best} pushes {'right' if action else 'left'} when the pole falls right"
    )
    return float(scores[:, -1].mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train PPO on CartPole-v1.")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=4)
    main(**vars(parser.parse_args()))
