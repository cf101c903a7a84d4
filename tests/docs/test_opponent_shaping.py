"""The page on opponent shaping: its code runs, and says what the page says."""

import numpy as np
import pytest

from .pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs():
    names = run(ROOT / "docs" / "opponent-shaping.md")
    naive, defecting = names["naive"].payoffs, names["defecting"].payoffs
    assert np.isclose(naive.agent[:, -1].mean(), -2, atol=0.1)
    assert np.isclose(defecting.agent[:, 0].mean(), -1, atol=0.15)
    assert np.isclose(defecting.agent[:, -1].mean(), -2, atol=0.02)
