"""Loss values derived by hand, and the identities that define them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import losses, schedules


def one(x):
    return jnp.asarray([x], jnp.float32)


def surrogate(drift, log_ratio, advantage):
    """The policy loss of each sample, as PPO has it."""
    return drift(log_ratio, advantage) - jnp.exp(log_ratio) * advantage


@pytest.mark.parametrize("eps", [0.05, 0.2, 0.9])
def test_ppo_is_the_drift_relu_of_ratio_minus_clip(eps):
    # r*A - drift must be min(r*A, clip(r)*A), up to the rounding of its two terms.
    key_ratio, key_advantage = jax.random.split(jax.random.key(0))
    log_ratio = jax.random.normal(key_ratio, (10_000,))
    advantage = 3 * jax.random.normal(key_advantage, (10_000,))
    ratio = jnp.exp(log_ratio)
    plain = ratio * advantage
    clipped = jnp.clip(ratio, 1 - eps, 1 + eps) * advantage
    actual = -surrogate(losses.ClipDrift(eps), log_ratio, advantage)
    size = jnp.maximum(jnp.abs(plain), jnp.abs(clipped))
    ulps = jnp.abs(actual - jnp.minimum(plain, clipped)) / (size * 2.0**-23)
    assert float(ulps.max()) <= 2
    assert 0.1 < float((clipped < plain).mean()) < 0.9  # both branches are met


# 3 tanh(2 (v - g) + 0.5) + 1
LAYERS = (
    (jnp.full((1, 1), 2.0), jnp.full(1, 0.5)),
    (jnp.full((1, 1), 3.0), jnp.ones(1)),
)


def drifts(drift, *rows):
    """A drift by the ratio and the advantage."""
    return [(drift, (np.log(ratio), a), expected) for ratio, a, expected in rows]


BY_HAND = [
    *drifts(
        losses.DPODrift(2.0, 0.6),
        # A >= 0, x = (r-1)A = 1: 1 - 2 tanh(1/2) = 1 - 2 (e-1)/(e+1)
        #   = 1 - 2 * 1.718282/3.718282 = 1 - 0.924234 = 0.075766
        (2.0, 1.0, 0.075766),
        # x = -1/2 < 0: -0.5 + 2 tanh(1/4) < 0, so relu gives 0
        (0.5, 1.0, 0.0),
        # A < 0, x = log(1/2) * -1 = 0.693147: tanh(0.693147/0.6) with
        #   exp(2 * 0.693147/0.6) = 2^(10/3) = 10.079368, so tanh =
        #   9.079368/11.079368 = 0.819484; 0.693147 - 0.6 * 0.819484 = 0.201457
        (0.5, -1.0, 0.201457),
        # x = -log 2 < 0: relu gives 0
        (2.0, -1.0, 0.0),
        # Symmetric PPO would clip r = 1.1 not at all either; DPO is small, not
        # zero: x = 0.1 * 3 = 0.3: 0.3 - 2 tanh(0.15) = 0.3 - 2 * 0.148885
        (1.1, 3.0, 0.002230),
    ),
    *drifts(
        losses.AsymmetricClipDrift(low=0.1, high=0.3),
        (1.5, 2.0, 0.2 * 2.0),  # above 1 + 0.3, and it would pay to go on
        (1.25, 2.0, 0.0),  # inside
        (0.85, -2.0, 0.05 * 2.0),  # below 1 - 0.1, likewise
        (0.85, 2.0, 0.0),  # outside, but coming back pays
    ),
    # Of a value, its target, and the value before.
    (losses.SquaredError(), (2.0, 5.0, 9.0), 4.5),  # (2 - 5)^2 / 2
    # Moved by 1, credit for 0.2: max((2-3)^2, (1.2-3)^2) / 2 = 3.24/2
    (losses.ClippedSquaredError(0.2), (2.0, 3.0, 1.0), 1.62),
    # Within the trust interval both are (1.1-3)^2 / 2
    (losses.ClippedSquaredError(0.2), (1.1, 3.0, 1.0), 1.805),
    # Overshot: max((2-1.1)^2, (1.2-1.1)^2) / 2 = 0.81/2
    (losses.ClippedSquaredError(0.2), (2.0, 1.1, 1.0), 0.405),
    (losses.HuberError(1.0), (1.5, 1.0, 0.0), 0.125),  # 0.5^2 / 2
    (losses.HuberError(1.0), (-2.0, 1.0, 0.0), 2.5),  # 1^2 / 2 + 1 * (3 - 1)
    (losses.HuberError(2.0), (4.0, 1.0, 0.0), 4.0),  # 2^2 / 2 + 2 * (3 - 2)
    # At v - g = 0.25: 3 tanh(1) + 1 = 3 * 0.761594 + 1
    (losses.MLPValueLoss(LAYERS), (1.25, 1.0, 7.0), 3.284782),
]


@pytest.mark.parametrize(("loss", "arguments", "expected"), BY_HAND)
def test_a_loss_by_hand(loss, arguments, expected):
    actual = loss(*map(one, arguments))
    is_drift = len(arguments) == 2  # Its numbers are small, and some are zero.
    near = {"atol": 1e-6} if is_drift else {"rtol": 1e-6}
    np.testing.assert_allclose(actual, [expected], **near)


# No slope beyond the trust interval, and that of the error where it overshot.
@pytest.mark.parametrize(("target", "slope"), [(3.0, 0.0), (1.1, 0.9)])
def test_the_slope_of_a_clipped_error(target, slope):
    loss = losses.ClippedSquaredError(0.2)
    found = jax.grad(lambda v: loss(v, one(target), one(1.0)).sum())(one(2.0))
    np.testing.assert_allclose(found, [slope], rtol=1e-5)


def test_a_learned_drift_has_the_eight_features_of_lpo():
    # Kernel k picks feature k alone; out = tanh(feature) - 1e-4, cut at 0.
    log_ratio, advantage = np.log(1.5), 2.0
    base = [log_ratio, log_ratio**2, 1 - 1.5, (1 - 1.5) ** 2]
    features = base + [advantage * x for x in base]
    for k, feature in enumerate(features):
        kernel = jnp.zeros((8, 1)).at[k].set(1.0)
        actual = losses.MLPDrift((kernel, jnp.ones((1, 1))))(
            one(log_ratio), one(advantage)
        )
        np.testing.assert_allclose(
            actual, [max(np.tanh(feature) - 1e-4, 0.0)], atol=1e-6
        )


ERRORS = np.array([-30.0, -2.0, -0.01, 0.0, 0.5, 4.0])


NAMED_MEMBERS = [
    # The named members of the family, with x = error / scale and scale 2.
    (2.0, lambda x: 4 * 0.5 * x**2),
    (1.0, lambda x: 4 * (np.sqrt(x**2 + 1) - 1)),  # smooth Huber
    (0.0, lambda x: 4 * np.log(0.5 * x**2 + 1)),  # Cauchy
    (-2.0, lambda x: 4 * 2 * x**2 / (x**2 + 4)),  # Geman-McClure
]


@pytest.mark.parametrize(("alpha", "known"), NAMED_MEMBERS)
def test_the_robust_error_has_its_named_members(alpha, known):
    errors = jnp.asarray(ERRORS, jnp.float32)
    actual = losses.RobustError(alpha, 2.0)(
        errors + 3.0, jnp.full(6, 3.0), jnp.zeros(6)
    )
    np.testing.assert_allclose(actual, known(ERRORS / 2.0), rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("alpha", [-2.0, 0.0, 1.0, 2.0, 3.0])
def test_the_robust_error_has_a_slope_everywhere_also_in_its_numbers(alpha):
    def total(loss, value):
        return loss(value, jnp.zeros(6), jnp.zeros(6)).sum()

    errors = jnp.asarray(ERRORS, jnp.float32)
    in_numbers, in_value = jax.grad(total, (0, 1))(
        losses.RobustError(alpha, 2.0), errors
    )
    assert all(jnp.isfinite(x) for x in jax.tree.leaves(in_numbers))
    # Small errors have the slope of the squared error: the error itself.
    np.testing.assert_allclose(in_value[2:4], ERRORS[2:4], rtol=1e-3, atol=1e-7)
    np.testing.assert_array_equal(np.sign(in_value), np.sign(ERRORS))


def test_a_temporal_drift_is_the_plain_one_at_the_start_and_moves_with_the_share():
    plain = losses.MLPDrift.create(jax.random.key(0), 4, base_clip=0.2)
    first, last = plain.params
    later = 0.5 * jax.random.normal(jax.random.key(1), first.shape)
    drift = losses.TemporalDrift((jnp.concatenate([first, later]), last), base_clip=0.2)
    log_ratio = jnp.linspace(-1.0, 1.0, 9)
    advantage = jnp.linspace(2.0, -1.0, 9)

    def at(share):
        return schedules.at(drift, share)(log_ratio, advantage)

    np.testing.assert_allclose(at(0.0), plain(log_ratio, advantage), atol=1e-6)
    # Features times the share are a kernel that moves: W1 + share W2.
    moved = losses.MLPDrift((first + 0.75 * later, last), base_clip=0.2)
    np.testing.assert_allclose(at(0.75), moved(log_ratio, advantage), atol=1e-5)
    assert float(jnp.abs(at(0.75) - at(0.0)).max()) > 1e-3


def test_zeros_of_a_temporal_drift_are_ppo_at_every_share():
    drift = schedules.at(losses.TemporalDrift.zeros(3, base_clip=0.2), 0.5)
    log_ratio, advantage = jnp.linspace(-1.0, 1.0, 9), jnp.linspace(2.0, -1.0, 9)
    expected = losses.ClipDrift(0.2)(log_ratio, advantage)
    actual = drift(log_ratio, advantage)
    np.testing.assert_allclose(actual, jax.nn.relu(expected - 1e-4), atol=1e-6)
