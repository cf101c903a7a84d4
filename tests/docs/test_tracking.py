"""The page on trackers: those of its code stop their runs."""

import pytest

from tests.docs.pages import ROOT, run


@pytest.mark.slow
def test_the_trackers_of_the_page_stop_their_runs(capsys):
    names = run(ROOT / "docs" / "tracking.md", "Stop early")
    told = capsys.readouterr().out.split()
    assert told[0] == "False"
    scores = [float(x.strip("[]")) for x in told[1:] if x.strip("[]")]
    assert len(scores) == 2 and min(scores) >= 300
    assert names["policy"]([0.0] * 4) in (0, 1)
    assert not names["result"].finished
