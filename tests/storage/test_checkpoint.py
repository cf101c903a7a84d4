"""Checkpoints hold arrays of any shape to the last bit, also those without elements."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.storage import checkpoint
from tests.helpers import assert_same_bits

TREE = {
    "weights": np.arange(6.0, dtype=np.float32).reshape(2, 3),
    # As the contacts of a physics model that has none.
    "contacts": {
        "dist": np.zeros((2, 0), np.float32),
        "geom": np.zeros((2, 0, 2), int),
    },
    "half": np.zeros((0,), jnp.bfloat16),
}


def test_arrays_without_elements_are_saved_with_the_others(tmp_path):
    checkpoint.save(tmp_path, 3, TREE, keep=2)
    step, flat = checkpoint.restore(tmp_path)
    known = checkpoint.flatten(TREE)
    assert (step, set(flat)) == (3, set(known))
    assert_same_bits(flat, known)
    assert {name: x.dtype for name, x in flat.items()} == {
        name: x.dtype for name, x in known.items()
    }


def test_what_no_disk_is_to_blame_for_is_not_told_of_the_disk(tmp_path, monkeypatch):
    def fail(*args):
        raise ValueError("cannot save arrays of this kind")

    monkeypatch.setattr(checkpoint, "_write", fail)
    with pytest.raises(purerl.ConfigError, match=r"of this kind.*Report it") as error:
        checkpoint.save(tmp_path, 3, TREE, keep=2)
    assert "disk" not in str(error.value).replace(str(tmp_path), "")


def test_numbers_of_another_type_are_named_by_their_type():
    flat = {"['bias']": np.zeros((3, 2), np.float64)}
    like = {"bias": jax.ShapeDtypeStruct((2,), np.float32)}
    with pytest.raises(purerl.ConfigError) as error:
        checkpoint.unflatten(flat, like, Path("run"))
    assert "['bias'] is float64, expected float32. " in str(error.value)
    assert "shape" not in str(error.value)
