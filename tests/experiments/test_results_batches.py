"""A learning result that is trained a few seeds at a time is one row."""

import json
import threading
import time

import pytest
import results as batches

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


def test_what_is_in_the_file_is_not_trained_again(tmp_path):
    path = tmp_path / "row.json"
    assert batches.read_batches(path) == []
    assert batches.next_seeds([], range(5), 2) == [0, 1]
    known = [batch([0, 1], [1.0, 3.0], [0.0, 2.0]), batch([3], [1.0], [0.0, 1.0])]
    path.write_text(json.dumps(batches.together(known)))
    read = batches.read_batches(path)
    assert read == known
    assert batches.next_seeds(read, range(5), 2) == [2, 4]
    assert batches.next_seeds(read, [1, 0], 2) == []
    assert batches.next_seeds(read, [1, 4, 2], 1) == [4]


def test_batches_of_other_settings_are_not_gone_on_with():
    known = [batch([0, 1], [1.0, 3.0], [0.0, 2.0])]
    batches.check_alike(known, CONFIG, 2)
    with pytest.raises(SystemExit, match=r"seeds \[0, 1\] had other settings"):
        batches.check_alike(known, {"env": "Doors-v0"}, 2)
    with pytest.raises(SystemExit, match=r"--at-once \(2\)"):
        batches.check_alike(known, CONFIG, 1)


def test_a_row_that_was_trained_at_once_is_not_trained_again_seed_by_seed(tmp_path):
    path = tmp_path / "row.json"
    path.write_text(json.dumps({"seeds": 10, "per_seed": [1.0] * 10}))
    with pytest.raises(
        SystemExit, match=r"row\.json has all 10 seeds, trained at once"
    ):
        batches.read_batches(path)


def test_processes_that_end_at_once_both_keep_their_seeds(tmp_path):
    """The second waits until the first has read and written."""
    path, order = tmp_path / "row.json", []

    def end(which):
        with batches.alone(tmp_path / "runs"):
            read = batches.read_batches(path)
            order.append(which)
            time.sleep(0.2)
            new = batch([which], [1.0], [0.0, 1.0])
            path.write_text(json.dumps(batches.together([*read, new])))

    both = [threading.Thread(target=end, args=(which,)) for which in (0, 1)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(order) == 2
    assert batches.next_seeds(batches.read_batches(path), range(3), 1) == [2]
