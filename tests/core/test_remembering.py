"""Rollouts and evaluations with a memory, by memories that are easy to predict."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from purerl.acting import rollout
from purerl.acting.evaluate import evaluate
from purerl.acting.policy import RecurrentPolicy, recurrence_of
from purerl.acting.rollout import Stepper
from purerl.envs.probe import MemoryProbe
from purerl.types import Algorithm, Recurrence

STEPS, ENVS, LIMIT = 23, 4, 5


def count_and_act(obs, memory, noise):
    """A memory that counts the episode's observations; any action."""
    coin = jax.vmap(lambda k: jax.random.bernoulli(k).astype(jnp.int32))(noise)
    return (coin, 0.5 * obs[:, 0], coin), {"seen": memory["seen"] + 1.0}


@pytest.fixture(scope="module")
def rolled():
    """Two rollouts of 23 steps in CartPole with a time limit of 5."""
    env = envs.make("CartPole-v1")
    params = env.default_params.replace(
        max_steps_in_episode=LIMIT, theta_threshold_radians=0.06
    )
    stepper = Stepper(env, params, "fresh", 1, None)
    policy = rollout.Player(count_and_act, lambda obs: obs, jax.random.split)

    @jax.jit
    def program(key):
        key_init, *keys = jax.random.split(key, 3)
        carry = rollout.init_envs(stepper, key_init, ENVS)
        memory = {"seen": jnp.zeros((ENVS, 1))}
        parts = []
        for key_roll in keys:
            played = rollout.collect(stepper, carry, memory, policy, key_roll, STEPS)
            carry, memory = played.envs, played.memory
            parts.append(played)
        return parts

    return program(jax.random.key(0))


def test_the_memory_holds_this_episode_only_over_rollouts_too(rolled):
    seen = np.zeros(ENVS)
    ends_both_ways = np.zeros(2, bool)
    for carry, memory, batch, memories, episodes in rolled:
        done = np.asarray(batch.terminated | batch.truncated)
        ends_both_ways |= [batch.terminated.any(), batch.truncated.any()]
        for t in range(STEPS):
            seen += 1
            # On the last observation of an episode the memory is still its own.
            np.testing.assert_array_equal(memories["seen"][t, :, 0], seen)
            ended = done[t]
            np.testing.assert_array_equal(episodes.lengths[t][ended], seen[ended])
            seen[ended] = 0
        np.testing.assert_array_equal(memory["seen"][:, 0], seen)
        np.testing.assert_array_equal(carry.episode_length, seen)
    assert ends_both_ways.all()


def cue(obs, memory):
    """The best policy of the memory probe: keep what was not 0."""
    memory = jnp.where(obs[..., 0] != 0, obs[..., 0], memory)
    return (memory > 0).astype(jnp.int32), memory


def play(act, memory, episodes=64):
    env = MemoryProbe()
    return evaluate(
        env,
        env.default_params,
        act,
        jax.random.key(0),
        memory=memory,
        num_episodes=episodes,
        max_steps=10,
    )


def test_an_evaluation_carries_the_memory_through_the_episode():
    result = play(cue, jnp.zeros(64))
    np.testing.assert_array_equal(result.episode_return, np.ones(64))
    np.testing.assert_array_equal(result.episode_length, np.full(64, 4))


def remembering():
    """An algorithm that adds up what it saw; its state is a factor."""

    def act(state, obs, memory, key=None):
        del key
        memory = memory + obs[..., 0]
        return (state * memory > 0).astype(jnp.int32), memory

    def refuse(*args):
        raise AssertionError("acted without its memory")

    recurrence = Recurrence(lambda shape: jnp.zeros(shape), act)
    return Algorithm(lambda key: key, lambda state: (state, {}), refuse, recurrence)


def test_a_policy_with_a_memory_goes_its_way_step_by_step():
    algorithm = remembering()
    assert recurrence_of(algorithm) is algorithm.recurrence
    policy = RecurrentPolicy(algorithm.recurrence, 2.0, partial(remembering))
    memory = policy.init()
    observations, expected = [1.0, -3.0, 1.0, 2.0], [1, 0, 0, 1]  # sums 1 -2 -1 1
    for obs, action in zip(observations, expected, strict=True):
        acted, memory = policy(np.array([obs]), memory)
        assert acted == action
    assert policy.restart(memory, True) == 0
    assert policy.restart(memory, False) == memory == 1

    batch = policy.init((3,))
    _, batch = policy(np.array([[1.0], [2.0], [3.0]]), batch)
    kept = policy.restart(batch, np.array([False, True, False]))
    np.testing.assert_array_equal(kept, [1.0, 0.0, 3.0])
