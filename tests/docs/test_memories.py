"""The page on memories: its code runs as it stands."""

import numpy as np
import pytest

from tests.docs.pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs(capsys):
    names = run(ROOT / "docs" / "memories.md")
    core = names["result"].state.params["core"]["params"]
    assert core["memory"]["Dense_0"]["kernel"].shape == (128, 8)
    assert np.isfinite(names["result"].metrics["value_loss"]).all()
    assert capsys.readouterr().out == "16\n"
    # The mean of what an episode has seen so far, from its beginning on.
    average = names["Average"](1)
    inputs = np.array([[[2.0]], [[4.0]], [[7.0]]])
    resets = np.array([[False], [False], [True]])
    params = {"params": {"Dense_0": {"kernel": np.ones((1, 1)), "bias": np.zeros(1)}}}
    found = average.apply(params, average.initial((1,)), inputs, resets)
    np.testing.assert_allclose(found[1][:, 0, 0], [2.0, 3.0, 7.0])
