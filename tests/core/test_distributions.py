"""Policies against distrax, scipy, quadrature, the joint distribution, Monte Carlo."""

import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl.envs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from purerl.networks.distributions import (
    CategoricalHead,
    Gaussian,
    GaussianHead,
    MixedHead,
    TanhGaussianHead,
    is_discrete,
    log_tanh_slope,
    make_head,
    make_policy_head,
)
from purerl.networks.observe import exclude

with warnings.catch_warnings():  # its imports use names that jax has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import distrax

LOW, HIGH = -1.0, 3.0  # not symmetric: centre 1, radius 2


def gaussian(mean, std):
    mean = jnp.asarray(mean, jnp.float32)
    std = jnp.broadcast_to(jnp.asarray(std, jnp.float32), mean.shape)
    return Gaussian(mean, jnp.log(std))


@pytest.mark.parametrize("head_class", [GaussianHead, TanhGaussianHead])
def test_gaussian_heads_agree_with_distrax(head_class):
    head = head_class(LOW, HIGH, (2,))
    rng = np.random.default_rng(1)
    mean, raw = (jnp.asarray(x, jnp.float32) for x in rng.normal(size=(2, 7, 2)))
    outputs = gaussian(mean, [0.5, 1.2])
    reference = distrax.MultivariateNormalDiag(mean, jnp.exp(outputs.log_std))
    if head_class is TanhGaussianHead:
        squash = distrax.Chain(
            [distrax.ScalarAffine(shift=1.0, scale=2.0), distrax.Tanh()]
        )
        reference = distrax.Transformed(reference, distrax.Block(squash, 1))
        value = head.to_env(raw)
    else:
        value = raw
        np.testing.assert_allclose(
            head.entropy(outputs), reference.entropy(), rtol=1e-5
        )
    np.testing.assert_allclose(
        head.log_prob(outputs, raw), reference.log_prob(value), rtol=1e-4, atol=1e-4
    )


@pytest.mark.slow
def test_a_certain_categorical_has_finite_log_prob_entropy_and_gradient():
    head = CategoricalHead(2)
    logits = jnp.array([200.0, -200.0])
    assert head.entropy(logits) == 0.0
    assert head.log_prob(logits, jnp.int32(0)) == 0.0
    assert head.log_prob(logits, jnp.int32(1)) == -400.0
    for value in (head.entropy, lambda x: head.log_prob(x, jnp.int32(1))):
        assert jnp.isfinite(jax.grad(value)(logits)).all()


@pytest.mark.parametrize(
    ("std", "most"), [(0.5, 1e-4), (1.5, 1e-3), (2.0, 4e-3), (3.0, 0.03), (5.0, 0.11)]
)
def test_tanh_entropy_against_the_integral(std, most):
    head = TanhGaussianHead(np.array([-1.0]), np.array([1.0]), (1,))
    z = np.linspace(-10.0, 10.0, 100_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    for mean in (0.0, 0.5, 1.0, 3.0):
        raw = mean + std * z
        slope = 2 * (np.log(2.0) - raw - np.logaddexp(0.0, -2 * raw))
        normal = 0.5 * np.log(2 * np.pi * np.e * std**2)
        exact = normal + np.trapezoid(slope * density, z)
        assert abs(float(head.entropy(gaussian([mean], [std]))) - exact) < most


INF = np.inf
# Two bounds of two kinds, none, and one on either side: as Gymnasium's ClipAction, the
# raw action then keeps its units.
BOUNDS = [-1.0, 0.0, -INF, 0.0, -INF], [3.0, 10.0, INF, INF, 2.0]
BROUGHT = [
    ([0.0, 0.0, 7.0, -5.0, 5.0], [1.0, 5.0, 7.0, 0.0, 2.0]),
    ([0.5, -0.5, -7.0, 7.0, -7.0], [2.0, 2.5, -7.0, 7.0, -7.0]),
    ([1.0, 1.0, 0.0, 0.0, 0.0], [3.0, 10.0, 0.0, 0.0, 0.0]),
    ([7.0, -7.0, 0.0, 0.0, 1.0], [3.0, 0.0, 0.0, 0.0, 1.0]),
]


def test_raw_actions_are_brought_to_the_bounds():
    raw, actions = zip(*BROUGHT, strict=True)
    head = GaussianHead(*map(np.array, BOUNDS), (5,))
    np.testing.assert_allclose(head.to_env(jnp.array(raw)), actions, atol=1e-6)
    squashed = TanhGaussianHead(np.array([LOW]), np.array([HIGH]), (1,))
    found = squashed.to_env(jnp.array([[-50.0], [0.0], [np.arctanh(0.5)], [50.0]]))
    np.testing.assert_allclose(found, [[LOW], [1.0], [2.0], [HIGH]], atol=1e-6)


def test_the_largest_number_as_a_bound_means_none():
    """Actions were -3.4e38, NaN and 3.4e38 where `high - low` is infinite."""
    big = float(np.finfo(np.float32).max)
    for low, high in ((-big, big), (-1e300, 1e300), (-np.inf, big), (-2e38, 1e38)):
        space = Box(low, high, (1,))
        head = make_head(space, "auto")
        raw = jnp.array([[-0.5], [0.0], [0.5]])
        np.testing.assert_array_equal(head.to_env(raw), raw)
        with pytest.raises(ValueError, match="needs a bounded action space"):
            make_head(space, "tanh_gaussian")
    one_sided = GaussianHead(0.0, big, (1,))
    np.testing.assert_array_equal(
        one_sided.to_env(jnp.array([[-5.0], [7.0]])), [[0], [7]]
    )


def test_an_action_without_width_does_not_make_a_density_infinite():
    """It adds what an action of width 2 would, and is its only value."""
    head = TanhGaussianHead(np.array([-1.0, 3.0]), np.array([1.0, 3.0]), (2,))
    wide = TanhGaussianHead(np.array([-1.0, 2.0]), np.array([1.0, 4.0]), (2,))
    outputs, raw = gaussian([0.3, -0.2], [0.5, 1.5]), jnp.array([0.7, 0.1])
    for method in (lambda h: h.log_prob(outputs, raw), lambda h: h.entropy(outputs)):
        assert jnp.isfinite(method(head))
        np.testing.assert_array_equal(method(head), method(wide))
    np.testing.assert_allclose(head.to_env(raw), [np.tanh(0.7), 3.0], rtol=1e-6)


@pytest.mark.parametrize("head_class", [GaussianHead, TanhGaussianHead])
@pytest.mark.parametrize(("low", "high"), [(-0.7, 0.1), (-0.2, 1.1)])
def test_no_action_is_rounded_out_of_its_bounds(head_class, low, high):
    """The centre and the radius of these bounds add up to more than one of them."""
    low, high = np.float32(low), np.float32(high)
    head = head_class(low, high, (1,))
    ends = np.asarray(head.to_env(jnp.array([[-50.0], [50.0]])))[:, 0]
    assert low <= ends[0] and ends[1] <= high
    np.testing.assert_allclose(ends, [low, high], rtol=1e-6)


def test_log_tanh_slope_is_stable_far_out():
    x = np.array([-40.0, -3.0, 0.0, 3.0, 40.0])
    # log(1 - tanh^2) = 2 log 2 - 2 |x| - 2 log(1 + exp(-2|x|))
    expected = 2 * (np.log(2) - np.abs(x) - np.log1p(np.exp(-2 * np.abs(x))))
    actual = log_tanh_slope(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    slope = jax.vmap(jax.grad(log_tanh_slope))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(slope, -2 * np.tanh(x), atol=1e-6)


# Choices

LOGITS = jax.random.normal(jax.random.key(0), (9,))
COINS = jnp.array([0.0, 2.0, -3.0, 30.0])
# A space, the outputs of a network, and the logits of every component.
CHOICES = {
    "one": (Discrete(4), LOGITS[:4], [LOGITS[:4]]),
    "several": (MultiDiscrete((3, 2, 4)), LOGITS, jnp.split(LOGITS, [3, 5])),
    "coins": (MultiBinary((2, 2)), COINS, [(0.0, x) for x in COINS]),
}
NUM = 20_000


def compiled(head):
    """The functions of a head."""
    names = ("log_prob", "entropy", "mode", "sample", "to_env")
    return SimpleNamespace(**{name: jax.jit(getattr(head, name)) for name in names})


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_those_of_the_joint_distribution(name):
    """Of the softmax of every component in numpy."""
    space, outputs, parts = CHOICES[name]
    head = compiled(make_head(space, "auto"))
    exps = [np.exp(np.asarray(part, np.float64)) for part in parts]
    actions = np.array([*np.ndindex(*map(len, parts))])
    joint = np.prod([x[i] / x.sum() for x, i in zip(exps, actions.T, strict=True)], 0)
    mode = head.mode(outputs)
    actions = actions.reshape(len(actions), *mode.shape)
    many = jnp.broadcast_to(outputs, (NUM, outputs.size))
    log_probs = head.log_prob(many[: len(actions)], actions)
    np.testing.assert_allclose(log_probs, np.log(joint), rtol=1e-5)
    entropy = -(joint * np.log(joint)).sum()
    np.testing.assert_allclose(head.entropy(outputs), entropy, rtol=1e-5)
    np.testing.assert_array_equal(mode, actions[joint.argmax()])
    raw = head.sample(many, jax.random.key(1))
    is_drawn = np.asarray(raw)[:, None] == actions[None]
    shares = is_drawn.reshape(NUM, len(joint), -1).all(-1).mean(0)
    np.testing.assert_allclose(shares, joint, atol=0.01)
    action = head.to_env(raw)
    assert (action.dtype, action.shape) == (space.dtype, (NUM, *space.shape))
    assert np.isfinite(jax.grad(head.entropy)(1e3 * outputs)).all()


def test_a_flat_mask_excludes_members_of_each_component():
    head = compiled(make_head(CHOICES["several"][0], "auto"))
    # Two of three, one of two, and none of four: these are equally likely.
    mask = jnp.array([1, 0, 1, 0, 1, 0, 0, 0, 0], bool)
    outputs = exclude(LOGITS, mask)
    p = jax.nn.softmax(LOGITS[jnp.array([0, 2])])
    found = head.entropy(outputs), head.log_prob(outputs, jnp.array([2, 1, 3]))
    expected = [np.log(4) - (p * jnp.log(p)).sum(), jnp.log(p[1]) - np.log(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    drawn = head.sample(jnp.broadcast_to(outputs, (2_000, 9)), jax.random.key(2))
    members = {(first, 1, last) for first in (0, 2) for last in range(4)}
    assert set(map(tuple, np.asarray(drawn).tolist())) == members
    # Standard error of a share of 2,000: 0.01.
    np.testing.assert_allclose(np.bincount(drawn[:, 2]) / 2_000, 0.25, atol=0.04)

    def loss(logits):
        outputs = exclude(logits, mask)
        return head.log_prob(outputs, head.mode(outputs)) + head.entropy(outputs)

    slope = jax.jit(jax.grad(loss))(LOGITS)
    assert np.isfinite(slope).all()
    np.testing.assert_array_equal(slope[~mask], 0.0)
    assert slope[4] == 0.0


def test_actions_of_several_parts_are_refused():
    assert is_discrete(MultiBinary(2)) and not is_discrete(Box(0, 1, (2,)))
    with pytest.raises(ValueError, match="of several parts are for PPOConfig"):
        make_head(Dict({"a": MultiBinary(2)}), "auto")
    with pytest.raises(ValueError, match=r"does not fit the .*MultiDiscrete"):
        make_head(MultiDiscrete([2, 2]), "gaussian")


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
    coin, pair = MIXED_SPACE["b"][1], MIXED_SPACE["c"]
    log_prob = stats.norm.logpdf(raw[1:3], MEAN[3:5], np.exp(LOG_STD[3:5])).sum()
    entropy = stats.norm(scale=np.exp(LOG_STD[3:5])).entropy().sum()
    for space, logits, one in (
        (MIXED_SPACE["a"], MEAN[:3], jnp.int32(2)),
        (coin, MEAN[5:6], raw[3:4]),
        (pair, MEAN[6:], jnp.array([0, 1])),
    ):
        head = make_head(space, "auto")
        log_prob += head.log_prob(logits, one)
        entropy += head.entropy(logits)
    np.testing.assert_allclose(MIXED.log_prob(MIXED_OUTPUTS, raw), log_prob, rtol=1e-5)
    np.testing.assert_allclose(MIXED.entropy(MIXED_OUTPUTS), entropy, rtol=1e-5)


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
    # All are drawn independently: a door says nothing of a number.
    np.testing.assert_allclose(np.corrcoef(raw.T), np.eye(6), atol=0.03)


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
