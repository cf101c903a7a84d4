"""A learning result that is trained a few seeds at a time is one row."""

import json

import pytest
import results as batches

import purerl

CONFIG = {"env": "CartPole-v1"}


def batch(which, per_seed, curve, **changes):
    return {
        "row": "name",
        "which": which,
        "at_once": 2,
        "config": CONFIG,
        "steps": 100,
        "seeds": len(which),
        "mean": sum(per_seed) / len(per_seed),
        "per_seed": per_seed,
        "curve_steps": [50, 100],
        "curve": curve,
        "compile_seconds": 2.0,
        "train_seconds": 10.5,
        "load_before": 0.1,
        "hardware": "a machine",
        "date": "2026-11-25",
        "python": "3.11.7",
        "jax": "0.10.2",
    } | changes


def test_all_batches_together_are_one_row():
    second = batch([0, 1], [1.0, 3.0], [0.0, 2.0])
    first = batch([2], [8.0], [3.0, 8.0], hardware="another", date="2026-11-24")
    found = batches.together([first, second])
    assert found["per_seed"] == [1.0, 3.0, 8.0] and found["seeds"] == 3
    assert found["mean"] == 4.0
    assert found["curve"] == [1.0, 4.0]  # Of three agents, not of two batches.
    assert (found["train_seconds"], found["compile_seconds"]) == (21.0, 4.0)
    assert found["hardware"] == "a machine and another"
    assert found["date"] == "2026-11-24 to 2026-11-25"
    assert not {"which", "at_once", "config"} & set(found)
    unknown = batch([3], [1.0], [0.0, 1.0], train_seconds=None)
    assert batches.together([second, unknown])["train_seconds"] is None


def test_what_is_in_the_file_is_not_trained_again(tmp_path, monkeypatch):
    path, trained = tmp_path / "name.json", []
    monkeypatch.setattr(batches.frame, "RESULTS", tmp_path)
    monkeypatch.setattr(batches, "config_of", lambda row: purerl.PPOConfig(**CONFIG))

    def train(name, row, which, lanes, out):
        trained.append((which, lanes, out.name))
        return None if 4 in which else batch(which, [1.0] * len(which), [0.0, 1.0])

    monkeypatch.setattr(batches, "train", train)
    known = [batch([0, 1], [1.0, 3.0], [0.0, 2.0]), batch([3], [1.0], [0.0, 1.0])]
    path.write_text(json.dumps(batches.together(known)))
    row = batches.Row("title", "preset", seeds=6)
    # Of the six seeds 2, 4 and 5 are missing, and 4 is stopped.
    found = list(batches.train_in_batches("name", row, 2, tmp_path))
    assert trained == [([2, 4], 2, "seed-2")] and found == []
    row = row._replace(seeds=4)
    (found,) = batches.train_in_batches("name", row, 2, tmp_path)
    assert found["per_seed"] == [1.0, 3.0, 1.0, 1.0]
    assert json.loads(path.read_text()) == found


def test_batches_of_other_settings_are_not_gone_on_with(tmp_path):
    path = tmp_path / "row.json"
    assert batches.read_batches(path, CONFIG, 2) == []
    known = [batch([0, 1], [1.0, 3.0], [0.0, 2.0])]
    path.write_text(json.dumps(batches.together(known)))
    assert batches.read_batches(path, CONFIG, 2) == known
    with pytest.raises(SystemExit, match=r"seeds \[0, 1\] had other settings"):
        batches.read_batches(path, {"env": "Doors-v0"}, 2)
    with pytest.raises(SystemExit, match=r"--at-once \(2\)"):
        batches.read_batches(path, CONFIG, 1)
    path.write_text(json.dumps({"seeds": 10, "per_seed": [1.0] * 10}))
    with pytest.raises(SystemExit, match=r"has all 10 seeds, trained at once"):
        batches.read_batches(path, CONFIG, 2)
