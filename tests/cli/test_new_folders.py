"""Folders that commands name by themselves, and flags that are given twice."""

import os
import subprocess
import sys
import time
from pathlib import Path

import purerl
from purerl.cli import flags
from purerl.cli.train import _remove_unused, base_config, default_folder
from purerl.runner.arguments import as_folder
from purerl.storage.files import locked


def test_two_commands_of_the_same_second_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _: "20261125-120000")
    folders = [default_folder("brax/Ant") for _ in range(3)]
    stem = "runs/brax-ant-20261125-120000"
    assert [str(folder) for folder in folders] == [stem, f"{stem}-2", f"{stem}-3"]
    assert all(folder.is_dir() for folder in folders)


def test_a_folder_that_nothing_was_written_to_goes(tmp_path):
    unused, used = tmp_path / "unused", tmp_path / "used"
    for folder in (unused, used):
        with locked(folder):
            pass
    (used / "config.yaml").write_text("")
    for folder in (unused, used, tmp_path / "missing"):
        _remove_unused(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["used"]


def test_the_users_own_folder_may_be_written_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert as_folder("out", "~/runs/first") == tmp_path / "runs" / "first"
    assert as_folder("out", Path("runs/~")) == Path("runs/~")
    assert as_folder("out", None) is None


def test_of_a_flag_that_is_given_twice_the_last_one_holds(tmp_path):
    words = ["--algorithm", "ppo", "--seeds", "2", "--algorithm=dqn"]
    assert flags.option_before_parsing(words, "algorithm") == "dqn"
    assert type(base_config(words)).__name__ == "DQNConfig"
    presets = ["--preset", "ppo-cartpole", "--preset", "dqn-cartpole"]
    assert type(base_config(presets)).__name__ == "DQNConfig"


def test_a_new_folder_and_runs_go_where_nothing_was_written(tmp_path):
    program = "from purerl.cli.train import default_folder; print(default_folder('a'))"
    command = [sys.executable, "-c", program]
    paths = str(Path(purerl.__file__).parents[1])
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": paths}}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs").mkdir()  # The user's own stays.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
