"""A finished sweep in trackers: every member once, also when one fails on the way."""

import json
import threading

import pytest

import purerl
from purerl.config import ConfigError
from purerl.sweeps import tracking

from .conftest import RATES, run_sweep

MEMBERS = [(rate, seed) for rate in RATES[:2] for seed in (0, 1)]


class Keeps(purerl.Tracker):
    """Keeps whose rows it is told; fails at one member if it is asked to."""

    name = "keeps"

    def __init__(self, fails_at=None, error=None):
        self.id, self.fails_at, self.error = None, fails_at, error
        self.members, self.rows, self.status, self.files = [], 0, "", []

    def begin(self, run):
        self.run, self.id, self.gone_on = run, run.id or "there", run.id is not None

    def log(self, kind, seed, row):
        if seed == self.fails_at:
            self.error()
        member = self.run.members[seed]
        known = (member.params["learning_rate"], member.seed)
        if known not in self.members:
            self.members.append(known)
        self.rows += 1

    def artifact(self, path, name):
        self.files.append(name)

    def close(self, status="finished"):
        self.status = status


def dies():
    raise OSError("the server has stopped")


@pytest.fixture
def swept(tiny, tmp_path, capsys):
    """A folder whose tracker has two of four members, that tracker, what was said."""
    out, first = tmp_path / "swept", Keeps(2, dies)
    axes = {"learning_rate": RATES[:2]}
    assert run_sweep(tiny, axes, seeds=2, out=out, trackers=[first]).finished
    return out, first, capsys.readouterr().err


def test_what_a_tracker_has_missed_of_a_sweep_is_sent_later(swept, capsys):
    out, first, said = swept
    assert "tracker 'keeps' failed (OSError: the server has stopped)" in said
    assert f"purerl.track('{out}', [Keeps(...)])" in said
    entry = json.loads((out / "trackers.json").read_text())["keeps"]
    assert (entry["rows"], entry["total"], entry["status"]) == (2, 4, "")
    second = Keeps()
    assert purerl.track(out, [second])
    assert second.gone_on and second.status == "finished"
    assert first.members == MEMBERS[:2] and second.members == MEMBERS[2:]
    assert first.rows == second.rows and "sweep/config.yaml" in second.files
    third = Keeps()
    assert purerl.track(out, [third])
    assert third.members == [] and third.status == ""
    assert "has everything" in capsys.readouterr().err


def test_a_tracker_that_does_not_answer_does_not_hold_a_sweep(
    tiny, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(tracking, "BEGIN_SECONDS", 0.3)
    may_go = threading.Event()
    silent = Keeps(1, lambda: may_go.wait(30.0))
    out = tmp_path / "swept"
    result = run_sweep(
        tiny, {"learning_rate": RATES[:2]}, seeds=2, out=out, trackers=[silent]
    )
    may_go.set()
    assert result.finished and silent.members == MEMBERS[:1]
    assert "no answer within 0.3 s" in capsys.readouterr().err
    assert json.loads((out / "trackers.json").read_text())["keeps"]["rows"] == 1


def test_a_sweep_that_has_not_finished_is_not_sent(swept):
    out, *_ = swept
    for chunk in (out / "chunks").iterdir():
        chunk.unlink()
    with pytest.raises(ConfigError, match="has not finished"):
        purerl.track(out, [Keeps()])
