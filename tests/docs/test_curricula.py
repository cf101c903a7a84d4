"""The page on levels and curricula: its code runs. PLR's table has what was kept."""

import json

import numpy as np
import pytest

from tests.docs.pages import ROOT, run

PAGE = ROOT / "docs" / "curricula.md"


@pytest.mark.slow
def test_the_pages_code_runs():
    names = run(PAGE)
    assert 0.8 < names["is_solvable"].mean() < 1
    assert names["best"].max() <= 1
    buffer = names["result"].state.level_buffer
    goals = np.asarray(buffer.levels.goal)[: int(buffer.size)]
    assert goals.min() >= 1 and goals.max() <= 8
    assert names["pieces"].score.shape == (1, 2)
    assert names["pieces"].train["episode_return"].shape == (1, 2, 3)
    assert np.isfinite(names["returns"]).all() and names["returns"].shape == (2, 9)


def test_the_results_of_plr_are_the_means_that_were_kept():
    results = ROOT / "experiments" / "results" / "level-replay.json"
    scores = json.loads(results.read_text())["scores"]
    page = (ROOT / "docs" / "results" / "methods.md").read_text()
    _, section = page.split('<a id="plr"></a>')
    lines = section.split("\n## ")[0].splitlines()
    rows = [[x.strip() for x in x.split("|")[1:-1]] for x in lines if "0." in x]
    told = [[cell.split()[0] for cell in row[2:]] for row in rows if len(row) == 6]
    assert told == [
        [f"{np.mean(values):.3f}" for values in of_setting.values()]
        for of_setting in scores.values()
    ]
