"""Commands in odd processes: the log on a full disk, switches of Python and JAX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import purerl

TINY = (
    *("--algorithm", "tabular", "--env", "CliffWalking-v0", "--num-envs", "2"),
    *("--num-steps", "16", "--total-timesteps", "320", "--num-evaluations", "0"),
)
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def command(*arguments, **changes):
    """Run a command in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **changes}
    words = [sys.executable, "-m", "purerl", *map(str, arguments)]
    return subprocess.run(words, text=True, **pipes)


@needs_full
def test_a_log_on_a_full_disk_ends_no_training(tmp_path):
    with FULL.open("w") as full:
        ended = command("train", *TINY, "--out", tmp_path / "run", stderr=full)
    assert ended.returncode == 0 and purerl.load(tmp_path / "run").finished


@needs_full
def test_a_result_that_could_only_be_printed_is_not_lost_in_silence():
    with FULL.open("w") as full:
        ended = command("envs", stdout=full)
    assert ended.returncode != 0 and "the disk is full" in ended.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["envs"]])
def test_a_pipe_without_a_reader_ends_the_command_in_silence(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ended = command(*arguments, stdout=writer)
    os.close(writer)
    assert ended.returncode != 0 and ended.stderr == ""
