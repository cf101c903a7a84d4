import json

import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.cli import main
from tests.helpers import tiny_config


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    serialise.to_yaml(tiny_config(num_evaluations=0), path)
    return str(path)


AXES = ["--axis", "learning_rate=loguniform(1e-4,1e-2)", "--axis", "gamma=0.9,0.99"]
COMMON = ["--lanes", "4", "--no-progress"]


@pytest.mark.slow
def test_pbt_writes_a_folder_and_prints_the_schedule(config, tmp_path, capsys):
    out = tmp_path / "search"
    command = ["pbt", "--config", config, *AXES, *COMMON, "--out", str(out)]
    command += ["--population", "5", "--ready-updates", "5", "--fitness", "evaluation"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "schedule of member" in printed and "learning_rate" in printed
    result = purerl.load_search(out)
    assert result.finished and result.dataset.sizes["member"] == 5
    numbers = json.loads((out / "summary.json").read_text())
    assert numbers["best_score"] == result.best().score
    assert numbers["training_steps"] == 5 * 640
    best = serialise.from_yaml(out / "best.yaml")
    assert best.learning_rate == pytest.approx(result.best().config.learning_rate)
    assert main(command) == 0  # it had finished: the same again, and nothing trained
    assert capsys.readouterr().out.splitlines()[0] == printed.splitlines()[0]
    assert json.loads((out / "summary.json").read_text()) == numbers  # times, too
    assert numbers["train_seconds"] > 0


@pytest.mark.slow(optimised=False)
def test_halving_writes_a_folder_and_prints_the_rungs(config, tmp_path, capsys):
    out = tmp_path / "search"
    command = ["halving", "--config", config, *AXES, *COMMON, "--out", str(out)]
    command += ["--min-updates", "2", "--searches", "2"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "2 updates" in printed and "best member of each search" in printed
    trained = purerl.load_search(out).dataset.trained_updates.values
    assert np.array_equal((trained >= 6).sum(1), [11, 11])


def test_what_differs_is_said_in_a_sentence(config, tmp_path, capsys):
    out = str(tmp_path / "search")
    command = ["halving", "--config", config, *AXES, *COMMON, "--out", out]
    assert main([*command, "--min-updates", "2", "--brackets", "one"]) == 0
    assert main([*command, "--min-updates", "4", "--brackets", "one"]) == 2
    error = capsys.readouterr().err
    assert "min_updates is 2 there and 4 here" in error
    assert main(["pbt", "--config", config, *COMMON]) == 2
    assert "at least one axis" in capsys.readouterr().err
