"""The columns of the grid: what every tool is asked of every row, and must answer.

A tool is a function of a `Subject`. It returns None if the row passes, or the sentence
with which the library refuses the row, which it has tested. Adding a tool is adding a
function to `TOOLS`.

All programs of a row are as wide and as long, and train one config wherever a tool
allows it: with `shared_programs` most tools then need no compilation of their own.
"""

import contextlib
import io
import json
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import purerl
from purerl import losses, serialise
from purerl.cli import main
from purerl.config import ConfigError
from purerl.meta.comparison import LossComparison
from purerl.metrics import is_defined
from purerl.runner.result import RunResult
from purerl.train import bind
from purerl.types import TrainResult
from tests.contracts.tools.rows import PIECES, Row
from tests.helpers import StopAfter, assert_same_bits, plain

SEEDS = LANES = 2
MEANS = ("episode_return", "episode_length")  # undefined where no episode ended
# Between programs of the same arithmetic that were compiled apart.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}
SMALL: dict[str, Any] = {"lanes": LANES, "progress": False}


class Subject:
    """A row and its folder; what several tools look at is made once."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row, self.folder = row, folder
        self.config, self.length = row.config, row.length
        self.bound = bind(row.config)

    @property
    def axes(self) -> dict[str, Any]:
        """Step sizes about the config's own."""
        rate = float(self.config.learning_rate)
        return {"learning_rate": purerl.loguniform(rate / 2, rate * 2)}

    @cached_property
    def vmapped(self) -> TrainResult:
        """The agents of seeds 0 and 1, in one call."""
        keys = jax.vmap(jax.random.key)(np.arange(SEEDS, dtype=np.uint32))
        return jax.jit(jax.vmap(purerl.make_train(self.config)))(keys)

    @cached_property
    def ran(self) -> RunResult:
        """The same agents by `purerl.run`."""
        return self.run()

    def run(self, **options: Any) -> RunResult:
        """As users call it, at this row's width and length."""
        options = {"seeds": SEEDS, "segment_updates": self.length, **SMALL, **options}
        return purerl.run(self.config, **options)

    @cached_property
    def other_losses(self) -> dict[str, Any]:
        """A loss with numbers for every loss that the config has."""
        known = {"value_loss": losses.HuberError(), "policy_loss": losses.DPODrift()}
        return {n: loss for n, loss in known.items() if hasattr(self.config, n)}


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
    one, other = (jax.tree.map(lambda x, i=i: x[i], metrics) for i in range(SEEDS))
    assert any((one[name] != other[name]).any() for name in one)


def run(subject: Subject) -> None:
    """`purerl.run`: the agents of `make_train`, and whole files."""
    result = subject.ran
    assert result.finished and result.state is not None
    assert_close(result.state.params, subject.vmapped.state.params)
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


def sweep(subject: Subject) -> None:
    """`purerl.sweep`: no member diverged, and each is the run of its settings."""
    rate = float(subject.config.learning_rate)
    result = purerl.sweep(
        subject.config,
        {"learning_rate": [rate]},
        seeds=SEEDS,
        segment_updates=subject.length,
        keep_states=True,
        **SMALL,
    )
    assert result.finished
    assert np.isnan(result["diverged_at"]).all(), result["diverged_at"].values
    scores = result.scores().values[0]
    alone = np.asarray(subject.vmapped.evaluation["episode_return"]).mean((1, 2))
    np.testing.assert_allclose(scores, alone, **CLOSE)
    best = result.best()
    assert best.point == {"learning_rate": rate}
    assert best.score == pytest.approx(scores.mean())


def tune(subject: Subject) -> None:
    """`purerl.tune`: every trial is complete, the first of them the config itself."""
    result = purerl.tune(
        subject.config,
        subject.axes,
        trials=2,
        seeds=1,
        batch=2,
        pruner=None,
        reports=PIECES,
        holdout_seeds=2,
        **SMALL,
    )
    assert [row.state for row in result.rows] == ["complete"] * 2
    assert result.best is not None and result.best_row is not None
    scores = [row.score for row in result.rows]
    assert np.isfinite(scores).all() and result.best_row.score == max(scores)
    assert result.rows[0].is_default
    alone = np.asarray(subject.vmapped.evaluation["episode_return"])[0].mean()
    np.testing.assert_allclose(scores[0], alone, **CLOSE)
    assert result.holdout is not None
    assert result.holdout.best.diverged == result.holdout.default.diverged == 0


def pbt(subject: Subject) -> None:
    """`purerl.pbt`: nobody diverged, and the worst copied the best."""
    result = purerl.pbt(
        subject.config,
        subject.axes,
        population=4,
        ready_updates=subject.length,
        quantile=0.25,
        **SMALL,
    )
    assert result.finished and len(result.marks) == PIECES
    dataset = result.dataset
    assert not dataset["diverged"].values.any()
    members = np.arange(4)
    copies = (dataset["parent"].values != members).sum(-1)
    np.testing.assert_array_equal(copies, [[1] * (PIECES - 1) + [0]])
    assert np.isfinite(result.best().score)


def halving(subject: Subject) -> None:
    """`purerl.halving`: nobody diverged, and half were dropped at every rung."""
    result = purerl.halving(
        subject.config,
        subject.axes,
        num_points=4,
        eta=2,
        min_updates=subject.length,
        brackets="one",
        **SMALL,
    )
    assert result.finished
    assert np.isfinite(result.best().score)
    for record in result.records:
        assert not record["diverged"].any()
    alive = [len(record["alive"]) for record in result.records]
    assert alive == [4, 2, 1, 1]  # half of them at the first piece and at the second


def evolve(subject: Subject) -> None:
    """`purerl.evolve` of a hyperparameter: all members were worth something."""
    _evolve(subject, subject.config, ["learning_rate"])


def evolve_loss(subject: Subject) -> str | None:
    """`purerl.evolve` of every loss that the algorithm has, beside its own."""
    names = list(subject.other_losses)
    if not names:
        with pytest.raises(ConfigError, match="no field 'value_loss'") as refused:
            _evolve(subject, subject.config, ["value_loss"])
        return str(refused.value)
    _evolve(subject, subject.config.replace(**subject.other_losses), names)
    _compare(subject, {"own": {}, "evolved from": subject.other_losses})
    return None


def _evolve(subject: Subject, config: Any, names: list[str]) -> None:
    result = purerl.evolve(
        config,
        names,
        population=4,
        generations=1,
        fitness="evaluation",
        segment_updates=subject.length,
        **SMALL,
    )
    assert result.finished
    np.testing.assert_array_equal(result.history["failed"], [0])
    assert np.isfinite(result.history["fitness"]).all()
    assert int(result._state.strategy.generation_counter) == 1  # it was told
    assert np.isfinite(result.vector).all()


def compare_losses(subject: Subject) -> str | None:
    """`purerl.compare_losses`: no run failed, and equal losses score the same."""
    if not subject.other_losses:
        with pytest.raises(ConfigError, match="no loss that can be repl") as refused:
            purerl.compare_losses(subject.config, "value_loss", {"own": None})
        return str(refused.value)
    own = subject.config.value_loss
    result = _compare(subject, {"own": own, "same": own})
    for scores in result.scores.values():
        np.testing.assert_array_equal(scores[0, 0], scores[0, 1])
    return None


def _compare(subject: Subject, named: dict[str, Any]) -> LossComparison:
    result = purerl.compare_losses(
        subject.config,
        "value_loss",
        named,
        seeds=SEEDS,
        measures=("training_curve", "evaluation"),
        segment_updates=subject.length,
        **SMALL,
    )
    assert [row.failed for row in result.rows] == [0] * (2 * len(named))
    for scores in result.scores.values():
        assert np.isfinite(scores).all()
    return result


def data_parallel(subject: Subject) -> str | None:
    """`purerl.data_parallel`: one agent on two devices, which begins as on one."""
    config, devices = subject.config, 2
    assert jax.local_device_count() == devices
    if subject.bound.config.num_envs % devices:
        sentence = "num_envs must be divisible by the 2 devices"
        with pytest.raises(ConfigError, match=sentence) as refused:
            purerl.data_parallel(config)
        return str(refused.value)
    spread = jax.jit(purerl.data_parallel(config))(jax.random.key(0))
    alone = jax.tree.map(lambda x: x[0], subject.vmapped)
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), r) for r in (spread, alone)]
    assert shapes[0] == shapes[1]
    for leaf in jax.tree.leaves(spread.state.params):
        copies = [np.asarray(shard.data) for shard in leaf.addressable_shards]
        np.testing.assert_array_equal(copies[0], copies[1])
        assert np.isfinite(copies[0]).all()
    for name in ("env_steps", "gradient_steps"):
        if name in alone.metrics:
            both = spread.metrics[name], alone.metrics[name]
            np.testing.assert_array_equal(*both)
    for name in ("episodes", *MEANS):
        # Minibatches and batches are other samples: the first update is the same.
        both = spread.metrics[name][0], alone.metrics[name][0]
        np.testing.assert_allclose(*both, rtol=1e-5)
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


def assert_close(one: Any, other: Any) -> None:
    """Equal up to rounding, leaf by leaf."""
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(plain(one)),
        jax.tree.leaves(plain(other)),
        strict=True,
    )
    for (path, a), b in pairs:
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, err_msg=name, **CLOSE)


Tool = Callable[[Subject], str | None]
TOOLS: dict[str, Tool] = {
    tool.__name__: tool
    for tool in (
        vmap,
        run,
        resume,
        sweep,
        tune,
        pbt,
        halving,
        evolve,
        evolve_loss,
        compare_losses,
        data_parallel,
        evaluation,
        command_line,
    )
}
# Programs of their own for every algorithm: `make test` tries the others.
SLOW = ("evolve_loss", "data_parallel")
