"""Commands in odd processes: the log on a full disk, switches of Python and JAX."""

import io
import os
import signal
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


def command(*arguments, options=(), **changes):
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, *options, "-m", "purerl", *map(str, arguments)],
        env=os.environ | changes.pop("env", {}),
        text=True,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | changes),
    )


@needs_full
@pytest.mark.parametrize("both", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_log_on_a_full_disk_ends_no_training(both, tmp_path):
    with FULL.open("w") as full:
        streams = {"stdout": full} | ({"stderr": full} if both else {})
        ended = command("train", *TINY, "--out", tmp_path / "run", **streams)
    assert ended.returncode == 0
    assert purerl.load(tmp_path / "run").finished
    if not both:
        assert "standard output could not be written" in ended.stderr
        assert "Traceback" not in ended.stderr


@needs_full
def test_a_result_that_could_only_be_printed_is_not_lost_in_silence():
    with FULL.open("w") as full:
        ended = command("envs", stdout=full)
    assert ended.returncode == 2
    assert "standard output could not be written ([Errno 28]" in ended.stderr


@needs_full
@pytest.mark.parametrize("name", ["run", "sweep", "evolve", "pbt", "tune", "compare"])
def test_a_full_disk_behind_standard_error_ends_no_tool(name, monkeypatch):
    from tests.contracts.test_switches import TOOLS

    raw = FULL.open("wb", buffering=0)
    with raw, io.TextIOWrapper(raw, write_through=True) as full:
        monkeypatch.setattr(sys, "stderr", full)
        monkeypatch.setattr("tests.contracts.test_switches.QUIET", {"progress": True})
        TOOLS[name]()
        monkeypatch.undo()


def test_a_backend_of_matplotlib_that_there_is_not_ends_nothing(tmp_path):
    out, unknown = tmp_path / "run", {"MPLBACKEND": "nope"}
    ended = command("train", *TINY, "--out", out, env=unknown)
    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0)
    assert (out / "curve.png").stat().st_size > 1000
    ended = command("report", out, env=unknown)
    assert ended.returncode == 0 and (out / "report.html").exists()


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        ([], {"JAX_DISABLE_JIT": "1"}, "cannot train where JAX's jax_disable_jit is"),
        ([], {"JAX_DEBUG_NANS": "1"}, "cannot train where JAX's jax_debug_nans is"),
    ],
)
def test_a_process_that_cannot_train_says_so_and_writes_nothing(
    options, env, words, tmp_path
):
    out = tmp_path / "run"
    ended = command("train", *TINY, "--out", out, options=options, env=env)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert words in " ".join(ended.stderr.split())
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_ends_by_the_status_of_its_signal(number, tmp_path):
    long = ["--total-timesteps", "100_000_000", "--segment-updates", "10"]
    out = tmp_path / "run"
    words = [sys.executable, "-m", "purerl", "train", *TINY, *long, "--out", str(out)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "steps/s" in line:  # A segment has been trained.
                process.send_signal(number)
                break
        said = process.stderr.read().replace("\n", " ")
    assert process.returncode == 128 + number
    assert f"{number.name}: finishing what is under way" in said
    assert "Go on with: purerl train --resume" in said or "-m purerl train" in said
    assert purerl.load_run(out).update > 0
