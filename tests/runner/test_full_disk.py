"""A disk that fills up while a run is trained: a sentence, and nothing is lost."""

import errno
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import purerl
from purerl.runner.rows import by_member, read_rows
from purerl.storage import checkpoint, files
from purerl.sweeps import store
from tests.helpers import assert_same_bits, tiny_table

OPTIONS = {"lanes": 2, "segment_updates": 3, "checkpoint_seconds": 0.0}


@pytest.fixture
def fill(monkeypatch):
    """Call it with how many checkpoints still fit."""

    real = shutil.disk_usage

    def after(saves):
        left = [1 + saves]  # The first look is before the training.

        def usage(path):
            left[0] -= 1
            return real(path) if left[0] >= 0 else SimpleNamespace(free=100)

        monkeypatch.setattr(checkpoint.shutil, "disk_usage", usage)

    return after


def _run(out, **options):
    return purerl.run(
        tiny_table(), seeds=2, out=out, progress=False, **OPTIONS | options
    )


def _search(out, **options):
    axes = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}
    config = tiny_table(num_evaluations=0)
    sizes = {"population": 2, "ready_updates": 10, "lanes": 2}
    return purerl.pbt(config, axes, out=out, progress=False, **sizes, **options)


def _evolve(out, **options):
    sizes = {"generations": 1, "population": 2, "lanes": 2}
    config = tiny_table(num_evaluations=0)
    return purerl.evolve(
        config, "learning_rate", out=out, progress=False, **sizes, **options
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
    assert_same_bits(whole.state, resumed.state)


@pytest.mark.parametrize("tool", [_run, _search, _evolve])
def test_a_disk_that_is_full_already_is_told_before_the_training(
    tool, tmp_path, fill, capsys
):
    fill(-1)
    with pytest.raises(purerl.ConfigError, match="could not be written"):
        tool(tmp_path / "out", checkpoint_seconds=30.0)
    told = capsys.readouterr().err
    assert told.count("the disk has 100 B free). Make room on the disk while") == 1
    assert "goes on without" not in told


def test_a_full_disk_leaves_a_note_what_to_do(tmp_path, monkeypatch):
    def fail(path, arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    def sweep():
        axes = {"learning_rate": [1e-3]}
        out = tmp_path / "sweep"
        return purerl.sweep(tiny_table(), axes, seeds=2, out=out, progress=False)

    with monkeypatch.context() as patched:
        patched.setattr(store, "save_arrays", fail)
        with pytest.raises(OSError, match="No space left") as error:
            sweep()
    (note,) = error.value.__notes__
    assert f"the disk of {tmp_path / 'sweep'} is full" in note
    assert sweep().finished


def test_a_lock_needs_no_room_on_the_disk(tmp_path, monkeypatch):
    def fail(descriptor, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "write", fail)
    with files.locked(tmp_path):
        with pytest.raises(purerl.ConfigError, match="in use by another process"):
            with files.locked(tmp_path):
                pass
    assert not list(tmp_path.iterdir())


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
