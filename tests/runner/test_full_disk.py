"""A disk that fills up while a run is trained: a sentence, and nothing is lost."""

import errno
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import purerl
from purerl.runner.rows import by_member, read_rows
from purerl.storage import checkpoint
from tests.helpers import tiny_config

OPTIONS = {"lanes": 2, "segment_updates": 3, "checkpoint_seconds": 0.0}


@pytest.fixture
def fill(monkeypatch):
    """Call it with how many checkpoints still fit."""

    real = shutil.disk_usage

    def after(saves):
        left = [saves]

        def usage(path):
            left[0] -= 1
            return real(path) if left[0] >= 0 else SimpleNamespace(free=100)

        monkeypatch.setattr(checkpoint.shutil, "disk_usage", usage)

    return after


def _run(out, **options):
    return purerl.run(
        tiny_config(), seeds=2, out=out, progress=False, **OPTIONS | options
    )


@pytest.mark.slow
def test_training_goes_on_and_the_end_is_a_sentence(tmp_path, fill, capsys):
    whole = _run(tmp_path / "whole")
    fill(1)
    out = tmp_path / "run"
    with pytest.raises(purerl.ConfigError, match="could not be written") as error:
        _run(out)
    assert "whole ones: 3. Make room on the disk." in str(error.value)
    told = capsys.readouterr().err
    assert "the disk has 100 B free" in told
    assert told.count("Training goes on without it.") == 1
    assert checkpoint.steps(out / "checkpoints") == [3]
    (rows,) = by_member(read_rows(out / "metrics")["train"], [0])
    assert len(rows) == whole.metrics["env_steps"].shape[1]  # it did go on
    fill(100)  # there is room again
    resumed = _run(out, resume=True)
    for one, two in zip(
        jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_a_checkpoint_that_fails_leaves_the_others_alone(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    checkpoint.save(folder, 3, {"x": np.arange(4.0)}, keep=3)

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(checkpoint.NotSavedError, match="No space left on device"):
        checkpoint.save(folder, 6, {"x": np.arange(4.0)}, keep=3)
    assert [path.name for path in folder.iterdir()] == ["3.npz"]
    step, flat = checkpoint.restore(folder)
    assert step == 3
    np.testing.assert_array_equal(flat["['x']"], np.arange(4.0))
