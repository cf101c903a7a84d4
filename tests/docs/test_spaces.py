"""The page on spaces: its code runs as it stands, and prints what it says."""

import pytest

from tests.docs.pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs(capsys):
    names = run(ROOT / "docs" / "spaces.md")
    said = ["True", "['force', 'side']", "True", "True"]
    assert capsys.readouterr().out.splitlines()[:4] == said
    assert names["four"].action_space().n == 5
