"""Advantages and running returns, against arithmetic by hand and plain loops."""

import jax.numpy as jnp
import numpy as np
import pytest

from purerl.contrib.disco.algorithm import retrace
from purerl.learning.returns import (
    gae,
    n_step,
    q_lambda,
    rewards_to_go,
    running_returns,
)


def column(*values, dtype=jnp.float32):
    return jnp.asarray(values, dtype)[:, None]


def random_rollout(seed, steps=37, envs=5):
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, p=[0.7, 0.15, 0.15], size=(steps, envs))
    reward, value, next_value = rng.normal(size=(3, steps, envs)).astype(np.float32)
    return reward, value, next_value, kind == 1, kind == 2


def backwards(shape, step):
    """A plain loop from the last step to the first; `step` knows what followed."""
    found = np.zeros(shape)
    for b in range(shape[1]):
        following = 0.0
        for t in reversed(range(shape[0])):
            following = found[t, b] = step(t, b, following)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gae_lambda", [0.0, 0.6, 1.0])
def test_gae_equals_a_plain_loop_over_random_flags(seed, gae_lambda):
    reward, value, next_value, terminated, truncated = random_rollout(seed)
    gamma = 0.9

    def step(t, b, following):
        bootstrap = 0.0 if terminated[t, b] else float(next_value[t, b])
        delta = float(reward[t, b]) + gamma * bootstrap - float(value[t, b])
        ends = terminated[t, b] or truncated[t, b]
        return delta + (0.0 if ends else gamma * gae_lambda * following)

    arrays = map(jnp.asarray, (reward, value, next_value, terminated, truncated))
    actual = gae(*arrays, gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(actual, backwards(reward.shape, step), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trace_decay", [0.0, 0.6, 1.0])
def test_q_lambda_equals_a_plain_loop_over_random_flags(seed, trace_decay):
    reward, _, next_value, terminated, truncated = random_rollout(seed)
    gamma = 0.9

    def step(t, b, following):
        own = float(next_value[t, b])
        if terminated[t, b]:
            own = following = 0.0
        elif truncated[t, b] or t == len(reward) - 1:
            following = own
        beyond = (1 - trace_decay) * own + trace_decay * following
        return float(reward[t, b]) + gamma * beyond

    arrays = map(jnp.asarray, (reward, next_value, terminated, truncated))
    actual = q_lambda(*arrays, gamma=gamma, trace_decay=trace_decay)
    np.testing.assert_allclose(actual, backwards(reward.shape, step), atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_retrace_equals_its_sum_of_corrections(seed):
    # Forwards, as Munos et al. (2016) define it: Q plus discounted TD errors, each
    # weighed by the product of the traces up to it.
    reward, value, next_value, terminated, truncated = random_rollout(seed)
    ratio = np.random.RandomState(seed).gamma(1.0, size=reward.shape)
    gamma, decay = 0.9, 0.8
    steps, envs = reward.shape
    delta = reward + gamma * np.where(terminated, 0.0, next_value) - value
    expected = np.zeros((steps, envs))
    for b in range(envs):
        for t in range(steps):
            expected[t, b], weight = value[t, b], 1.0
            for k in range(t, steps):
                # The value that follows is that of the policy; the next action's is
                # part of the next error, whose baseline is Q of the action.
                expected[t, b] += weight * delta[k, b]
                if terminated[k, b] or truncated[k, b] or k == steps - 1:
                    break
                weight *= gamma * decay * min(1.0, ratio[k + 1, b])
    arrays = reward, value, next_value, ratio, terminated, truncated
    actual = retrace(*map(jnp.asarray, arrays), gamma=gamma, trace_decay=decay)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_path_that_terminates_with_the_rollout_is_not_completed():
    to_go = rewards_to_go(
        reward=jnp.ones((1, 2)),
        next_value=jnp.full((1, 2), 10.0),
        terminated=jnp.array([[True, False]]),
        truncated=jnp.zeros((1, 2), bool),
        gamma=0.5,
    )
    np.testing.assert_array_equal(to_go, [[1.0, 6.0]])


@pytest.mark.parametrize("n", [1, 2, 5, 100, 101, 102])
def test_n_step_targets_equal_a_plain_loop_over_random_flags(n):
    reward, _, next_value, terminated, truncated = random_rollout(n)
    steps, envs = reward.shape
    expected = np.zeros((steps, envs))
    for b in range(envs):
        for t in range(steps):
            for m in range(n):
                expected[t, b] += 0.9**m * reward[t + m, b]
                ends = terminated[t + m, b] or truncated[t + m, b]
                if ends or m == n - 1 or t + m == steps - 1:
                    bootstrap = next_value[t + m, b] * (not terminated[t + m, b])
                    expected[t, b] += 0.9 ** (m + 1) * bootstrap
                    break
    arrays = [*map(jnp.asarray, (reward, next_value, terminated, truncated))]
    found = n_step(*arrays, gamma=0.9, n=n)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if n > steps:  # All rewards of a path.
        found = rewards_to_go(*arrays, gamma=0.9)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_reward_normaliser_does_not_leak_across_episodes():
    # gamma = 1/2, 4 carried in from the rollout before, an episode ends with step 1.
    #   R_0 = 4/2 + 1 = 3
    #   R_1 = 3/2 + 2 = 3.5    the last reward still belongs to its episode
    #   R_2 = 0/2 + 3 = 3      and nothing of it to the next one
    #   R_3 = 3/2 + 4 = 5.5
    # The known bug, `R * gamma * (1 - done) + r`, gives R_1 = 2 and R_2 = 4.
    # An episode that ends with the rollout carries nothing on.
    done = jnp.array([[0, 0], [1, 0], [0, 0], [0, 1]], bool)
    reward = jnp.broadcast_to(column(1, 2, 3, 4), (4, 2))
    carry, returns = running_returns(jnp.full(2, 4.0), reward, done, gamma=0.5)
    np.testing.assert_array_equal(returns[:, 0], [3.0, 3.5, 3.0, 5.5])
    np.testing.assert_array_equal(carry, [5.5, 0.0])


def test_arrays_without_environments_are_refused():
    values, flags, one = (jnp.zeros(3),) * 2, (jnp.zeros(3, bool),) * 2, {"gamma": 1.0}
    for refused in (
        lambda: gae(values[0], *values, *flags, **one, gae_lambda=1.0),
        lambda: q_lambda(*values, *flags, **one, trace_decay=1.0),
        lambda: rewards_to_go(*values, *flags, **one),
    ):
        with pytest.raises(AssertionError):
            refused()
