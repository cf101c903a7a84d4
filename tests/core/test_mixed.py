"""Policies over actions of several parts, against the heads of the parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl.envs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from purerl.networks.distributions import Gaussian, MixedHead, make_policy_head

# In the order of JAX's pytrees: 3 logits, 2 means, 1 logit, 2 + 2 logits.
SPACE = Dict(
    {
        "a": Discrete(3),
        "b": Tuple((Box(-2.0, 6.0, (2,)), MultiBinary(1))),
        "c": MultiDiscrete([2, 2]),
    }
)
HEAD = make_policy_head(SPACE, "auto")
MEAN = jnp.array([0.5, -1.0, 2.0, 0.3, -0.2, 1.5, 0.0, 1.0, -1.0, 0.5])
LOG_STD = jnp.linspace(-1.0, 0.5, 10)
OUTPUTS = Gaussian(MEAN, LOG_STD)


def many(num):
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num, x.size)), OUTPUTS)


def test_log_probability_and_entropy_are_the_sums_of_the_parts():
    raw = jnp.array([2.0, 0.7, -1.1, 1.0, 0.0, 1.0])
    mean, std = (
        np.asarray(MEAN, np.float64),
        np.exp(np.asarray(LOG_STD, np.float64)),
    )

    def softmax(logits):
        return np.exp(logits) / np.exp(logits).sum()

    choices = [softmax(mean[:3]), softmax(mean[6:8]), softmax(mean[8:])]
    coin = 1 / (1 + np.exp(-mean[5]))
    expected = (
        sum(np.log(p[i]) for p, i in zip(choices, (2, 0, 1), strict=True))
        + stats.norm.logpdf([0.7, -1.1], mean[3:5], std[3:5]).sum()
        + np.log(coin)
    )
    np.testing.assert_allclose(HEAD.log_prob(OUTPUTS, raw), expected, rtol=1e-5)
    expected = (
        sum(stats.entropy(p) for p in choices)
        + stats.norm(mean[3:5], std[3:5]).entropy().sum()
        + stats.bernoulli(coin).entropy()
    )
    np.testing.assert_allclose(HEAD.entropy(OUTPUTS), expected, rtol=1e-5)


def test_actions_are_members_of_the_space_with_the_probabilities_of_the_parts():
    raw = jax.jit(HEAD.sample)(many(20_000), jax.random.key(0))
    assert raw.shape == (20_000, 6) and raw.dtype == jnp.float32
    action = HEAD.to_env(raw)
    assert jax.vmap(SPACE.contains)(action).all()
    shares = [(action["a"] == i).mean() for i in range(3)]
    np.testing.assert_allclose(shares, jax.nn.softmax(MEAN[:3]), atol=0.015)
    np.testing.assert_allclose(raw[:, 1:3].mean(0), MEAN[3:5], atol=0.03)
    np.testing.assert_allclose(raw[:, 1:3].std(0), jnp.exp(LOG_STD[3:5]), rtol=0.03)
    np.testing.assert_allclose(
        action["b"][1][:, 0].mean(), jax.nn.sigmoid(MEAN[5]), atol=0.015
    )
    # Parts are drawn independently: a door says nothing of a number.
    assert abs(np.corrcoef(raw[:, 0], raw[:, 1])[0, 1]) < 0.03


def test_the_deterministic_action_has_the_mode_of_every_part():
    action = HEAD.to_env(HEAD.mode(OUTPUTS))
    assert action["a"] == 2 and action["a"].dtype == jnp.int32
    # The centre of [-2, 6] is 2, and half its width is 4.
    np.testing.assert_allclose(action["b"][0], 2.0 + 4.0 * MEAN[3:5], rtol=1e-6)
    np.testing.assert_array_equal(action["b"][1], [1])
    np.testing.assert_array_equal(action["c"], [1, 1])


def test_only_numbers_have_a_standard_deviation():
    raw = HEAD.sample(OUTPUTS, jax.random.key(1))

    def score(log_std):
        outputs = Gaussian(MEAN, log_std)
        return HEAD.log_prob(outputs, raw) + HEAD.entropy(outputs)

    slope = np.asarray(jax.grad(score)(LOG_STD))
    is_number = np.isin(np.arange(10), (3, 4))
    assert (slope[is_number] != 0).all()
    np.testing.assert_array_equal(slope[~is_number], 0.0)


def test_a_policy_is_that_of_the_parts_that_it_fits():
    space = Tuple((Discrete(2), Box(-1.0, 1.0, (1,))))
    squashed = make_policy_head(space, "tanh_gaussian")
    outputs = Gaussian(jnp.array([0.0, 1.0, 9.0]), jnp.zeros(3))
    np.testing.assert_allclose(
        squashed.to_env(squashed.mode(outputs))[1], np.tanh(9.0), rtol=1e-6
    )
    choices = Tuple((Discrete(2), MultiBinary(3)))
    assert isinstance(make_policy_head(choices, "categorical"), MixedHead)
    with pytest.raises(ValueError, match="'categorical' does not fit the continuous"):
        make_policy_head(space, "categorical")
    with pytest.raises(ValueError, match="'gaussian' does not fit the discrete"):
        make_policy_head(choices, "gaussian")
    # One part that is no composite has the head that it always had.
    assert not isinstance(make_policy_head(Discrete(2), "auto"), MixedHead)
