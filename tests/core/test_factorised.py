"""Policies of several choices, and of several parts, against the joint distribution."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl.envs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from purerl.networks.distributions import (
    Gaussian,
    MixedHead,
    is_discrete,
    make_head,
    make_policy_head,
)
from purerl.networks.observe import exclude

SIZES = (3, 2, 4)
LOGITS = jax.random.normal(jax.random.key(0), (sum(SIZES),))


def compiled(head):
    """The functions of a head."""
    names = ("log_prob", "entropy", "mode", "sample", "to_env")
    return SimpleNamespace(**{name: jax.jit(getattr(head, name)) for name in names})


HEAD = compiled(make_head(MultiDiscrete(SIZES), "auto"))
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

    slope = jax.jit(jax.grad(loss))(LOGITS)
    assert np.isfinite(slope).all()
    np.testing.assert_array_equal(slope[~mask], 0.0)
    np.testing.assert_array_equal(slope[jnp.array([4, 7])], 0.0)


def test_coins_have_the_probabilities_of_scipy():
    head = compiled(make_head(MultiBinary((2, 2)), "auto"))
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
    assert np.isfinite(jax.grad(head.entropy)(1e3 * logits)).all()


def test_actions_of_several_parts_are_refused():
    assert is_discrete(MultiBinary(2)) and not is_discrete(Box(0, 1, (2,)))
    with pytest.raises(ValueError, match="of several parts are for PPOConfig"):
        make_head(Dict({"a": MultiBinary(2)}), "auto")
    with pytest.raises(ValueError, match=r"does not fit the .*MultiDiscrete"):
        make_head(MultiDiscrete([2, 2]), "gaussian")


def test_a_component_without_a_valid_member_is_uniform_over_its_own():
    # Three kinds of components: free, held to one member, and without any.
    head = compiled(make_head(MultiDiscrete([4, 3, 2]), "auto"))
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


# Actions of several parts

# In the order of JAX's pytrees: 3 logits, 2 means, 1 logit, 2 + 2 logits.
MIXED_SPACE = Dict(
    {
        "a": Discrete(3),
        "b": Tuple((Box(-2.0, 6.0, (2,)), MultiBinary(1))),
        "c": MultiDiscrete([2, 2]),
    }
)
MIXED = compiled(make_policy_head(MIXED_SPACE, "auto"))
MEAN = jnp.array([0.5, -1.0, 2.0, 0.3, -0.2, 1.5, 0.0, 1.0, -1.0, 0.5])
LOG_STD = jnp.linspace(-1.0, 0.5, 10)
MIXED_OUTPUTS = Gaussian(MEAN, LOG_STD)


def many(num):
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num, x.size)), MIXED_OUTPUTS)


def test_log_probabilities_of_several_parts_are_the_sums_of_the_parts():
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
    np.testing.assert_allclose(MIXED.log_prob(MIXED_OUTPUTS, raw), expected, rtol=1e-5)
    expected = (
        sum(stats.entropy(p) for p in choices)
        + stats.norm(mean[3:5], std[3:5]).entropy().sum()
        + stats.bernoulli(coin).entropy()
    )
    np.testing.assert_allclose(MIXED.entropy(MIXED_OUTPUTS), expected, rtol=1e-5)


def test_actions_are_members_of_the_space_with_the_probabilities_of_the_parts():
    raw = MIXED.sample(many(20_000), jax.random.key(0))
    assert raw.shape == (20_000, 6) and raw.dtype == jnp.float32
    action = MIXED.to_env(raw)
    assert jax.jit(jax.vmap(MIXED_SPACE.contains))(action).all()
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
    action = MIXED.to_env(MIXED.mode(MIXED_OUTPUTS))
    assert action["a"] == 2 and action["a"].dtype == jnp.int32
    # The centre of [-2, 6] is 2, and half its width is 4.
    np.testing.assert_allclose(action["b"][0], 2.0 + 4.0 * MEAN[3:5], rtol=1e-6)
    np.testing.assert_array_equal(action["b"][1], [1])
    np.testing.assert_array_equal(action["c"], [1, 1])


def test_a_policy_is_that_of_the_parts_that_it_fits():
    space = Tuple((Discrete(2), Box(-1.0, 1.0, (1,))))
    squashed = compiled(make_policy_head(space, "tanh_gaussian"))
    outputs = Gaussian(jnp.array([0.0, 1.0, 9.0]), jnp.zeros(3))
    np.testing.assert_allclose(
        squashed.to_env(squashed.mode(outputs))[1], np.tanh(9.0), rtol=1e-6
    )
    choices = Tuple((Discrete(2), MultiBinary(3)))
    assert isinstance(make_policy_head(choices, "categorical"), MixedHead)
    with pytest.raises(ValueError, match="'categorical' does not fit"):
        make_policy_head(space, "categorical")
    with pytest.raises(ValueError, match="'gaussian' does not fit"):
        make_policy_head(choices, "gaussian")
    # One part that is no composite has the head that it always had.
    assert not isinstance(make_policy_head(Discrete(2), "auto"), MixedHead)
