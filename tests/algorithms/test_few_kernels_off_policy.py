"""Off-policy updates as an accelerator computes them are the updates of a CPU."""

import jax
import numpy as np
import pytest

import purerl
from purerl.accelerator.kernels import traced_for
from tests.helpers import assert_close, slow_but

SMALL = {
    "num_envs": 2,
    "total_timesteps": 96,
    "rounds_per_update": 16,
    "learning_starts": 37,  # within an update, and within a round
    "batch_size": 8,
    "hidden_sizes": (8,),
    "num_evaluations": 0,
    "buffer_size": 64,
}
CONFIGS = {
    "dqn": purerl.DQNConfig(**SMALL, target_update_interval=3),
    "dqn-3-steps": purerl.DQNConfig(**SMALL, n_step=3, gradient_steps=3),
    "dqn-frozen": purerl.DQNConfig(**SMALL, frozen=("torso",)),
    "dqn-prioritised": purerl.DQNConfig(**SMALL, prioritised=True),
    "td3": purerl.TD3Config(**SMALL, gradient_steps=2, policy_delay=2),
    "td3-by-a-branch": purerl.TD3Config(**SMALL, policy_delay=2),
    "sac": purerl.SACConfig(**SMALL, gradient_steps=4, policy_delay=2),
    "sac-many-steps": purerl.SACConfig(**SMALL, gradient_steps=5),
    "sac-discrete": purerl.SACConfig(**SMALL, env="CartPole-v1"),
    "td3-quantiles": purerl.TD3Config(**SMALL, num_quantiles=5, dropped_quantiles=1),
    "sac-prioritised": purerl.SACConfig(**SMALL, prioritised=True),
    "mpo": purerl.MPOConfig(**SMALL, action_samples=3, target_update_interval=4),
    "sac-memory": purerl.SACConfig(
        **{**SMALL, "rounds_per_update": 4},
        memory="gru",
        memory_size=4,
        head_sizes=(4,),
        sequence_length=4,
        burn_in=2,
    ),
    # Sequences so short that they are rows of words.
    "recurrent_dqn": purerl.RecurrentDQNConfig(
        **{name: value for name, value in SMALL.items() if name != "rounds_per_update"},
        sequence_length=4,
        burn_in=2,
        n_step=2,
        memory_size=4,
        target_update_interval=3,
    ),
}
QUICK = ("dqn", "td3")


def trained(config, platform):
    with traced_for(platform):
        # A function of its own, as JAX keeps what it has traced.
        train = purerl.make_train(config)
        return jax.jit(lambda key: train(key))(jax.random.key(3))


@pytest.mark.parametrize("name", slow_but(CONFIGS, *QUICK))
def test_an_accelerators_run_is_the_one_of_a_cpu(name):
    known = trained(CONFIGS[name], "cpu")
    found = trained(CONFIGS[name], "cuda")
    assert jax.tree.structure(found) == jax.tree.structure(known)
    # The last steps have learned, and the first have not.
    per_update = CONFIGS[name].steps_per_update
    first = -(-SMALL["learning_starts"] // per_update) - 1
    learned = np.arange(SMALL["total_timesteps"] // per_update) >= first
    np.testing.assert_array_equal(known.metrics["gradient_steps"] > 0, learned)
    assert_close(found, known, rtol=2e-3, atol=2e-4)
