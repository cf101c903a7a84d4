"""The settings of DQN in all three stacks."""

import purerl


def make_config(quick: bool) -> purerl.DQNConfig:
    """Return the settings of DQN in all three stacks.

    Network, batch, exploration and Adam's step size are the source's. Its ratio of a
    gradient step to 640 environment steps is not, with which nothing would be learned
    in so few steps; and a discount of 0.95 suits paths of 20 steps better than 0.99.

    Args:
        quick: Whether everything is only to be tried.
    """
    steps = 12_800 if quick else 192_000
    return purerl.DQNConfig(
        env="Doors-v0",
        total_timesteps=steps,
        num_envs=64,
        gradient_steps=8,
        rounds_per_update=20 if quick else 100,
        gamma=0.95,
        learning_rate=5e-4,
        buffer_size=51_200,
        batch_size=128,
        learning_starts=640 if quick else 6_400,
        epsilon_steps=steps / 2,
        epsilon_end=0.05,
        target_update_interval=200,
        double=False,
        hidden_sizes=(64, 32),
        num_evaluations=0,
    )
