"""The Python of the pages for users runs as it stands, from top to bottom."""

import pytest

from tests.docs import pages

PAGES = (
    "README.md",
    "docs/index.md",
    "docs/coming-from/purejaxrl.md",
    "docs/coming-from/rejax.md",
    "docs/coming-from/stable-baselines3.md",
    "docs/comparing.md",
    "docs/devices.md",
    "docs/evaluating.md",
    "docs/exporting.md",
    "docs/getting-started.md",
    "docs/sweeps.md",
    "docs/training.md",
    "docs/tuning.md",
    "docs/warm-starts.md",
    *(f"docs/algorithms/{name.replace('_', '-')}.md" for name in pages.ALGORITHMS),
)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    path = pages.ROOT / page
    assert any(block.language == "python" for block in pages.blocks(path))
    monkeypatch.chdir(tmp_path)  # what it writes, it writes here
    monkeypatch.setenv("MPLBACKEND", "Agg")
    pages.run(path)
