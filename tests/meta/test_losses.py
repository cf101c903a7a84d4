"""Learned losses: the axioms over random parameters, starts, files, pictures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import losses, serialise
from purerl.config import ConfigError
from purerl.report import search_plots as loss_plots
from tests.helpers import assert_same_bits


def test_a_drift_is_its_formula():
    """The eight features, no bias, the shift, one by one on numbers."""
    kernel_in = np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2)
    kernel_out = np.array([[0.7], [1.3]], np.float32)
    drift = losses.MLPDrift((kernel_in, kernel_out))
    ppo = losses.MLPDrift((kernel_in, kernel_out), base_clip=0.2)
    for ratio, advantage in [(1.5, 2.0), (0.6, -1.0), (1.3, -0.5), (0.7, 1.0)]:
        log, gap = np.log(ratio), 1 - ratio
        base = np.array([log, log**2, gap, gap**2])
        features = np.concatenate([base, base * advantage])
        net = float((np.tanh(features @ kernel_in) @ kernel_out)[0])
        clip = max((ratio - np.clip(ratio, 0.8, 1.2)) * advantage, 0.0)
        args = jnp.array([log], jnp.float32), jnp.array([advantage], jnp.float32)
        np.testing.assert_allclose(drift(*args)[0], max(net - 1e-4, 0), atol=1e-5)
        expected = max(clip + net - 1e-4, 0)
        np.testing.assert_allclose(ppo(*args)[0], expected, atol=1e-5)


@pytest.mark.slow
def test_a_value_loss_of_the_error_or_of_both_numbers():
    value, target = jax.random.normal(jax.random.key(0), (2, 20))
    error = losses.MLPValueLoss.create(jax.random.key(1), (4, 3))
    # Only the difference counts for one, both numbers for the other.
    np.testing.assert_allclose(
        error(value + 5.0, target + 5.0, value), error(value, target, value), atol=1e-5
    )
    pair = losses.MLPValueLoss.create(jax.random.key(1), (4, 3), "pair")
    moved = pair(value + 5.0, target + 5.0, value) - pair(value, target, value)
    assert np.abs(moved).max() > 0.1
    # With first-layer rows w and -w the pair form is the error form.
    (kernel, bias), *rest = error.params
    same = losses.MLPValueLoss(((jnp.concatenate([kernel, -kernel]), bias), *rest))
    np.testing.assert_allclose(
        same(value, target, value), error(value, target, value), atol=1e-5
    )


def test_the_published_network_has_4353_numbers_and_the_drift_1152():
    count = lambda loss: sum(x.size for x in jax.tree.leaves(loss))  # noqa: E731
    assert count(losses.MLPValueLoss.zeros()) == 4353
    assert count(losses.MLPDrift.zeros()) == 1152


@pytest.mark.parametrize(
    "loss",
    [
        losses.MLPValueLoss.create(jax.random.key(0), (3, 2), "pair"),
        losses.MLPDrift.create(jax.random.key(0), 5, base_clip=0.3),
        losses.DPODrift(np.float32(1.7), np.float32(0.1)),
        losses.SquaredError(),
    ],
)
@pytest.mark.parametrize("suffix", [".npz", ".yaml"])
def test_artifacts_come_back_bit_for_bit(loss, suffix, tmp_path):
    path = purerl.save_part(loss, tmp_path / f"loss{suffix}")
    again = purerl.load_part(path, "loss")
    assert type(again) is type(loss)
    assert jax.tree.structure(again) == jax.tree.structure(loss)
    as_floats = jax.tree.map(np.float32, (again, loss))
    assert_same_bits(*as_floats)
    assert serialise.parse_part(str(path), "loss") is not None
    field = "policy_loss" if "Drift" in type(loss).__name__ else "value_loss"
    purerl.make_train(purerl.PPOConfig(**{field: again}))  # any training takes it


def test_what_is_no_artifact(tmp_path):
    with pytest.raises(ConfigError, match=r"written to .yaml or .yml or .npz"):
        purerl.save_part(losses.ClipDrift(), tmp_path / "loss.pkl", "loss")
    with pytest.raises(ConfigError, match="takes a loss"):
        purerl.save_part(losses.ClipDrift, tmp_path / "loss.npz", "loss")
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    with pytest.raises(ConfigError, match="cannot read the loss"):
        purerl.load_part(tmp_path / "bad.npz", "loss")
    (tmp_path / "bad.yaml").write_text("gamma: 0.9")
    with pytest.raises(ConfigError, match="holds no loss"):
        purerl.load_part(tmp_path / "bad.yaml", "loss")
    np.savez(tmp_path / "pickled.npz", header=np.array([{"a": 1}], object))
    with pytest.raises(ConfigError, match="cannot read the loss"):
        purerl.load_part(tmp_path / "pickled.npz", "loss")


def test_the_curve_of_a_value_loss_is_its_values_and_slopes():
    errors = jnp.array([-2.0, 0.0, 3.0])
    value, slope = loss_plots.curve(losses.SquaredError(), errors, target=7.0)
    np.testing.assert_allclose(value, [2.0, 0.0, 4.5], rtol=1e-6)
    np.testing.assert_allclose(slope, errors, rtol=1e-6)


@pytest.mark.slow
def test_the_curve_of_an_evolution_is_its_history(whole):
    axes = whole.plot().axes
    mean = next(x for x in axes.lines if str(x.get_label()).startswith("mean"))
    np.testing.assert_array_equal(mean.get_ydata(), whole.history["mean"])
    np.testing.assert_array_equal(mean.get_xdata(), [1, 2, 3])
    assert len(whole.plot_loss().axes) == 7  # DPO's two numbers make a drift
