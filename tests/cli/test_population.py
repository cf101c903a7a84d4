import json

import pytest

import purerl
from purerl import serialise
from purerl.cli import main
from tests.helpers import tiny_config

AXES = ["--axis", "learning_rate=loguniform(1e-4,1e-2)", "--axis", "gamma=0.9,0.99"]
SIZES = {
    "pbt": ["--population", "5", "--ready-updates", "5", "--fitness", "evaluation"],
    "halving": ["--min-updates", "2", "--searches", "2"],
}
PRINTED = {
    "pbt": ("schedule of member", "learning_rate"),
    "halving": ("2 updates", "best member of each search"),
}


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("kind", SIZES)
def test_a_search_writes_a_folder_and_prints_what_it_did(kind, tmp_path, capsys):
    path, out = tmp_path / "config.yaml", tmp_path / "search"
    serialise.to_yaml(tiny_config(num_evaluations=0), path)
    command = [kind, "--config", str(path), *AXES, *SIZES[kind], "--out", str(out)]
    command += ["--lanes", "4", "--no-progress"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert all(words in printed for words in PRINTED[kind])
    result = purerl.load_search(out)
    numbers = json.loads((out / "summary.json").read_text())
    assert result.finished and numbers["best_score"] == result.best().score
    assert numbers["train_seconds"] > 0
    best = serialise.from_yaml(out / "best.yaml")
    assert best.learning_rate == pytest.approx(result.best().config.learning_rate)
    if kind == "halving":
        trained = result.dataset.trained_updates.values
        assert ((trained >= 6).sum(1) == 11).all()
