"""What the defaults are for: a short run learns, whatever the task."""

import jax
import numpy as np
import pytest

import purerl

pytestmark = pytest.mark.slow
SEEDS = 3


def train(config, seeds=SEEDS):
    keys = jax.vmap(jax.random.key)(np.arange(seeds))
    config = config.replace(num_evaluations=1)
    return jax.jit(jax.vmap(purerl.make_train(config)))(keys)


def test_ppo_swings_the_pendulum_up():
    """With the numbers for CartPole-v1: about -1,200, a random policy's return."""
    config = purerl.PPOConfig(env="Pendulum-v1", total_timesteps=400_000)
    returns = train(config).evaluation["episode_return"].mean((1, 2))
    assert (np.asarray(returns) > -300).all(), returns


def test_dqn_stops_exploring_within_a_short_run():
    """With a decay of 250,000 steps: about 38 in training, at epsilon 0.8."""
    result = train(purerl.DQNConfig(total_timesteps=50_000), seeds=20)
    last = np.asarray(result.metrics["episode_return"][:, -3:])
    assert last.mean() > 100, last
    assert result.evaluation["episode_return"].mean() > 300


def test_pqn_learns_within_a_short_run():
    """With a step size of 3e-4: 129 in the mean of ten seeds."""
    result = train(purerl.PQNConfig(total_timesteps=100_000))
    assert result.evaluation["episode_return"].mean() > 300
    preset = purerl.presets.load("pqn-cartpole")
    assert preset == purerl.PQNConfig(learning_rate=3e-4)


@pytest.mark.optimised
@pytest.mark.parametrize("config", [purerl.PPOConfig(), purerl.PQNConfig()])
def test_cartpole_is_solved_with_the_defaults(config):
    # 8 seeds of 500,000 steps; the optimum is 500.
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    result = train(jax.random.split(jax.random.key(0), 8))
    final = np.asarray(result.evaluation["episode_return"][:, -1])
    assert final.mean() >= 475
    assert isinstance(config, purerl.PQNConfig) or final.mean(1).min() >= 400
