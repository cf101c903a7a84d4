"""What every registered loss keeps: drift axioms, pytree, dict and string forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import losses, serialise
from purerl.config import ConfigError
from purerl.optimisers import OPTIMISERS
from purerl.rules import RULES
from tests.contracts.test_algorithms import small
from tests.helpers import assert_same_bits

NUM_SAMPLES = 256


def _numbers(key, size):
    """Coefficients of any sign and positive scales of as many terms."""
    coefficients = jax.random.normal(key, (size,))
    scales = 0.1 + jax.random.uniform(jax.random.fold_in(key, 7), (size,))
    return tuple(coefficients), tuple(scales)


# One member of each kind from a key: random parameters, as evolution would propose.
RANDOM = {
    "ClipDrift": lambda key: losses.ClipDrift(jax.random.uniform(key, (), maxval=0.9)),
    "DPODrift": lambda key: losses.DPODrift(
        *jax.random.uniform(key, (2,), minval=0.05, maxval=4.0)
    ),
    "AsymmetricClipDrift": lambda key: losses.AsymmetricClipDrift(
        *jax.random.uniform(key, (2,), maxval=0.9)
    ),
    "FormulaDrift": lambda key: losses.FormulaDrift(
        *_numbers(key, 2),
        *_numbers(jax.random.fold_in(key, 1), 3),
        ("above(r-1)", "logcosh((r-1)A)"),
        ("below(log(r))", "square(log(r)A)", "excess(r-1)"),
    ),
    "MLPDrift": lambda key: losses.MLPDrift.create(key, hidden_size=16, scale=3.0),
    "TemporalDrift": lambda key: losses.TemporalDrift.create(
        key, hidden_size=16, scale=3.0
    ).replace(share=jax.random.uniform(key)),
    "SquaredError": lambda key: losses.SquaredError(),
    "ClippedSquaredError": lambda key: losses.ClippedSquaredError(
        jax.random.uniform(key, ())
    ),
    "HuberError": lambda key: losses.HuberError(0.1 + jax.random.uniform(key, ())),
    "RobustError": lambda key: losses.RobustError(
        *jax.random.uniform(key, (2,), minval=0.1, maxval=2.0)
    ),
    "MLPValueLoss": lambda key: losses.MLPValueLoss.create(key, (8, 4)),
}
EVERY = tuple(losses.LOSSES)
POLICY = tuple(name for name in EVERY if name.endswith("Drift"))
VALUE = tuple(name for name in EVERY if name not in POLICY)


def arguments(name, key):
    """Arguments of the loss, `[N]` each, over a wide range."""
    draws = jax.random.normal(key, (3, NUM_SAMPLES))
    return tuple(2.0 * draws[:2] if name in POLICY else 2.0 * draws)


def test_every_registered_loss_is_tested_here():
    assert set(RANDOM) == set(losses.LOSSES) == set(EVERY)


@pytest.mark.parametrize("name", POLICY)
def test_a_drift_is_never_negative(name):
    @jax.jit
    @jax.vmap
    def smallest(key):
        drift = RANDOM[name](jax.random.fold_in(key, 0))
        return drift(*arguments(name, jax.random.fold_in(key, 1))).min()

    assert (smallest(jax.random.split(jax.random.key(0), 50)) >= 0).all()


@pytest.mark.parametrize("name", POLICY)
def test_a_drift_is_positive_somewhere(name):
    # Without this, a drift that is zero everywhere would pass the axioms.
    @jax.jit
    @jax.vmap
    def largest(key):
        return RANDOM[name](key)(*arguments(name, key)).max()

    keys = jax.random.split(jax.random.key(0), 20)
    assert (largest(keys) > 0.01).mean() > 0.8


@pytest.mark.parametrize("name", POLICY)
def test_a_drift_is_zero_with_zero_slope_at_ratio_one(name):
    @jax.jit
    @jax.vmap
    def at_one(key):
        drift = RANDOM[name](jax.random.fold_in(key, 0))
        advantage = 3.0 * jax.random.normal(jax.random.fold_in(key, 1), (NUM_SAMPLES,))
        zero = jnp.zeros(NUM_SAMPLES)
        slope = jax.grad(lambda x: drift(x, advantage).sum())(zero)
        # The slope by differences too: relu' at 0 is a convention, not a limit.
        secants = [jnp.abs(drift(zero + h, advantage) / h) for h in (1e-6, -1e-6)]
        return drift(zero, advantage), slope, jnp.stack(secants)

    value, slope, secants = at_one(jax.random.split(jax.random.key(0), 50))
    np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(slope, 0.0)
    # Below float32's resolution of the subtractions inside; a slope would be ~1.
    np.testing.assert_array_less(secants, 0.25)
    assert float(secants.mean()) < 1e-2


@pytest.mark.parametrize("name", VALUE)
def test_a_value_loss_is_finite_and_per_sample(name):
    loss = jax.jit(lambda *args: RANDOM[name](jax.random.key(0))(*args))
    value, target, old = arguments(name, jax.random.key(1))
    whole = loss(value, target, old)
    assert whole.shape == (NUM_SAMPLES,)
    assert jnp.isfinite(whole).all()
    # Sample 3 alone gives what it gave among the others.
    np.testing.assert_allclose(
        loss(value[3:4], target[3:4], old[3:4]), whole[3:4], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", EVERY)
def test_the_leaves_of_a_loss_vmap_as_a_population(name):
    keys = jax.random.split(jax.random.key(0), 3)
    args = arguments(name, jax.random.key(1))
    if not jax.tree.leaves(RANDOM[name](keys[0])):
        assert name == "SquaredError"
        return

    @jax.jit
    def lanes(keys):
        population = jax.vmap(RANDOM[name])(keys)
        return jax.vmap(lambda loss: loss(*args))(population)

    together, single = lanes(keys), jax.jit(lambda key: RANDOM[name](key)(*args))
    for lane, key in enumerate(keys):
        np.testing.assert_allclose(together[lane], single(key), rtol=1e-5, atol=1e-5)
    assert float(jnp.abs(together[0] - together[1]).max()) > 1e-3


@pytest.mark.parametrize("name", EVERY)
def test_a_loss_survives_the_dict_and_yaml_of_its_config(name, tmp_path):
    loss = RANDOM[name](jax.random.key(5))
    field = "policy_loss" if name in POLICY else "value_loss"
    config = purerl.PPOConfig(**{field: loss})
    serialise.to_yaml(config, tmp_path / "config.yaml")
    again = serialise.from_yaml(tmp_path / "config.yaml")
    for back in (serialise.from_dict(serialise.to_dict(config)), again):
        restored = getattr(back, field)
        assert jax.tree.structure(restored) == jax.tree.structure(loss)
        # Bit for bit: a float32 written in full comes back as itself.
        assert_same_bits(*jax.tree.map(np.float32, (restored, loss)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DPODrift(alpha=2.5, beta=0.5)", losses.DPODrift(2.5, 0.5)),
        ("ClipDrift(0.1)", losses.ClipDrift(0.1)),
        ("ClipDrift", losses.ClipDrift(0.2)),
        (" SquaredError() ", losses.SquaredError()),
    ],
)
def test_a_loss_is_read_from_a_string(text, expected):
    parsed = serialise.parse_part(text, "loss")
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ClipDrfit(clip_eps=0.2)", "ClipDrfit.*ClipDrift"),
        ("ClipDrift(clip_ep=0.2)", "clip_ep.*Did you mean 'clip_eps'"),
        ("__import__('os').system('true')", "cannot read"),
    ],
)
def test_a_bad_loss_string_says_what_to_write(text, words):
    with pytest.raises(ConfigError, match=words):
        serialise.parse_part(text, "loss")


FORMULA = (("above(r-1)",), ("below(r-1)",))


@pytest.mark.parametrize(
    ("field", "loss", "words"),
    [
        ("policy_loss", losses.ClipDrift(-1.0), "clip_eps must be greater than 0"),
        ("policy_loss", losses.ClipDrift(np.nan), "clip_eps must be finite, got nan"),
        (
            "policy_loss",
            losses.FormulaDrift((1.0,), (1.0,), (1.0,), (-1.0,), *FORMULA),
            "fall_scales must be finite and greater than 0",
        ),
    ],
)
def test_the_numbers_of_a_loss_are_checked(field, loss, words):
    with pytest.raises(ConfigError, match=f"{field}.{words}"):
        purerl.resolve(purerl.PPOConfig(**{field: loss}))


@pytest.mark.parametrize(
    "name", ["dqn", "recurrent_dqn", "pqn", "recurrent_pqn", "td3", "sac", "mpo"]
)
def test_values_that_no_rollout_has_predicted_are_not_clipped_to_it(name):
    """The loss would be the squared error, whatever its number."""
    config = small(name).replace(value_loss=losses.ClippedSquaredError(0.1))
    with pytest.raises(ConfigError, match=r"must not be ClippedSquaredError\(.*Use Sq"):
        purerl.resolve(config)


def test_the_value_before_is_a_constant_where_it_is_the_present_one():
    """The derivative of `(v - t)^2 / (2 + |old - t|)` with old fixed at v."""

    def loss(value, target, old_value):
        return jnp.square(value - target) / (2.0 + jnp.abs(old_value - target))

    value, target = jnp.array([1.0, 4.0]), jnp.array([3.0, 3.0])
    found = jax.grad(lambda v: losses.value_error(loss, v, target).sum())(value)
    np.testing.assert_allclose(found, [-4.0 / 4.0, 2.0 / 3.0], rtol=1e-6)


def test_every_number_of_a_registered_part_has_a_check():
    parts = [*losses.LOSSES.values(), *OPTIMISERS.values(), *RULES.values()]
    # Weights are learned, the base is a rule, and these four are no numbers.
    free = {"params", "base", "temporal", "path", "sha256", "rise", "fall"}
    unchecked = {
        f"{cls.__name__}.{field.name}"
        for cls in parts
        for field in dataclasses.fields(cls)
        if field.name not in free and "help" not in field.metadata
    }
    assert unchecked == set()
