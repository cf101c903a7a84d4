"""Trackers without their packages: names, failures, time, what is remembered."""

import json
import math
import shutil

import pytest

import purerl
from purerl.config import ConfigError
from purerl.runner.trackers import choose
from purerl.runner.trackers.base import flat_params, scalars
from purerl.runner.trackers.group import begin_anew, load_stored
from purerl.storage.files import write_json

from .conftest import run_tiny
from .told import Flushes, Keeps, at, group, whole


def test_numbers_of_a_row():
    row = {
        "update": 3,
        "env_steps": 96,
        "episodes": 2,
        "episode_return": [1.0, None, 4.0],
        "value_loss": 0.5,
    }
    assert dict(scalars({"kind": "evaluation", **row})) == {
        "evaluation/episodes": 2.0,
        "evaluation/episode_return": 2.5,
        "evaluation/episode_return_min": 1.0,
        "evaluation/episode_return_max": 4.0,
        "evaluation/value_loss": 0.5,
    }


def test_what_is_undefined_is_left_out_and_what_diverged_is_not():
    row = {
        "kind": "train",
        "env_steps": 1,
        "episodes": 0,
        "policy_steps": 0,
        "episode_return": None,
        "policy_loss": None,
        "value_loss": None,
    }
    counts = {"train/episodes": 0.0, "train/policy_steps": 0.0}
    learned = dict(scalars({**row, "gradient_steps": 4}))
    assert math.isnan(learned.pop("train/value_loss"))
    assert learned == {"train/gradient_steps": 4.0, **counts}
    warming_up = dict(scalars({**row, "gradient_steps": 0}))
    assert warming_up == {"train/gradient_steps": 0.0, **counts}
    # A policy that took steps and has no loss has diverged.
    moved = dict(scalars({**row, "gradient_steps": 4, "policy_steps": 2}))
    assert math.isnan(moved["train/policy_loss"])


def test_a_config_as_short_texts():
    values = {
        "env": "CartPole-v1",
        "env_params": {"length": 0.7},
        "env_kwargs": {},
        "policy_loss": {"type": "ClipDrift", "clip_eps": 0.2},
        "table": list(range(1000)),
    }
    found = flat_params(values, limit=20)
    assert found.pop("table") == "[0, 1, 2, 3, 4, 5, …"[:19] + "…"
    assert found == {
        "env": "CartPole-v1",
        "env_params.length": "0.7",
        "env_kwargs": "{}",
        "policy_loss": "ClipDrift(clip_eps=…",
    }


@pytest.mark.parametrize(
    ("trackers", "fragment"),
    [
        (["mlfow"], "there is no tracker 'mlfow', only mlflow"),
        ("mlflow", "trackers must be a list"),
        ([object()], "takes names and subclasses of purerl.Tracker"),
        (["tensorboard", "tensorboard"], "names 'tensorboard' twice"),
    ],
)
def test_mistakes_get_a_sentence_before_anything_is_written(
    tiny, tmp_path, trackers, fragment
):
    with pytest.raises(ConfigError, match=fragment):
        run_tiny(tiny, out=tmp_path / "run", trackers=trackers)
    assert not (tmp_path / "run").exists()


def test_an_unknown_option_gets_a_sentence():
    with pytest.raises(ConfigError, match="Did you mean 'folder'"):
        purerl.make_tracker("tensorboard", foldr="x")


@pytest.mark.parametrize(
    ("name", "package"),
    [("mlflow", "alembic"), ("tensorboard", "tensorboardX"), ("wandb", "wandb")],
)
def test_a_missing_package_gets_a_sentence(monkeypatch, name, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ConfigError) as error:
        purerl.make_tracker(name)
    assert f"needs the package {package}" in str(error.value)
    assert "pip install 'purerl[tracking]'" in str(error.value)


@pytest.mark.parametrize("method", ["log", "flush", "close"])
def test_a_failing_tracker_is_left_out_with_one_sentence(tmp_path, method):
    bad, good = Flushes(fails=method), Keeps()
    failed, missing = whole(bad, good, updates=(1, 2, 3), folder=tmp_path)
    assert good.told == [("train", 0, 1), ("train", 0, 2), ("train", 0, 3)]
    assert good.status == "finished"
    # It is closed all the same, so that it gives back what it holds.
    assert bad.is_closed.wait(0.0 if method == "close" else 10.0) == (method != "close")
    assert bad.status == ("" if method == "close" else "failed")
    assert f"tracker 'keeps' failed (OSError: no room for {method})" in failed
    assert "second line" not in failed
    told = "has all updates" if method == "close" else "lacks 3 of 3 updates"
    assert told in missing and f"purerl.track('{tmp_path}', [Flushes(" in missing


def test_a_tracker_that_cannot_begin_stops_a_new_run_and_leaves_no_run(tiny, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"cannot begin \(OSError: no room for begin"):
        run_tiny(tiny, out=out, trackers=[Keeps(fails="begin")])
    assert run_tiny(tiny, out=out, trackers=[Keeps()]).finished  # the same folder


def test_a_tracker_that_cannot_go_on_does_not_stop_a_resumed_run(tmp_path):
    whole(Keeps(id="a"), updates=[5], folder=tmp_path, status="interrupted")
    said = whole(Keeps(fails="begin", id="a"), updates=(5, 6), folder=tmp_path)
    assert "left out" in said[0] and "lacks 1 of 2 updates" in said[1]
    assert load_stored(tmp_path)["keeps"]["told"] == [[0, 0]]


def test_a_tracker_with_rows_that_do_not_hold_begins_anew(tmp_path):
    whole(Keeps(id="a"), updates=(1, 2, 3), folder=tmp_path, status="interrupted")
    begin_anew(tmp_path, 3)
    assert load_stored(tmp_path)["keeps"]["id"] == "a"  # All of them hold.
    begin_anew(tmp_path, 1)
    whole(Keeps(fails="begin"), updates=(), folder=tmp_path, status="interrupted")
    begin_anew(tmp_path, 0)  # Before the tracker has begun anew.
    new = Keeps(id="b")
    said = whole(new, updates=(1, 2), folder=tmp_path)
    assert (new.begun.id, new.begun.replaces) == (None, "a") and not said
    assert new.told == [("train", 0, 1), ("train", 0, 2)]
    entry = {"id": "b", "told": [[0, 1]], "status": "finished", "options": {}}
    entry |= {"total": None, "members": 0, "folder": str(tmp_path.resolve())}
    assert load_stored(tmp_path)["keeps"] == entry


def test_a_copied_folder_begins_anew_and_a_moved_one_goes_on(tmp_path):
    """Rows of the copy and of the original would mix in one place."""
    original, copied, moved = (tmp_path / name for name in ("one", "two", "three"))
    original.mkdir()
    whole(Keeps(id="a"), updates=(1, 2), folder=original)
    shutil.copytree(original, copied)
    same = Keeps(id="a")  # Its identity is always the same.
    shutil.copytree(original, tmp_path / "same")
    whole(same, updates=(1, 2, 3), folder=tmp_path / "same")
    assert same.updates == [1, 2, 3]
    copy = Keeps(id="b")
    said = whole(copy, updates=(1, 2, 3), folder=copied)
    assert (copy.begun.id, copy.begun.replaces) == (None, None)
    assert copy.updates == [1, 2, 3] and f"a copy of {original}" in said[0]
    original.rename(moved)
    for folder, id in ((moved, "a"), (copied, "b")):
        again = Keeps(id="c")
        assert not whole(again, updates=(1, 2, 3, 4), folder=folder)
        assert again.begun.id == id and again.updates[-1] == 4
    assert load_stored(moved)["keeps"]["told"] == [[0, 3]]


def test_rows_are_told_once_and_in_order_and_what_was_missed_later(tmp_path):
    first = Keeps(id="a")
    trackers, _ = group(first, folder=tmp_path)
    trackers.tell([(0, at(3)), (0, at(2, "evaluation"))])
    trackers.close("interrupted")
    assert first.told == [("evaluation", 0, 2), ("train", 0, 3)]
    entry = {"id": "a", "told": [[0, 1]], "status": "interrupted", "options": {}}
    entry |= {"total": None, "members": 0, "folder": str(tmp_path.resolve())}
    assert load_stored(tmp_path) == {"keeps": entry}

    again, new = Keeps(), Keeps()
    new.name = "new"
    trackers, _ = group(again, new, folder=tmp_path)
    assert again.begun.id == "a" and new.begun.id is None
    trackers.tell([(0, at(3)), (0, at(2, "evaluation")), (0, at(6))])
    trackers.close("finished")
    assert again.told == [("train", 0, 6)]
    assert new.told == [("evaluation", 0, 2), ("train", 0, 3), ("train", 0, 6)]


def test_a_resumed_run_has_the_trackers_that_it_was_started_with(tmp_path):
    logs = str(tmp_path / "logs")
    stored = {"tensorboard": {"id": "x", "options": {"folder": logs}}}
    write_json(tmp_path / "trackers.json", stored)
    (remade,) = choose(None, tmp_path)
    (named,) = choose(["tensorboard"], tmp_path)
    assert remade.options == named.options == {"folder": logs}
    assert choose([], tmp_path) == [] and choose(None, None) == []
    for text in ("{", json.dumps(stored)):
        (tmp_path / "trackers.json").write_text(text)
        with pytest.raises(ConfigError, match="damaged"):
            choose(None, tmp_path)
