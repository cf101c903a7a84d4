"""What all experiments share: command lines, kept numbers, parts, tables."""

import json
import sys
from pathlib import Path

import frame
import pytest

import purerl
from purerl import serialise

FOLDER = Path(__file__).parents[2] / "experiments"
ROWS = frame.Words(("one", "two"))


def asked(monkeypatch, *words, **flags):
    monkeypatch.setattr(sys, "argv", [str(FOLDER / "evolve.py"), *words])
    return frame.options("What it does.", rows=ROWS, **flags)


def test_a_command_says_what_differs_from_the_defaults(monkeypatch):
    flags = {"steps": (5, "of each"), "sizes": [1, 2], "dry": False, "out": Path}
    flags |= {"kind": ("a", ["a", "b"]), "rate": float}
    plain = asked(monkeypatch, **flags)
    assert plain.command == "python experiments/evolve.py"
    assert (plain.steps, plain.sizes, plain.rate, plain.out) == (5, [1, 2], None, None)
    words = ["two", "--sizes", "3", "4", "--rate", "0.5", "--dry", "--out", "x"]
    found = asked(monkeypatch, *words, **flags)
    assert found.command == "python experiments/evolve.py two --sizes 3 4 --rate 0.5"
    assert found.rows == ["two"] and found.dry and found.out == Path("x")


@pytest.mark.parametrize("words", [["three"], ["--kind", "c"], ["--steps", "many"]])
def test_unknown_words_and_values_are_refused(words, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        asked(monkeypatch, *words, steps=5, kind=("a", ["a", "b"]))
    assert "error: " in capsys.readouterr().err


def test_numbers_are_kept_with_their_command_and_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(frame, "RESULTS", tmp_path)
    frame.keep("found", asked(monkeypatch, "--dry", dry=False), {"score": 1.5})
    assert not list(tmp_path.iterdir())
    frame.keep("found", asked(monkeypatch, dry=False), {"score": 1.5})
    kept = json.loads((tmp_path / "found.json").read_text())
    assert kept["score"] == 1.5 and kept["command"] == "python experiments/evolve.py"
    assert kept["hardware"] in frame.printed_on(kept)


def test_a_config_that_has_got_or_lost_a_field_is_the_same():
    config = serialise.to_dict(purerl.PPOConfig(gamma=0.9))
    older = {k: v for k, v in config.items() if k != "max_bad_transitions"}
    older["a_field_that_went"] = 1
    assert frame.is_same({"config": older}, {"config": config})
    changed = serialise.to_dict(purerl.PPOConfig(gamma=0.9, max_bad_transitions=0.5))
    assert not frame.is_same({"config": older}, {"config": changed})
    assert not frame.is_same({"config": older, "n": 1}, {"config": config, "n": 2})


def test_a_table_is_one_in_markdown():
    lines = frame.markdown(["a", "b"], [["x | y", 1]])
    assert lines == ["| a | b |", "|---|---|", "| x \\| y | 1 |"]


def test_another_process_says_its_last_line():
    code = "import os; print('words'); print([int(os.environ['N'])])"
    assert frame.child("-c", code, env={"N": "3"}) == [3]
    with pytest.raises(SystemExit, match="ZeroDivisionError"):
        frame.child("-c", "1 / 0")
