"""The page on spaces: its code runs as it stands, and prints what it says."""

import pytest

from tests.docs.pages import ROOT, run


@pytest.mark.slow
def test_the_pages_code_runs(capsys):
    names = run(ROOT / "docs" / "spaces.md")
    printed = capsys.readouterr().out.splitlines()
    action = printed.pop(3)  # of an agent that has learned next to nothing
    assert action in ("0", "1")
    assert printed[:4] == ["True", "['force', 'side']", "True", "True"]
    assert names["four"].action_space().n == 5
