"""The Python of the pages for users runs as it stands, from top to bottom."""

import pytest

from tests.docs import pages


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/sweeps.md"])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    path = pages.ROOT / page
    assert any(block.language == "python" for block in pages.blocks(path))
    monkeypatch.chdir(tmp_path)  # what it writes, it writes here
    monkeypatch.setenv("MPLBACKEND", "Agg")
    pages.run(path)
