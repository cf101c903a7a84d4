"""Commands in odd processes: the log on a full disk, switches of Python and JAX."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import purerl

TINY = (
    *("--num-envs", "2", "--num-steps", "16", "--num-minibatches", "2"),
    *("--hidden-sizes", "4", "--total-timesteps", "320", "--num-evaluations", "0"),
)
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def command(*arguments, **changes):
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "purerl", *map(str, arguments)],
        env=os.environ | changes.pop("env", {}),
        text=True,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | changes),
    )


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


@pytest.mark.parametrize("switch", ["jax_disable_jit", "jax_debug_nans"])
def test_a_process_that_cannot_train_says_so_and_writes_nothing(switch, tmp_path):
    out = tmp_path / "run"
    ended = command("train", *TINY, "--out", out, env={switch.upper(): "1"})
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    words = f"cannot train where JAX's {switch} is"
    assert words in " ".join(ended.stderr.split())
    assert not out.exists() or not list(out.iterdir())
