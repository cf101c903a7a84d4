"""Learning results that take longer: `make test-slow`."""

import jax
import numpy as np
import pytest

import purerl

pytestmark = pytest.mark.optimised


@pytest.mark.slow
def test_ppo_solves_cartpole_with_its_defaults():
    # 8 seeds of 500,000 steps; the optimum is 500.
    config = purerl.PPOConfig(env="CartPole-v1")
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    result = train(jax.random.split(jax.random.key(0), 8))
    final = np.asarray(result.evaluation["episode_return"][:, -1])
    assert final.mean() >= 475
    assert final.mean(1).min() >= 400
