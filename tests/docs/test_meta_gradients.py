"""The page on meta-gradients: its code runs as it stands."""

import jax
import numpy as np
import pytest

from .pages import ROOT, run


@pytest.mark.slow(optimised=False)
def test_the_pages_code_runs(capsys):
    names = run(ROOT / "docs" / "meta-gradients.md")
    assert "step 3: return" in capsys.readouterr().out
    found = jax.jit(names["sharp"])(names["state"])
    assert float(found.gradient["entropy_coef"]) < 0
    result = names["result"]
    assert result.course["learning_rate"].shape == (32,)
    learned = jax.tree.leaves(names["learned"])
    assert sum(x.size for x in learned) == 36 and np.isfinite(learned[0]).all()
    assert np.abs(learned[1]).max() > 0  # the last kernel began at zero
