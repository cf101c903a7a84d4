"""What a folder holds, said by every command that was given the wrong kind."""

import importlib
from pathlib import Path

import pytest

import purerl
from purerl.cli import main
from purerl.report import folder as report_folder
from purerl.storage import folders
from purerl.storage.files import write_json
from tests.helpers import tiny_config
from tests.sweeps.test_store import write_sweep


def _folder(path: Path, kind: str) -> Path:
    """A folder that says what it holds, and holds nothing else."""
    path.mkdir()
    write_json(path / "manifest.json", {"kind": kind, "format": 1})
    return path


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_sweep_that_was_stopped_before_its_first_member_says_so(
    command, tmp_path, capsys
):
    write_sweep(tmp_path, "gamma", [0.9], chunks=False)
    assert main([command, str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"purerl {command}: no member of the sweep has finished ye")


@pytest.mark.parametrize("kind", [kind for kind in folders.KINDS if kind != "run"])
@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_every_kind_of_folder_says_what_it_is(kind, command, tmp_path, capsys):
    folder = _folder(tmp_path / "x", kind)
    flags = ["--resume", str(folder)] if command == "train" else [str(folder)]
    assert main([command, *flags]) == 2
    error = capsys.readouterr().err
    words = folders.words_of(kind)
    assert error.startswith(f"purerl {command}: {folder} holds {words}, not a run.")


def test_a_run_is_none_of_the_others(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    write_json(folder / "manifest.json", {"kind": "run", "data_parallel": 0})
    for load in (purerl.load_sweep, purerl.load_tune, purerl.load_evolution):
        with pytest.raises(purerl.ConfigError, match="holds a run, not a"):
            load(folder)
    args = ["evolve", "--evolve", "gamma", "--out", str(folder), "--dry-run"]
    assert main(args) == 2
    assert "holds a run, not an evolution." in capsys.readouterr().err


def test_what_reads_every_kind_is_where_the_table_says():
    for module, *names in report_folder.KINDS.values():
        for name in names:
            assert callable(getattr(importlib.import_module(module), name))
    # Agents that were trained with schedules have no result that could be read again.
    assert folders.KINDS.keys() - report_folder.KINDS.keys() == {"schedules"}


def test_what_no_command_knows_is_said_too(tmp_path):
    folder = _folder(tmp_path / "x", "of another program")
    with pytest.raises(purerl.ConfigError, match="does not know that kind"):
        purerl.load_run(folder)


def test_a_run_cannot_begin_in_the_folder_of_a_sweep(tmp_path):
    folder = _folder(tmp_path / "x", "sweep")
    with pytest.raises(purerl.ConfigError, match="holds a sweep, not a run"):
        purerl.run(tiny_config(), out=folder, progress=False)


def test_no_page_or_picture_says_what_to_call(tmp_path, capsys):
    folder = _folder(tmp_path / "x", "schedules")
    assert main(["plot", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"{folder} holds agents trained with schedules" in error
    assert "which has no result to load" in error


def test_the_home_of_nobody_is_no_folder():
    with pytest.raises(purerl.ConfigError, match="out must be the path"):
        purerl.run(tiny_config(), out="~nobody-of-that-name/x", progress=False)
