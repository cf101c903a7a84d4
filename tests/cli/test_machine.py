"""Machines that lack what was asked for: a sentence, and what to do about it."""

import os
import subprocess
import sys

import pytest

from purerl.cli import main, settings
from tests.helpers import slow_but

# One process of its own each: which devices there are is decided once in a process.
ASKED = ("cuda", "tpu", "nonsense")


def _run(args, **environment):
    other = ("SLURM", "OMPI", "JAX_COMPILATION_CACHE_DIR")
    env = {k: v for k, v in os.environ.items() if not k.startswith(other)}
    env |= {"PURERL_COMPILE_CACHE": "off", **environment}
    return subprocess.run(
        [sys.executable, "-m", "purerl", *args],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
    )


def _has_accelerator():
    import jax

    return jax.default_backend() != "cpu"


@pytest.mark.skipif(_has_accelerator(), reason="tells what a CPU-only machine says")
@pytest.mark.parametrize("platform", slow_but(ASKED, "cuda"))
def test_doctor_says_what_was_asked_for_and_what_there_is(platform):
    done = _run(["doctor"], JAX_PLATFORMS=platform)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert f"asked for JAX_PLATFORMS={platform}" in text
    assert "devices cpu:0" in text
    assert "pip install 'purerl[cuda12]' or 'purerl[cuda13]', a TPU 'jax[tpu]'" in text
    assert "unset JAX_PLATFORMS" in text
    assert "no problems found" not in text


def test_a_user_without_a_home_has_no_cache_but_the_given_one(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(settings.Path, "home", nowhere)
    for name in ("JAX_COMPILATION_CACHE_DIR", "PURERL_COMPILE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert settings.compile_cache_dir() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/given")
    assert str(settings.compile_cache_dir()).startswith("/given/purerl/xla-")
    monkeypatch.setenv("PURERL_COMPILE_CACHE", "False")
    assert settings.compile_cache_dir() is None


@pytest.mark.slow
@pytest.mark.skipif(_has_accelerator(), reason="tells what a CPU-only machine says")
@pytest.mark.parametrize("platform", slow_but(["cuda", "cpu,nonsense"], "cuda"))
def test_other_commands_say_one_sentence(platform, tmp_path):
    out = tmp_path / "out"
    done = _run(["train", "--out", str(out)], JAX_PLATFORMS=platform)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"purerl train: JAX_PLATFORMS={platform} asks for ")
    assert line.endswith("purerl doctor says more.")
    assert not out.exists()


def test_a_command_that_fails_for_another_reason_still_shows_where(monkeypatch):
    def fail(argv):
        raise RuntimeError("no fault of the machine")

    monkeypatch.setattr("purerl.cli.about.main_envs", fail)
    with pytest.raises(RuntimeError, match="no fault of the machine"):
        main(["envs"])
    assert settings.backend_problem() is None


@pytest.mark.slow
def test_a_launcher_without_a_coordinator_is_a_sentence(tmp_path):
    out = tmp_path / "out"
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    done = _run(["sweep", "--out", str(out)], **slurm)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("purerl sweep: cannot join the other processes (")
    assert "--coordinator HOST:PORT, --num-processes and --process" in line
    assert not out.exists()
