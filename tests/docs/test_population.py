"""The page on population searches: its code runs as it stands."""

import numpy as np
import pytest

from .pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run(ROOT / "docs" / "population.md")
    assert "learning_rate" in capsys.readouterr().out
    assert names["again"].score.shape == (1, 4)
    # Brackets of nine, five and three members; the best third goes on.
    trained = names["result"].dataset.trained_updates.values
    assert [b.size for b in names["result"].plan.brackets] == [9, 5, 3]
    assert np.array_equal((trained >= 12).sum(1), [11, 11])
