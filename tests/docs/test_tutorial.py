"""The tutorial: its code runs as it stands, and what it says of the results is so."""

import numpy as np
import pytest

from purerl.losses import LOSSES

from .pages import ROOT, run


@pytest.fixture
def registry():
    before = dict(LOSSES)
    yield
    LOSSES.clear()
    LOSSES.update(before)


@pytest.mark.slow
def test_the_tutorials_code_runs(capsys, registry):
    names = run(ROOT / "docs" / "tutorial.md")
    out = capsys.readouterr().out
    assert "range of 8)" in out and "256 seeds: mean" in out
    assert names["final"].shape == (256,)
    # Every seed of the sweep and of the comparison was trained.
    assert names["best"].point.keys() == {"learning_rate", "entropy_coef"}
    assert names["judged"].table() is not None
    # No ferry is better than shortest ways, and all are far better than a drift.
    score, best = names["score"], names["best_return"]
    assert -25 * 0.5 + 5 < score.min() and score.mean() < best + 0.3
    assert float(names["evolved"].loss.weight) > 0
    assert np.isfinite(names["evolved"].history["mean"]).all()
