"""Options of PPO: early ends, step sizes, whole batches, deviations by state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.algorithms import on_policy, ppo
from purerl.learning import minibatches, optimiser
from purerl.optimisers import SGD
from tests.algorithms.agents import agent_of, compiled
from tests.helpers import assert_same_bits, tiny_config

PPO = tiny_config(total_timesteps=96, num_evaluations=0, anneal_learning_rate=False)


def updated(config):
    """An agent before and after its first update, and the metrics of it."""
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    after, metrics = jax.jit(algorithm.step)(state)
    return state, after, metrics


def distance(one, two):
    flat = [optimiser.flatten(state.params)[0] for state in (one, two)]
    return float(np.abs(flat[0] - flat[1]).max())


def test_passes_end_after_the_first_that_goes_too_far():
    config = PPO.replace(num_epochs=3, learning_rate=0.01)
    start, free, all_of_them = updated(config)
    _, held, metrics = updated(config.replace(target_kl=1e-9))
    assert metrics["passes"] == 1 and "passes" not in all_of_them
    assert metrics["approx_kl"] < all_of_them["approx_kl"]
    assert metrics["approx_kl_last"] == pytest.approx(float(metrics["approx_kl"]))
    assert distance(start, free) > 1.5 * distance(start, held) > 0


def descend(limit, num_epochs=6):
    """Gradient descent on `w^2 / 2` at step 0.5, which halves w in every pass."""
    optim = optimiser.make(SGD(), 0.5)
    params = {"w": jnp.float32(1.0)}
    return minibatches.minimise(
        lambda p, batch: (p["w"] ** 2 / 2, {"approx_kl": p["w"], "x": 1.0 / batch[0]}),
        params,
        optim.init(optimiser.flatten(params)[0]),
        jnp.ones(2),
        jax.random.key(0),
        minibatches.Passes(
            optim, num_epochs, 1, is_last=lambda last: last["approx_kl"] < limit
        ),
    )


@pytest.mark.parametrize(("limit", "passes"), [(2.0, 1), (0.3, 3), (-1.0, 6)])
def test_what_happens_after_the_end_changes_and_counts_nothing(limit, passes):
    params, _, metrics = descend(limit)
    assert params["w"] == 0.5**passes  # exact in binary
    seen = 0.5 ** np.arange(passes)  # w before each step
    means = minibatches.pass_means(metrics)
    assert means["passes"] == passes
    assert means["approx_kl"] == pytest.approx(seen.mean())
    assert means["approx_kl_last"] == pytest.approx(seen[-1])


def test_both_step_sizes_decay():
    config = PPO.replace(critic_learning_rate=1e-3, anneal_learning_rate=True)
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    late = state._replace(update=jnp.int32(3))  # after the last of three updates
    after, _ = jax.jit(algorithm.step)(late)
    assert_same_bits(after.params, late.params)


def test_advantages_may_be_standardised_over_the_whole_batch():
    config = PPO.replace(normalize_whole_batch=True)

    def advantages(key):
        state = purerl.make_algorithm(PPO).init(key)
        played = on_policy.collect(agent_of(PPO), state, key)
        return [
            ppo.targets(agent_of(each), state, played)[0].advantage
            for each in (config, PPO)
        ]

    found, given = compiled(advantages, jax.random.key(0))
    np.testing.assert_allclose(found.mean(), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.std(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found, (given - given.mean()) / given.std(), rtol=1e-3)


@pytest.mark.slow(optimised=False)
def test_a_std_may_depend_on_the_state():
    config = PPO.replace(
        env="probe/continuous", state_dependent_std=True, log_std_init=-0.5
    )
    parts = agent_of(config)
    algorithm = purerl.make_algorithm(config)
    params = algorithm.init(jax.random.key(0)).params["actor"]
    far = jax.tree.map(lambda x: 10.0 * x, params)  # its last layer starts small
    obs = jnp.asarray([[0.1], [2.0]])
    first, second = np.asarray(parts.actor.apply(far, obs).log_std)
    assert abs(first - second) > 1e-3
    near = parts.actor.apply(params, obs).log_std
    np.testing.assert_allclose(near, -0.5, atol=0.05)
    _, after, metrics = updated(config)
    assert np.isfinite(metrics["policy_loss"])
    moved = after.params["actor"]["params"]["Dense_1"]["bias"]
    assert np.abs(moved).max() > 0
