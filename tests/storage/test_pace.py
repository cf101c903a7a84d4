"""The time between checkpoints: saving takes little of a run."""

from types import SimpleNamespace

import pytest

import purerl
from purerl.meta import store
from purerl.search import folder as searches
from purerl.storage import checkpoint
from purerl.storage.checkpoint import Pace
from tests.helpers import tiny_config


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


def _run(config, **options):
    purerl.run(config, seeds=2, lanes=2, segment_updates=3, **options)


def _pbt(config, **options):
    axes = {"gamma": purerl.uniform(0.9, 0.999)}
    size = {"population": 2, "ready_updates": 4, "lanes": 2, "fitness": "evaluation"}
    purerl.pbt(config, axes, searches=[0], **size, **options)


def _evolve(config, **options):
    size = {"population": 2, "generations": 5, "lanes": 2}
    purerl.evolve(config, ["learning_rate"], **size, **options)


@pytest.mark.parametrize(
    ("train", "place", "name"),
    [
        (_run, checkpoint, "save"),
        (_pbt, searches, "save_states"),
        (_evolve, store, "save"),
    ],
)
def test_training_goes_on_between_checkpoints_that_take_long(
    clock, monkeypatch, tmp_path, train, place, name
):
    saved, save = [], getattr(place, name)

    def slow(*args):
        clock[0] += 1000.0
        saved.append(args)
        save(*args)

    monkeypatch.setattr(place, name, slow)
    # Due after every segment, round or generation, if it took no time.
    train(tiny_config(), out=tmp_path, checkpoint_seconds=0.5, progress=False)
    assert len(saved) == 2  # after the first one, and at the end
