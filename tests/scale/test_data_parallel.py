import jax
import numpy as np
import pytest

import purerl
from purerl import ConfigError
from tests.helpers import tiny_config

FIRST = 5  # updates over which rounding stays small


# Continuous actions take the same road, and as long again to compile.
ENVS = ["CartPole-v1", pytest.param("probe/continuous", marks=pytest.mark.slow)]


def compare(config):
    key = jax.random.key(3)
    single = jax.jit(purerl.make_train(config))(key)
    spread = jax.jit(purerl.data_parallel(config))(key)
    return single, spread


@pytest.fixture(scope="module", params=ENVS)
def pair(request):
    # With one minibatch both take the same samples; normalisers see all of them.
    return compare(
        tiny_config(
            env=request.param,
            num_envs=4,
            num_minibatches=1,
            total_timesteps=4 * 16 * FIRST,
            num_evaluations=0,
            normalize_observations=True,
            normalize_rewards=True,
        )
    )


LOSSES = ("policy_loss", "value_loss", "entropy", "grad_norm")
EXACT = ("episodes", "episode_return", "episode_length", "env_steps")


def assert_metrics_agree(pair, names, tolerance):
    for name in names:
        single, spread = (np.asarray(result.metrics[name][:FIRST]) for result in pair)
        near = {"rtol": tolerance, "atol": tolerance}
        np.testing.assert_allclose(spread, single, **near, err_msg=name)


def assert_devices_share(tree):
    for leaf in jax.tree.leaves(tree):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        np.testing.assert_array_equal(copies[0], copies[1])


def test_equals_the_single_device_run_and_counts_all_episodes(pair):
    assert_metrics_agree(pair, (*LOSSES, "explained_variance"), 1e-4)
    assert_metrics_agree(pair, EXACT, 1e-6)


def test_devices_share_one_agent_of_the_state_of_a_single_device(pair):
    spread = pair[1]
    assert_devices_share(spread.state.params)
    counts = [
        (r.state.obs_moments.count, r.state.reward_scale.moments.count) for r in pair
    ]
    assert counts[0] == counts[1]
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), r.state) for r in pair]
    assert shapes[0] == shapes[1]
    first = spread.state.envs.obs.addressable_shards
    assert [shard.data.shape[0] for shard in first] == [2, 2]


SEQUENCES = {"num_envs": 4, "num_steps": 12, "sequence_length": 4, "num_minibatches": 4}


@pytest.mark.parametrize(
    ("config", "fragment"),
    [
        (tiny_config(num_envs=1), "num_envs must be divisible by the 2 devices, got 1"),
        (tiny_config(num_envs=3), "num_envs must be divisible by the 2 devices, got 3"),
        (purerl.RecurrentPPOConfig(**SEQUENCES), r"\(6\) .* by num_minibatches, got 4"),
    ],
)
def test_sizes_that_do_not_split_are_refused(config, fragment):
    with pytest.raises(ConfigError, match=fragment):
        purerl.data_parallel(config)


@pytest.mark.slow
def test_devices_share_the_noise_of_a_learned_optimiser():
    made = purerl.optimisers.LearnedOptimiser.make(4, noise=True)
    (first, last) = made.params
    weights = (first, tuple(x + 0.3 for x in last))  # also for the noise
    config = tiny_config(
        num_envs=4,
        num_minibatches=1,
        total_timesteps=4 * 16 * 20,
        num_evaluations=0,
        optimiser=made.replace(params=weights),
    )
    pair = compare(config)
    assert_metrics_agree(pair, LOSSES, 1e-3)
    assert_devices_share((pair[1].state.params, pair[1].state.opt_state))
