"""The Python of README.md runs as it stands, from top to bottom."""

import pytest

from tests.docs import pages

README = pages.ROOT / "README.md"


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    if not README.exists():
        pytest.skip("there is no README.md yet")
    if not any(block.language == "python" for block in pages.blocks(README)):
        pytest.skip("README.md has no python blocks")
    monkeypatch.chdir(tmp_path)  # what it writes, it writes here
    monkeypatch.setenv("MPLBACKEND", "Agg")
    pages.run(README)
