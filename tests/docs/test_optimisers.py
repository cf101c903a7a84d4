"""The page on optimisers and schedules: its code runs, and what it prints is so."""

import jax
import numpy as np
import pytest

import purerl
from tests.helpers import assert_same_bits

from .pages import ROOT, run

# As they come with purerl: the page registers another one.
NAMES = (*purerl.optimisers.OPTIMISERS, *purerl.schedules.SCHEDULES)


@pytest.mark.slow
def test_the_pages_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(ROOT / "docs" / "optimisers.md")
    learned, adam = map(float, names["policies"])
    assert learned == pytest.approx(adam, rel=1e-4)
    assert_same_bits(names["again"], names["learned"])
    divergence = names["result"].metrics["approx_kl"][:, -1]
    assert divergence[1] > divergence[0] > 0
    shares = np.array([0.0, 0.05, 0.5, 1.0], np.float32)
    rates = [names["moving"].learning_rate(share) for share in shares]
    left = 0.5 * (1 + np.cos(np.pi * 0.45 / 0.95))
    np.testing.assert_allclose(rates, [0.0, 1e-3, 1e-3 * left, 0.0], atol=1e-9)
    _check_norms(names)


def _check_norms(names):
    """With one gradient in an update, the layers' norms make that of all of them."""
    one = names["watched"].replace(num_epochs=1, num_minibatches=1)
    train = purerl.make_train(one, metrics=names["norms"])
    metrics = jax.jit(train)(jax.random.key(0)).metrics
    layers = [x for name, x in metrics.items() if name.startswith("norm[")]
    assert len(layers) == 12  # Actor and critic: three kernels and biases each.
    whole = np.sqrt(np.square(layers).sum(0))
    np.testing.assert_allclose(whole, metrics["grad_norm"], rtol=1e-5)


def test_the_pages_tables_have_every_part():
    text = (ROOT / "docs" / "optimisers.md").read_text()
    for name in NAMES:
        assert f"| `{name}" in text, name
