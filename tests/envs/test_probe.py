"""Probes pay what they promise; the chain's values follow from its own episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.envs import probe
from purerl.envs.probe import ChainMDP
from tests.envs.episodes import played

KEY = jax.random.key(0)
KEYS = jax.random.split(jax.random.key(1), 64)


def _one_step(env, action):
    """First observation, reward, terminated of 64 one-step episodes."""

    def play(key):
        obs, state = env.reset(key)
        _, _, reward, terminated, truncated, _ = env.step(key, state, action)
        return obs[0], reward, terminated, truncated

    obs, reward, terminated, truncated = jax.vmap(play)(KEYS)
    assert terminated.all() and not truncated.any()
    return np.asarray(obs), np.asarray(reward)


def test_delayed_reward():
    env = probe.DelayedRewardProbe()
    obs, state = env.reset(KEY)
    assert obs[0] == 0
    for expected in ((1, 0, False, False), (0, 1, True, False)):
        obs, state, *outcome, _ = env.step(KEY, state, jnp.int32(0))
        assert (obs[0], *outcome) == expected


ONE_STEP = [
    # Probe, action, reward where the observation is positive, and where it is not.
    (probe.ConstantRewardProbe, 0, 1.0, 1.0),
    (probe.ConstantRewardProbe, 1, 1.0, 1.0),
    (probe.ObservationRewardProbe, 0, 1.0, -1.0),
    (probe.ObservationRewardProbe, 1, 1.0, -1.0),
    (probe.ActionRewardProbe, 0, -1.0, -1.0),
    (probe.ActionRewardProbe, 1, 1.0, 1.0),
    (probe.ActionObservationProbe, 0, -1.0, 1.0),
    (probe.ActionObservationProbe, 1, 1.0, -1.0),
    (probe.ContinuousProbe, [2.5], 0.0, -4.0),
    (probe.ContinuousProbe, [0.5], -4.0, 0.0),
    (probe.ContinuousProbe, [1.5], -1.0, -1.0),
    (probe.ContinuousProbe, [9.0], -0.25, -6.25),  # Clipped to 3.
    (probe.ContinuousProbe, [-9.0], -12.25, -2.25),  # Clipped to -1.
]


@pytest.mark.parametrize(("cls", "action", "if_plus", "if_minus"), ONE_STEP)
def test_rewards_of_one_step_by_hand(cls, action, if_plus, if_minus):
    obs, reward = _one_step(cls(), jnp.asarray(action))
    np.testing.assert_allclose(reward, np.where(obs > 0, if_plus, if_minus))
    assert set(obs) == ({-1.0, 1.0} if cls.shows_sign else {0.0})


@pytest.mark.parametrize(
    "id", [id for id in envs.registered() if id.startswith("probe/")]
)
def test_reward_is_a_leaf(id):
    """Doubling `params.reward` doubles every reward of an episode."""
    env = envs.make(id)

    def paid(scale):
        params = env.default_params.replace(reward=scale)
        return played(env, params, KEY, len(KEYS))[1].reward

    rewards = jax.jit(jax.vmap(paid))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(2 * rewards[0], rewards[1])
    assert (rewards[0] != 0).any()


def test_chain_flags_and_observations():
    env = ChainMDP(5)
    episodes = []  # the places, and the last reward and flags
    for start in range(5):
        state = env.reset(KEY)[1].replace(position=jnp.int32(start))
        places, flags = [], [False, False]
        while not any(flags):
            places.append(int(state.position))
            action = jnp.int32(len(places) % 2)
            _, state, reward, *flags, _ = env.step(KEY, state, action)
        episodes.append((places, float(reward), *map(bool, flags)))
    assert episodes == [
        ([0, 1, 2], 0, False, True),
        ([1, 2, 3], 0, False, True),
        ([2, 3, 4], 1, True, False),  # It leaves the chain in the step of the limit.
        ([3, 4], 1, True, False),
        ([4], 1, True, False),
    ]
    starts = jax.vmap(lambda key: env.reset(key)[0])(KEYS)
    assert (starts.sum(axis=1) == 1).all() and (starts.sum(axis=0) > 0).all()
