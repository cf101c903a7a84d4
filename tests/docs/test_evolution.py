"""The page on evolution: its code runs as it stands."""

import numpy as np
import pytest

import purerl

from .pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run(ROOT / "docs" / "evolution.md")
    assert "training_curve" in capsys.readouterr().out
    found = names["comparison"]
    assert found.environments == ("CartPole-v1", "Acrobot-v1")
    assert found.baseline == "squared" and len(found.settings) == 5
    assert np.isfinite(found.scores["final_return"]).all()
    loss = purerl.load_loss(tmp_path / "runs/my-evolution/value_loss.npz")
    assert type(loss) is type(names["learned"].value_loss)
    assert (tmp_path / "runs/my-evolution/transfer/comparison.json").exists()
