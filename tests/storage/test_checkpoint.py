"""Checkpoints hold arrays to the last bit, and saving them takes little of a run."""

import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.storage import checkpoint
from purerl.storage.checkpoint import Pace
from tests.helpers import assert_same_bits, tiny_table

TREE = {
    "weights": np.arange(6.0, dtype=np.float32).reshape(2, 3),
    # As the contacts of a physics model that has none.
    "contacts": {
        "dist": np.zeros((2, 0), np.float32),
        "geom": np.zeros((2, 0, 2), int),
    },
    "half": np.zeros((2, 0), jnp.bfloat16),
    "small": np.arange(6, dtype=jnp.bfloat16).reshape(2, 3),
}


def test_arrays_without_elements_are_saved_with_the_others(tmp_path):
    checkpoint.save(tmp_path, 3, TREE, keep=2)
    step, flat = checkpoint.restore(tmp_path)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), TREE)
    found = checkpoint.unflatten(flat, like, tmp_path)
    assert step == 3
    assert_same_bits(found, TREE)
    for mine, theirs in zip(*map(jax.tree.leaves, (found, TREE)), strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)


def test_numbers_of_another_type_are_named_by_their_type():
    flat = {"['bias']": np.zeros((3, 2), np.float64)}
    like = {"bias": jax.ShapeDtypeStruct((2,), np.float32)}
    with pytest.raises(purerl.ConfigError) as error:
        checkpoint.unflatten(flat, like, Path("run"))
    assert "(2,) and is float64, expected (2,) float32." in str(error.value)


def cut(path):
    path.write_bytes(path.read_bytes()[:200])


def one_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def encrypted(path):
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"PK\1\2") + 8] |= 1  # The flags of the first file in it.
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(cut, ".*"), (one_array, ".it is one array.*"), (encrypted, ".*encrypted.*")],
)
def test_a_damaged_checkpoint_says_what_can_be_gone_on_with(tmp_path, damage, words):
    for step in (1, 2):
        checkpoint.save(tmp_path, step, TREE, keep=2)
    damage(tmp_path / "2.npz")
    words = rf"2\.npz is damaged {words}there are 1, 2\."
    with pytest.raises(purerl.ConfigError, match=words):
        checkpoint.restore(tmp_path, 2)


def test_a_checkpoint_that_was_replaced_while_it_was_read_is_not_damaged(
    tmp_path, monkeypatch
):
    checkpoint.save(tmp_path, 1, TREE, keep=1)
    read = checkpoint._read

    def read_late(path):
        if path.stem == "1":
            checkpoint.save(tmp_path, 2, TREE, keep=1)
        return read(path)

    monkeypatch.setattr(checkpoint, "_read", read_late)
    step, flat = checkpoint.restore(tmp_path)
    assert step == 2 and "['weights']" in flat


def test_a_checksum_copies_nothing_and_knows_every_array():
    large = {"buffer": np.zeros((4, 1_000_000), np.float32)}
    tracemalloc.start()
    first = checkpoint.digest(large)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    others = (
        {"buffer": large["buffer"].reshape(8, -1)},
        {"buffer": large["buffer"].view(np.int32)},
        {"other": large["buffer"]},
        {"buffer": np.eye(4, 1_000_000, dtype=np.float32)},
    )
    assert first not in [checkpoint.digest(other) for other in others]
    turned = {"x": np.arange(6.0).reshape(2, 3).T}
    assert checkpoint.digest(turned) == checkpoint.digest({"x": turned["x"].copy()})


# The time between checkpoints


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
