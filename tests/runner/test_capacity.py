"""What cannot fit, or would take for ever, is said before anything is compiled."""

import time

import jax
import pytest

import purerl
from purerl.cli import main
from purerl.config import ConfigError
from purerl.execution import memory
from purerl.train import bind, make_segment
from tests.helpers import slow_but, tiny_config

HUGE = ("--hidden-sizes", "100000", "100000")
AXIS = ("--axis", "learning_rate=loguniform(1e-5,1e-2)")


@pytest.fixture
def no_compilation(monkeypatch):
    """Fail where anything is compiled."""
    from purerl.execution import programs

    def refuse(*args):
        raise AssertionError("something was compiled")

    monkeypatch.setattr(programs, "compile_for", refuse)


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize(
    "args",
    [
        ("train",),
        ("train", "--algorithm", "sac", "--env", "Pendulum-v1"),
        ("sweep", "--axis", "learning_rate=1e-3"),
        ("sweep", "--axis", "learning_rate=1e-3", "--dry-run"),
        ("pbt", *AXIS),
        *slow_but([("halving", *AXIS), ("tune", *AXIS, "--holdout-seeds", "0")]),
        ("evolve", "--evolve", "learning_rate"),
        ("compare", "--setting", "own:"),
    ],
)
def test_an_agent_that_cannot_fit_is_said_by_every_command(args, tmp_path, capsys):
    out = () if "--dry-run" in args else ("--out", str(tmp_path / "x"))
    began = time.monotonic()
    assert main([*args, *HUGE, *out]) == 2
    assert time.monotonic() - began < 60  # it waited for a failed allocation once
    error = capsys.readouterr().err
    assert f"purerl {args[0]}: memory: one agent needs at least " in error
    assert "GiB" in error and "smaller network" in error
    assert not list(tmp_path.glob("x/manifest.json")) or args[0] != "train"


@pytest.mark.slow
def test_agents_that_do_not_fit_together_are_said_before_they_are_made(
    monkeypatch, tmp_path
):
    config, options = tiny_config(), {"lanes": 2, "segment_updates": 3}
    state = make_segment(bind(config)).init
    one = memory.least_bytes(jax.eval_shape(state, jax.random.key(0)))
    monkeypatch.setattr(memory, "available_memory", lambda: 16.5 * one)
    out = tmp_path / "x"
    for _ in range(2):  # the folder is not taken by the first one
        with pytest.raises(ConfigError, match="memory: 16 agents at once need"):
            purerl.run(config, seeds=16, out=out, progress=False, **options)
    monkeypatch.undo()
    result = purerl.run(config, seeds=16, out=out, progress=False, **options)
    assert result.finished


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_agents_without_number_are_said_at_once(command, tmp_path, capsys):
    began = time.monotonic()
    flags = ("--seeds", "100000000", "--total-timesteps", "2000")
    assert main([command, *flags, "--out", str(tmp_path / "x")]) == 2
    assert time.monotonic() - began < 20
    error = capsys.readouterr().err
    assert error.startswith(f"purerl {command}: ")
    assert "100,000,000 agents" in error
    assert "GiB" in error and "hours" in error
    assert not (tmp_path / "x").exists()
