import jax
import numpy as np
import pytest

import purerl
from purerl import ConfigError
from tests.helpers import tiny_config

FIRST = 5  # updates over which rounding stays small
TOLERANCE = 1e-4


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
            total_timesteps=4 * 16 * 20,
            normalize_observations=True,
            normalize_rewards=True,
        )
    )


@pytest.mark.parametrize(
    "name",
    ["policy_loss", "value_loss", "entropy", "grad_norm", "explained_variance"],
)
def test_equals_the_single_device_run(pair, name):
    single, spread = (np.asarray(r.metrics[name][:FIRST]) for r in pair)
    np.testing.assert_allclose(spread, single, rtol=TOLERANCE, atol=TOLERANCE)


def test_episodes_of_all_devices_are_counted(pair):
    single, spread = pair
    for name in ("episodes", "episode_return", "env_steps"):
        np.testing.assert_allclose(
            spread.metrics[name][:FIRST], single.metrics[name][:FIRST], rtol=1e-6
        )


def test_the_state_is_that_of_a_single_device_agent(pair):
    _single, spread = pair
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), r.state) for r in pair]
    assert shapes[0] == shapes[1]
    first = spread.state.envs.obs.addressable_shards
    assert [shard.data.shape[0] for shard in first] == [2, 2]


def test_devices_share_one_agent(pair):
    _, spread = pair
    for leaf in jax.tree.leaves(spread.state.params):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        np.testing.assert_array_equal(copies[0], copies[1])


@pytest.mark.parametrize(
    ("config", "fragment"),
    [
        (
            tiny_config(num_envs=3),
            "num_envs must be divisible by the 2 devices, got 3.",
        ),
        (
            tiny_config(num_envs=1),
            r"num_envs must be divisible by the 2 devices, got 1",
        ),
        (
            purerl.RecurrentPPOConfig(
                num_envs=4, num_steps=12, sequence_length=4, num_minibatches=4
            ),
            r"samples of a device \(6\) must be divisible by num_minibatches, got 4",
        ),
    ],
    ids=["environments", "one environment", "sequences"],
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
    single, spread = compare(config)
    for name in ("policy_loss", "value_loss", "entropy", "grad_norm"):
        one, other = (np.asarray(r.metrics[name][:FIRST]) for r in (single, spread))
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)
    for leaf in jax.tree.leaves((spread.state.params, spread.state.opt_state)):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        np.testing.assert_array_equal(copies[0], copies[1])
