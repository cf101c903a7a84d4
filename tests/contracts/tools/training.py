"""Tools that train one config: what each is asked of a row.

A tool returns None if the row passes, or the sentence with which the library refuses
the row, which it has tested.
"""

import contextlib
import io
import json
import re

import jax
import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.cli import main
from purerl.config import ConfigError
from purerl.metrics import SINCE_START, is_defined
from tests.contracts.tools.rows import PIECES
from tests.contracts.tools.subject import CLOSE, DEVICES, LANES, MEANS, SEEDS, Subject
from tests.helpers import StopAfter, assert_close, assert_same_bits, lane


def vmap(subject: Subject) -> None:
    """`make_train` under `vmap`: agents that learned, none like the other."""
    result, plan = subject.vmapped, subject.bound.plan
    metrics = jax.device_get(result.metrics)
    steps = np.arange(1, plan.num_updates + 1) * plan.steps_per_update
    np.testing.assert_array_equal(metrics["env_steps"], [steps] * SEEDS)
    for name, values in metrics.items():
        defined = np.broadcast_to(is_defined(name, metrics), values.shape)
        assert np.isfinite(values[defined]).all(), name
        assert defined[:, -1].all() or name in MEANS, name  # the last update learned
    if "gradient_steps" in metrics:
        assert (np.diff(metrics["gradient_steps"][:, -3:]) > 0).all()
    for leaf in jax.tree.leaves(jax.device_get(result.state.params)):
        assert np.isfinite(leaf).all()
    one, other = (lane(metrics, seed) for seed in range(SEEDS))
    assert any((one[name] != other[name]).any() for name in one)


def run(subject: Subject) -> None:
    """`purerl.run`: the agents of `make_train`, and whole files."""
    result = subject.ran
    assert result.finished and result.state is not None
    assert_close(result.state.params, subject.vmapped.state.params, **CLOSE)
    returns = subject.vmapped.evaluation["episode_return"]
    np.testing.assert_allclose(result.evaluation["episode_return"], returns, **CLOSE)


def resume(subject: Subject) -> None:
    """A run that was stopped goes on to the same bits, in the warm-up and after it."""
    for piece in (1, PIECES - 1):
        out = subject.folder / f"stopped-{piece}"
        stop = StopAfter(piece * subject.length)
        stopped = subject.run(out=out, trackers=[stop], checkpoint_seconds=0.0)
        assert not stopped.finished
        resumed = subject.run(out=out, resume=True)
        assert resumed.finished
        assert_same_bits(resumed.state, subject.ran.state)
        assert_same_bits(resumed.metrics, subject.ran.metrics)
        assert_same_bits(resumed.evaluation, subject.ran.evaluation)


def data_parallel(subject: Subject) -> str | None:
    """`purerl.data_parallel`: one agent on two devices, which begins as on one."""
    config = subject.bound.config
    assert jax.local_device_count() == DEVICES
    samples = getattr(config, "samples_per_update", config.steps_per_update)
    is_split = not config.num_envs % DEVICES
    is_cut = not samples // DEVICES % getattr(config, "num_minibatches", 1)
    if not (is_split and is_cut):
        words = "(must be divisible by the|cannot be spread over) 2 devices"
        if is_split:
            words = "must be divisible by num_minibatches"
        with pytest.raises(ConfigError, match=words) as refused:
            purerl.data_parallel(subject.config)
        return str(refused.value)
    key = jax.random.key(0)
    refused_by = None
    if getattr(config, "crossq", False):  # statistics of a batch are of one device
        refused_by = "crossq must be False where one agent is spread over devices"
    if subject.row.name == "plr":  # so is the buffer of levels
        refused_by = "trains an agent on one device, whose levels share a buffer"
    if refused_by is not None:
        with pytest.raises(ConfigError, match=refused_by) as refused:
            jax.eval_shape(purerl.data_parallel(subject.config), key)
        return str(refused.value)
    spread = jax.jit(purerl.data_parallel(subject.config))(key)
    alone = lane(subject.vmapped, 0)
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), r) for r in (spread, alone)]
    assert shapes[0] == shapes[1]
    for leaf in jax.tree.leaves(spread.state.params):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        assert len(copies) == DEVICES and np.isfinite(copies[0]).all()
        np.testing.assert_array_equal(copies[0], copies[1])
    for name in SINCE_START:
        if name in alone.metrics:
            both = spread.metrics[name], alone.metrics[name]
            np.testing.assert_array_equal(*both)
    # Minibatches and batches are other samples, but the first steps are the same ones.
    for name in ("episodes", *MEANS):
        both = spread.metrics[name][0], alone.metrics[name][0]
        np.testing.assert_allclose(*both, **CLOSE)
    if hasattr(config, "num_minibatches"):
        whole = subject.config.replace(num_minibatches=1)
        spread = jax.jit(purerl.data_parallel(whole))(key)
        alone = jax.jit(purerl.make_train(whole))(key)
    if "gradient_steps" not in alone.metrics:  # no replay: all devices' samples
        for name, values in alone.metrics.items():
            both = spread.metrics[name][:2], values[:2]
            np.testing.assert_allclose(*both, err_msg=name, **CLOSE)
    return None


def evaluation(subject: Subject) -> None:
    """The evaluation after training: whole episodes of the deterministic policy."""
    config, plan = subject.config, subject.bound.plan
    found = subject.ran.evaluation
    lengths = np.asarray(found["episode_length"])
    assert lengths.shape == (SEEDS, 1, config.eval_episodes)
    assert ((lengths > 0) & (lengths <= plan.eval_max_steps)).all()
    assert np.isfinite(found["episode_return"]).all()
    steps = plan.num_updates * plan.steps_per_update
    np.testing.assert_array_equal(found["env_steps"], np.full((SEEDS, 1), steps))


def command_line(subject: Subject) -> None:
    """`purerl train`, then `purerl evaluate`: what `purerl.run` trains, in numbers."""
    path, out = subject.folder / "row.yaml", subject.folder / "command"
    serialise.to_yaml(subject.config, path)
    flags = f"--lanes {LANES} --segment-updates {subject.length} --no-progress".split()
    train = ["train", "--config", str(path), "--seeds", str(SEEDS), "--out", str(out)]
    printed = _call([*train, *flags])
    assert "Traceback" not in printed
    summary = json.loads((out / "summary.json").read_text())
    returns = np.asarray(subject.ran.evaluation["episode_return"]).mean((1, 2))
    np.testing.assert_allclose(summary["evaluation_per_seed"], returns, rtol=1e-3)
    printed = _call(["evaluate", str(out), "--episodes", "2"])
    numbers = re.findall(r"-?\d+\.\d+", printed)
    assert len(numbers) >= SEEDS and "nan" not in printed, printed


def _call(args: list[str]) -> str:
    """What a command prints; it must exit with 0."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(args)
    assert status == 0, printed.getvalue()
    return printed.getvalue()
