"""Policies of several choices at once, against the joint distribution."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl.envs.spaces import Box, Dict, MultiBinary, MultiDiscrete
from purerl.networks.distributions import is_discrete, make_head
from purerl.networks.observe import exclude

SIZES = (3, 2, 4)
LOGITS = jax.random.normal(jax.random.key(0), (sum(SIZES),))
HEAD = make_head(MultiDiscrete(SIZES), "auto")
ALL = jnp.array(list(itertools.product(*map(range, SIZES))))


def joint(logits):
    """The probability of every action, from the softmax of each component in numpy."""
    parts = np.split(np.asarray(logits, np.float64), np.cumsum(SIZES)[:-1])
    softmax = [np.exp(part) / np.exp(part).sum() for part in parts]
    places = np.asarray(ALL).T
    return np.prod([p[place] for p, place in zip(softmax, places, strict=True)], 0)


def test_log_probabilities_and_entropy_are_those_of_the_joint_distribution():
    outputs = jnp.broadcast_to(LOGITS, (len(ALL), LOGITS.size))
    expected = joint(LOGITS)
    np.testing.assert_allclose(expected.sum(), 1.0)
    np.testing.assert_allclose(HEAD.log_prob(outputs, ALL), np.log(expected), rtol=1e-4)
    np.testing.assert_allclose(
        HEAD.entropy(LOGITS), -(expected * np.log(expected)).sum(), rtol=1e-5
    )
    np.testing.assert_array_equal(HEAD.mode(LOGITS), ALL[np.argmax(expected)])


def test_actions_are_drawn_as_often_as_they_are_probable():
    outputs = jnp.broadcast_to(LOGITS, (20_000, LOGITS.size))
    raw = HEAD.sample(outputs, jax.random.key(1))
    action = HEAD.to_env(raw)
    assert action.dtype == jnp.int32 and action.shape == (20_000, 3)
    seen = (action[:, None] == ALL[None]).all(-1).mean(0)
    np.testing.assert_allclose(seen, joint(LOGITS), atol=0.01)


def test_a_flat_mask_excludes_members_of_each_component():
    mask = jnp.array([1, 0, 1, 0, 1, 0, 0, 1, 0], bool)  # two, one, and one
    outputs = exclude(LOGITS, mask)
    p = jax.nn.softmax(LOGITS[jnp.array([0, 2])])
    np.testing.assert_allclose(
        HEAD.entropy(outputs), -(p * jnp.log(p)).sum(), rtol=1e-5
    )
    np.testing.assert_allclose(
        HEAD.log_prob(outputs, jnp.array([2, 1, 2])), jnp.log(p[1]), rtol=1e-5
    )
    many = jnp.broadcast_to(outputs, (500, outputs.size))
    drawn = HEAD.sample(many, jax.random.key(2))
    assert set(map(tuple, np.asarray(drawn).tolist())) == {(0, 1, 2), (2, 1, 2)}

    def loss(logits):
        outputs = exclude(logits, mask)
        return HEAD.log_prob(outputs, HEAD.mode(outputs)) + HEAD.entropy(outputs)

    slope = jax.grad(loss)(LOGITS)
    assert np.isfinite(slope).all()
    np.testing.assert_array_equal(slope[~mask], 0.0)
    np.testing.assert_array_equal(slope[jnp.array([4, 7])], 0.0)


def test_one_component_is_a_categorical_policy():
    logits = jax.random.normal(jax.random.key(3), (6, 5))
    several = make_head(MultiDiscrete([5]), "categorical")
    plain = make_head(type("Five", (), {"n": 5, "dtype": jnp.int32}), "auto")
    noise = plain.noise(jax.random.key(4), (6,))
    raw = several.choose(logits, noise)
    np.testing.assert_array_equal(raw[:, 0], plain.choose(logits, noise))
    np.testing.assert_allclose(
        several.log_prob(logits, raw), plain.log_prob(logits, raw[:, 0]), rtol=1e-5
    )
    np.testing.assert_allclose(
        several.entropy(logits), plain.entropy(logits), rtol=1e-5
    )


def test_coins_have_the_probabilities_of_scipy():
    head = make_head(MultiBinary((2, 2)), "auto")
    logits = jnp.array([0.0, 2.0, -3.0, 30.0])
    p = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
    raw = jnp.array([1, 0, 0, 1])
    expected = stats.bernoulli.logpmf(np.asarray(raw), p).sum()
    np.testing.assert_allclose(head.log_prob(logits, raw), expected, rtol=1e-5)
    entropy = stats.bernoulli(p[:3]).entropy().sum()  # the last has none
    np.testing.assert_allclose(head.entropy(logits), entropy, rtol=1e-5)
    np.testing.assert_array_equal(head.mode(logits), [0, 1, 0, 1])
    drawn = head.sample(jnp.broadcast_to(logits, (20_000, 4)), jax.random.key(5))
    np.testing.assert_allclose(drawn.mean(0), p, atol=0.015)
    action = head.to_env(drawn)
    assert action.dtype == jnp.int8 and action.shape == (20_000, 2, 2)
    assert np.isfinite(jax.grad(lambda x: head.entropy(x))(1e3 * logits)).all()


def test_actions_of_several_parts_are_refused():
    assert is_discrete(MultiBinary(2)) and not is_discrete(Box(0, 1, (2,)))
    with pytest.raises(ValueError, match="of several parts are for PPOConfig"):
        make_head(Dict({"a": MultiBinary(2)}), "auto")
    with pytest.raises(ValueError, match=r"does not fit the .*MultiDiscrete"):
        make_head(MultiDiscrete([2, 2]), "gaussian")


def test_a_component_without_a_valid_member_is_uniform_over_its_own():
    # Three kinds of components: free, held to one member, and without any.
    head = make_head(MultiDiscrete([4, 3, 2]), "auto")
    mask = jnp.array([1, 1, 0, 0, 0, 1, 0, 0, 0], bool)
    outputs = exclude(jnp.zeros(9), mask)
    np.testing.assert_allclose(head.entropy(outputs), 2 * np.log(2), rtol=1e-6)
    raw = jax.vmap(lambda key: head.sample(outputs, key))(
        jax.random.split(jax.random.key(0), 2_000)
    )
    log_probs = jax.vmap(lambda one: head.log_prob(outputs, one))(raw)
    np.testing.assert_allclose(log_probs, -2 * np.log(2), rtol=1e-6)
    first, second, third = np.asarray(raw).T
    assert set(first) == {0, 1} and set(second) == {1} and set(third) == {0, 1}
    # Standard error of a share of 2,000: 0.011.
    assert abs(third.mean() - 0.5) < 0.05
