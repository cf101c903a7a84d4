"""Folders that commands name by themselves, and flags that are given twice."""

import time
from pathlib import Path

from purerl.cli import flags
from purerl.cli.train import base_config, default_folder
from purerl.runner.arguments import as_folder


def test_two_commands_of_the_same_second_have_a_folder_each(monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda _: "20261125-120000")
    found = {str(default_folder("brax/Ant")) for _ in range(3)}
    assert len(found) == 3
    assert all(name.startswith("runs/brax-ant-20261125-120000-") for name in found)


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
