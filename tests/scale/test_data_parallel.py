"""An agent on two devices is one agent, whose replay is saved and resumed as one's."""

import chex
import jax
import numpy as np
import pytest

import purerl
from purerl import ConfigError
from purerl.replay import prioritised
from tests.contracts.test_algorithms import RECURRENT_DQN, small
from tests.helpers import plain, tiny_config

CONFIG = tiny_config(num_envs=4, num_minibatches=1, num_evaluations=0)
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
    normalised = {"normalize_observations": True, "normalize_rewards": True}
    steps = {"total_timesteps": 4 * 16 * FIRST}
    return compare(CONFIG.replace(env=request.param, **steps, **normalised))


LOSSES = ("policy_loss", "value_loss", "entropy", "grad_norm")
EXACT = ("episodes", "episode_return", "episode_length", "env_steps")


def assert_metrics_agree(pair, names, tolerance):
    for name in names:
        single, spread = (np.asarray(result.metrics[name][:FIRST]) for result in pair)
        near = {"rtol": tolerance, "atol": tolerance}
        np.testing.assert_allclose(spread, single, **near, err_msg=name)


def assert_devices_agree(tree):
    """What several devices hold of an array's part is the same on all of them."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        seen = {}
        for shard in leaf.addressable_shards:
            value = np.asarray(shard.data)
            first = seen.setdefault(str(shard.index), value)
            message = jax.tree_util.keystr(path)
            np.testing.assert_array_equal(value, first, err_msg=message)


def test_equals_the_single_device_run_and_counts_all_episodes(pair):
    assert_metrics_agree(pair, (*LOSSES, "explained_variance"), 1e-4)
    assert_metrics_agree(pair, EXACT, 1e-6)


def test_devices_share_one_agent_of_the_state_of_a_single_device(pair):
    spread = pair[1]
    assert_devices_agree(spread.state.params)
    counts = [
        (r.state.obs_moments.count, r.state.reward_scale.moments.count) for r in pair
    ]
    assert counts[0] == counts[1]
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), r.state) for r in pair]
    assert shapes[0] == shapes[1]
    first = spread.state.envs.obs.addressable_shards
    assert [shard.data.shape[0] for shard in first] == [2, 2]


SEQUENCES = {"num_envs": 4, "num_steps": 12, "sequence_length": 4, "num_minibatches": 4}


REFUSED = [
    (tiny_config(num_envs=1), "num_envs must be divisible by the 2 devices, got 1"),
    (tiny_config(num_envs=3), "num_envs must be divisible by the 2 devices, got 3"),
    (purerl.RecurrentPPOConfig(**SEQUENCES), r"\(6\) .* by num_minibatches, got 4"),
]


@pytest.mark.parametrize(("config", "fragment"), REFUSED)
def test_sizes_that_do_not_split_are_refused(config, fragment):
    with pytest.raises(ConfigError, match=fragment):
        purerl.data_parallel(config)


@pytest.mark.slow
def test_devices_share_the_noise_of_a_learned_optimiser():
    made = purerl.optimisers.LearnedOptimiser.make(4, noise=True)
    (first, last) = made.params
    weights = (first, tuple(x + 0.3 for x in last))  # also for the noise
    optimiser = made.replace(params=weights)
    pair = compare(CONFIG.replace(total_timesteps=4 * 16 * 20, optimiser=optimiser))
    assert_metrics_agree(pair, LOSSES, 1e-3)
    assert_devices_agree((pair[1].state.params, pair[1].state.opt_state))


# Replay

SMALL = {
    "num_envs": 4,
    "total_timesteps": 3 * 32,
    "rounds_per_update": 8,
    "learning_starts": 33,
    "buffer_size": 75,  # no multiple of the environments: 18 rows of four
    "batch_size": 8,
    "hidden_sizes": (4,),
    "num_evaluations": 0,
}
# A round holds two steps of every environment. A tree over 72 items has three levels,
# and one over each device's 36 has two.
PRIORITISED = purerl.DQNConfig(**SMALL).replace(
    num_steps=2,
    n_step=2,
    total_timesteps=320,
    rounds_per_update=20,
    learning_starts=41,
    buffer_size=72,
    prioritised=True,
)


@pytest.fixture(scope="module")
def weighed():
    train = purerl.data_parallel(PRIORITISED)
    return jax.jit(train)(jax.random.key(3)).state


@pytest.mark.slow
def test_devices_agree_on_what_they_share(weighed):
    assert_devices_agree(weighed)
    p, largest = (np.asarray(x) for x in weighed.priorities)
    assert p.shape == (18, 4)
    # 80 steps of every environment lie in 18 rows; the newest has no step after it.
    newest = (80 - 1) % 18
    assert (p[newest] == 0).all() and (np.delete(p, newest, 0) > 0).all()
    # Both devices have learned, and the largest is that of both.
    assert all(len(np.unique(p[:, half])) > 9 for half in (slice(2), slice(2, 4)))
    assert largest >= p.max() and largest >= 1


@pytest.mark.slow
def test_the_tree_that_one_device_grows_holds_the_items_of_both(weighed):
    tree = prioritised.grow(np.asarray(weighed.priorities.p).reshape(-1), 1.0)
    assert [level.shape for level in tree.levels] == [(9, 8), (2, 8), (1, 8)]
    total = np.asarray(weighed.priorities.p, np.float64).sum()
    np.testing.assert_allclose(tree.levels[-1].sum(), total, rtol=1e-6)
    step = jax.jit(purerl.make_algorithm(PRIORITISED).step)
    state, metrics = step(jax.device_put(weighed, jax.local_devices()[0]))
    assert np.isfinite(metrics["value_loss"])
    # 40 more steps: other rows are the newest, and nothing but them has no priority.
    empty = np.flatnonzero((np.asarray(state.priorities.p) == 0).any(1))
    np.testing.assert_array_equal(empty, [(120 - 1) % 18])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "td3", "sac", "sac/discrete", "mpo"])
def test_an_agent_with_replay_is_one_agent_on_two_devices(name):
    one, two = compare(small(name, **SMALL))
    # The warm-up is the same, environment by environment; batches then differ.
    np.testing.assert_array_equal(
        one.metrics["episodes"][0], two.metrics["episodes"][0]
    )
    counts = (result.metrics["gradient_steps"] for result in (one, two))
    np.testing.assert_array_equal(*counts)
    actions = [np.asarray(result.state.buffer.action) for result in (one, two)]
    assert actions[0].shape[:2] == actions[1].shape[:2] == (18, 4)
    # Of 24 steps of every environment the last six replaced the first six; the two
    # after these are the last that are random everywhere.
    np.testing.assert_array_equal(actions[0][6:8], actions[1][6:8])
    assert np.isfinite(two.metrics["value_loss"][-1])
    assert_devices_agree((two.state, two.metrics))


@pytest.mark.slow
def test_sequences_and_their_memories_lie_where_they_lie_on_one_device():
    # Every action is random, and the network learns in the last update alone.
    config = purerl.RecurrentDQNConfig(**RECURRENT_DQN).replace(
        num_envs=4,
        sequence_length=8,
        burn_in=4,
        buffer_size=3 * 32,  # of five rounds, so that two are overwritten
        total_timesteps=5 * 32,
        learning_starts=5 * 32,
        batch_size=6,
        epsilon_end=1.0,
        prioritised=True,
        num_evaluations=0,
    )
    one, two = compare(config)
    assert int(two.metrics["gradient_steps"][-1]) == 2
    assert one.state.buffer.steps.reward.shape == (3, 4, 8)
    parts = ((x.state.buffer, x.state.envs, x.state.memory) for x in (one, two))
    chex.assert_trees_all_close(*(plain(part) for part in parts), rtol=1e-5, atol=1e-6)
    assert_devices_agree(two.state)
    # Each device has drawn three sequences twice, and given them priorities.
    p = np.asarray(two.state.priorities.p)
    changed = (p > 0) & (p != 1)
    assert changed[:, :2].any() and changed[:, 2:].any()
