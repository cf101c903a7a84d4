"""The time between checkpoints: saving takes little of a run."""

from types import SimpleNamespace

import pytest

import purerl
from purerl.storage import checkpoint
from purerl.storage.checkpoint import Pace
from tests.helpers import tiny_table


@pytest.fixture
def clock(monkeypatch):
    """Seconds in a list; one passes whenever somebody looks."""
    now = [0.0]

    def monotonic():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=monotonic))
    return now


def test_a_checkpoint_is_due_after_ten_times_what_the_last_one_took(clock):
    due = Pace(30.0)
    assert not due.is_due()
    clock[0] += 30.0
    assert due.is_due()
    with due.saving():
        clock[0] += 99.0  # 100 s with that of the clock itself
    clock[0] += 990.0
    assert not due.is_due()
    clock[0] += 10.0
    assert due.is_due()
    with due.saving():
        pass
    clock[0] += 20.0
    assert not due.is_due()
    clock[0] += 10.0
    assert due.is_due()


def test_a_save_that_fails_counts_as_one_and_0_seconds_saves_everything(clock):
    due, always = Pace(5.0), Pace(0.0)
    for each in (due, always):
        with pytest.raises(OSError), each.saving():
            clock[0] += 10.0
            raise OSError
    clock[0] += 20.0
    assert not due.is_due() and always.is_due()


def test_training_goes_on_between_checkpoints_that_take_long(
    clock, monkeypatch, tmp_path
):
    saved, save = [], checkpoint.save

    def slow(*args):
        clock[0] += 1000.0
        saved.append(args)
        save(*args)

    monkeypatch.setattr(checkpoint, "save", slow)
    # Due after every segment, if it took no time.
    options = {"checkpoint_seconds": 0.5, "segment_updates": 3, "progress": False}
    purerl.run(tiny_table(), out=tmp_path, **options)
    assert len(saved) == 2  # after the first one, and at the end
