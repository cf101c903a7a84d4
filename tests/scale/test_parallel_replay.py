"""Replay of an agent on two devices: handed back, saved and resumed as one agent's."""

import jax
import numpy as np
import pytest

import purerl
from purerl.replay import prioritised
from tests.helpers import CONTINUOUS_CARTPOLE

NUM_ENVS, CAPACITY, STEPS = 4, 400, 480
# All 480 steps but the last are random, so both agents see the same, and the ring of
# 400 items has been overwritten; a round holds two steps of every environment.
WARM_UP = purerl.DQNConfig(
    num_envs=NUM_ENVS,
    num_steps=2,
    n_step=2,
    buffer_size=CAPACITY,
    total_timesteps=STEPS,
    rounds_per_update=20,
    learning_starts=STEPS - 1,
    batch_size=8,
    hidden_sizes=(4,),
    num_evaluations=0,
)
# A tree over 72 items has three levels, and one over each device's 36 has two.
PRIORITISED = WARM_UP.replace(
    prioritised=True, buffer_size=72, total_timesteps=320, learning_starts=41
)


def on_one_device(tree):
    return jax.device_put(tree, jax.local_devices()[0])


def train_on_both(config):
    key = jax.random.key(3)
    one = jax.jit(purerl.make_train(config))(key)
    return one, jax.jit(purerl.data_parallel(config))(key)


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


@pytest.fixture(scope="module")
def weighed():
    train = purerl.data_parallel(PRIORITISED)
    return jax.jit(train)(jax.random.key(3)).state


@pytest.mark.slow
def test_devices_agree_on_what_they_share(weighed):
    assert_devices_agree(weighed)
    p, largest = (np.asarray(x) for x in weighed.priorities)
    assert p.shape == (18, NUM_ENVS)
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
    state, metrics = step(on_one_device(weighed))
    assert np.isfinite(metrics["value_loss"])
    # 40 more steps: other rows are the newest, and nothing but them has no priority.
    empty = np.flatnonzero((np.asarray(state.priorities.p) == 0).any(1))
    np.testing.assert_array_equal(empty, [(120 - 1) % 18])


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
CONFIGS = {
    "dqn": purerl.DQNConfig(**SMALL),
    "td3": purerl.TD3Config(env=CONTINUOUS_CARTPOLE, **SMALL),
    "sac": purerl.SACConfig(env=CONTINUOUS_CARTPOLE, **SMALL),
    "sac-discrete": purerl.SACConfig(env="CartPole-v1", **SMALL),
    "mpo": purerl.MPOConfig(
        env=CONTINUOUS_CARTPOLE, action_samples=3, bootstrap_samples=2, **SMALL
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) for n in CONFIGS]
)
def test_an_agent_with_replay_is_one_agent_on_two_devices(name):
    one, two = train_on_both(CONFIGS[name])
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
    config = purerl.RecurrentDQNConfig(
        num_envs=4,
        sequence_length=8,
        burn_in=4,
        buffer_size=3 * 32,  # of five rounds, so that two are overwritten
        total_timesteps=5 * 32,
        learning_starts=5 * 32,
        batch_size=6,
        gradient_steps=2,
        epsilon_end=1.0,
        prioritised=True,
        hidden_sizes=(4,),
        memory_size=4,
        num_evaluations=0,
    )
    one, two = train_on_both(config)
    assert int(two.metrics["gradient_steps"][-1]) == 2
    assert one.state.buffer.steps.reward.shape == (3, 4, 8)
    for part in ("buffer", "envs", "memory"):
        for a, b in zip(
            *(jax.tree.leaves(getattr(x.state, part)) for x in (one, two)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert_devices_agree(two.state)
    # Each device has drawn three sequences twice, and given them priorities.
    p = np.asarray(two.state.priorities.p)
    changed = (p > 0) & (p != 1)
    assert changed[:, :2].any() and changed[:, 2:].any()
