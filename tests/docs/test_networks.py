"""The page on networks: its code runs as it stands."""

import numpy as np

from tests.docs.pages import ROOT, run


def test_the_pages_code_runs(capsys):
    names = run(ROOT / "docs" / "networks.md")
    torso = names["result"].state.params["actor"]["params"]["torso"]["module"]
    assert torso["Dense_0"]["kernel"].shape == (4, 16)
    assert np.isfinite(names["result"].metrics["value_loss"]).all()
    out = capsys.readouterr().out
    assert "must map inputs (3, 4) to float32 (3,) (one value per observation)" in out
    assert "type: networks:Fourier\n  features: 16\n  scale: 1.0\n" in out
    assert names["own"].critic.size == 32
