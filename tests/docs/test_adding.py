"""The pages on own parts, followed literally: they run, and what they claim holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import envs
from tests.docs import pages

DOCS = pages.ROOT / "docs"
ENVIRONMENT, LOSS, PARTS, ALGORITHM = (
    DOCS / f"adding-{name}.md" for name in ("environment", "loss", "parts", "algorithm")
)
pytestmark = pytest.mark.slow


# An environment


@pytest.fixture(scope="module")
def environment():
    return pages.run(ENVIRONMENT)


def test_the_environment_keeps_the_contract_under_its_name(environment):
    assert "Tightrope-v0" in envs.registered()
    assert envs.source_of("Tightrope-v0") == "registered"
    params = environment["TightropeParams"](wind=0.3, edge=0.2)
    envs.check(envs.make("Tightrope-v0"), params, jax.random.key(3))
    assert hash(environment["Tightrope"]()) == hash(environment["Tightrope"]())


def test_ppo_learns_to_stay_on_the_rope(environment):
    length = environment["result"].metrics["episode_length"]
    assert jnp.nanmean(length[:2]) < 35
    assert jnp.nanmean(length[-3:]) > 40
    np.testing.assert_array_equal(
        environment["result"].evaluation["episode_return"], 50.0
    )


def test_every_wind_is_a_lane_and_a_gale_is_worse_than_a_calm(environment):
    gusty = environment["gusty"]
    returns = gusty.evaluation["episode_return"].mean((1, 2))
    np.testing.assert_array_equal(returns[:2], 50.0)
    assert returns[2] < 40


# A loss


@pytest.fixture(scope="module")
def a_loss():
    return pages.run(LOSS)


def test_the_drift_holds_the_policy_back(a_loss):
    free, held, tight = a_loss["tighter"].metrics["approx_kl_last"].mean(1)
    assert free > 5 * held > 10 * tight > 0


def test_the_term_keeps_neighbouring_policies_near(a_loss):
    distance = a_loss["nearer"].metrics["near_policies"].mean(1)
    assert np.all(np.diff(distance) < 0)


# A part of an agent


@pytest.fixture(scope="module")
def parts():
    return pages.run(PARTS)


def test_every_part_is_in_the_agents_and_its_numbers_are_lanes(parts):
    metrics, state = parts["agents"].metrics, parts["agents"].state
    assert metrics["env_steps"].shape == (3, 4)
    for name in ("policy_loss", "value_loss", "entropy"):
        assert np.isfinite(metrics[name]).all()
    # A pole of the third agent has the length of its range, which is one number.
    lengths = np.asarray(state.envs.state.drawn["length"])
    assert len(np.unique(lengths[0])) > 1
    assert (lengths[:2] >= 0.3).all() and (lengths[:2] <= 0.9).all()
    np.testing.assert_array_equal(lengths[2], np.float32(0.3))
    # The first two differ in the optimiser alone, and begin alike.
    assert metrics["entropy"][0, -1] != metrics["entropy"][1, -1]
    widths = [x.shape[1:] for x in jax.tree.leaves(state.params)]
    assert (4 + 16, 16) in widths  # numbers and products of pairs


def test_the_numbers_of_the_parts_are_those_of_their_definitions(parts):
    tooth = parts["Sawtooth"](0.8, teeth=2)
    numbers = [float(tooth(jnp.float32(share))) for share in (0, 0.25, 0.5, 0.75)]
    np.testing.assert_allclose(numbers, [0.8, 0.4, 0.8, 0.4])
    draws = jax.vmap(parts["Triangular"](1.0, 3.0))(
        jax.random.split(jax.random.key(0), 4_000)
    )
    assert draws.min() >= 1.0 and draws.max() <= 3.0
    # The variance of the mean of two uniform numbers is a 24th of the squared range.
    np.testing.assert_allclose(draws.mean(), 2.0, atol=0.03)
    np.testing.assert_allclose(draws.var(), 4.0 / 24.0, atol=0.01)


# An algorithm


@pytest.fixture(scope="module")
def algorithm():
    return pages.run(ALGORITHM)


def test_the_policy_takes_the_action_that_the_observation_asks_for(algorithm):
    policy = algorithm["policy"]
    np.testing.assert_array_equal(policy(jnp.array([[-1.0], [1.0]])), [0, 1])
    one = algorithm["one"]
    np.testing.assert_array_equal(one.evaluation["episode_return"], np.ones((1, 8)))
    assert one.metrics["episode_return"][-1] > 0.9


def test_the_critic_learns_the_values_of_the_probes(algorithm):
    np.testing.assert_allclose(algorithm["delayed"], [0.7, 1.0], atol=0.04)
    powers = [0.9**4, 0.9**3, 0.9**2, 0.9, 1.0]
    np.testing.assert_allclose(algorithm["chain"], powers, atol=0.05)


def test_seeds_learn_and_one_learning_rate_does_not(algorithm):
    returns = algorithm["seeds"].metrics["episode_return"]
    assert len(np.unique(returns[:, 0])) > 1
    assert (returns[:, -1] > 0.9).all()
    slow, fast = algorithm["swept"].metrics["episode_return"][:, -10:].mean(1)
    assert abs(slow) < 0.3 and fast > 0.9
    hosted = algorithm["hosted"]
    assert hosted.finished and hosted.seeds == (0, 1)
    np.testing.assert_array_equal(hosted.evaluation["episode_return"], 1.0)
