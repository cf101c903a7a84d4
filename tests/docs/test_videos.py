"""The page on videos: its code runs as it stands."""

from types import SimpleNamespace

import pytest
from PIL import Image

from purerl.report.drawing import registry
from tests.docs.pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_OWN", {})
    names = run(ROOT / "docs" / "videos.md")
    pole = names["draw_pole"](SimpleNamespace(x=0.0, theta=0.0), None)
    assert (pole[:, 160] != 255).any() and (pole[:, 20] == 255).all()
    assert "video.gif" in capsys.readouterr().out
    with Image.open("runs/example/own.gif") as image:
        assert image.size == (640, 284)
