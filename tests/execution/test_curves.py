"""Curves hold the last known return: no agent leaves them while its episode goes on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.execution.curves import Curves, Segment
from purerl.metrics import held
from purerl.report.plots import learning_curve
from purerl.report.statistics import curve
from purerl.runner.rows import Records
from purerl.runner.trackers.group import Group
from purerl.train import bind
from tests.helpers import StopAfter, assert_same_bits, tiny_config

nan = np.nan
# Eight agents of returns 1 to 8: in six updates the better one is, the fewer episodes
# of it end. Nobody has ended one in the first.
ENDS = np.arange(6) % np.arange(1, 9)[:, None] == np.minimum(1, np.arange(8))[:, None]
ENDS[:, 0] = False
EPISODES = 2 * ENDS.astype(int)
RETURNS = np.where(ENDS, np.arange(1.0, 9.0)[:, None], nan)
HELD = np.tile(np.arange(1.0, 9.0)[:, None], (1, 6))
HELD[:, 0] = nan
METRICS = {
    "env_steps": np.tile(np.arange(1, 7) * 10, (8, 1)),
    "episodes": EPISODES,
    "episode_return": RETURNS,
    "episode_length": 3 * RETURNS,
}


def segments(length):
    for first in range(0, 6, length):
        part = {name: x[:, first : first + length] for name, x in METRICS.items()}
        yield Segment(first, length, part, {})


@pytest.fixture(scope="module")
def plan():
    return bind(tiny_config(num_evaluations=0)).plan


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_returns_are_held_where_no_episode_ended(plan, length):
    curves, records = Curves(plan, 8), Records(range(8), None, Group(()))
    for segment in segments(length):
        shown = curves.add(segment), records.add(plan, segment)
    rows = slice(length - 1, None, length)
    assert (ENDS[:, 1]).all()  # so that everybody is known from the second update on
    found = curves.train
    np.testing.assert_array_equal(found["episode_return"], HELD[:, rows])
    np.testing.assert_array_equal(found["episode_length"], 3 * HELD[:, rows])
    # The count says which rows are held.
    counts = EPISODES.reshape(8, -1, length).sum(-1)
    np.testing.assert_array_equal(found["episodes"], counts)
    assert shown == (4.5, 4.5)
    told = [[row["episode_return"] for row in x] for x in records.rows["train"]]
    np.testing.assert_array_equal(told, HELD[:, rows])
    # The mean of the middle half of 1 to 8, though better agents are seldom heard of.
    iqm = curve(found["episode_return"]).value[-1]
    assert iqm == (3 + 4 + 5 + 6) / 4
    assert curve(RETURNS).value[-1] != iqm


def test_a_compiled_run_holds_what_rows_hold():
    found = jax.vmap(held)(jax.tree.map(jnp.asarray, METRICS))
    expected = METRICS | {"episode_return": HELD, "episode_length": 3 * HELD}
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_return_that_is_no_number_is_not_held_over(plan):
    metrics = {name: x[:2, :3].copy() for name, x in METRICS.items()}
    metrics["episodes"] = np.array([[1, 1, 0], [1, 1, 0]])
    metrics["episode_return"] = np.array([[5.0, nan, nan], [5.0, 6.0, nan]])
    metrics["episode_length"] = metrics["episode_return"]
    curves = Curves(plan, 2)
    for at in range(3):
        part = {name: x[:, at : at + 1] for name, x in metrics.items()}
        curves.add(Segment(at, 1, part, {}))
    found = curves.train["episode_return"]
    np.testing.assert_array_equal(found, [[5, nan, nan], [5, 6, 6]])
    np.testing.assert_array_equal(curves.diverged_at, [1, -1])


# 32 steps of every environment in an episode, and 16 in an update.
LONG = tiny_config(
    env="MountainCar-v0", env_params={"max_steps_in_episode": 32}, num_evaluations=0
)
OPTIONS = {"lanes": 2, "segment_updates": 1, "progress": False}


def test_every_way_to_train_holds_the_same(tmp_path):
    run = purerl.run(LONG, seeds=2, out=tmp_path / "run", **OPTIONS)
    assert (run.metrics["episodes"] == [[0, 2] * 10] * 2).all()
    expected = np.full((2, 20), -32.0)
    expected[:, 0] = nan
    np.testing.assert_array_equal(run.metrics["episode_return"], expected)
    np.testing.assert_array_equal(run.metrics["episode_length"], -expected)
    read = purerl.load(tmp_path / "run").metrics
    np.testing.assert_array_equal(read["episode_return"], expected)
    drawn = learning_curve(run).axes.get_lines()[0].get_ydata()
    np.testing.assert_array_equal(drawn, expected[0, 1:])
    swept = purerl.sweep(LONG, {"gamma": [0.99]}, seeds=2, **OPTIONS)
    np.testing.assert_array_equal(swept["episode_return"].values[0], expected)
    alone = jax.jit(purerl.make_train(LONG))(jax.random.key(0)).metrics
    np.testing.assert_array_equal(alone["episode_return"], expected[0])


def test_a_resumed_run_holds_what_the_first_call_knew(tmp_path):
    whole = purerl.run(LONG, out=tmp_path / "whole", **OPTIONS)
    out, options = tmp_path / "stopped", {**OPTIONS, "checkpoint_seconds": 0.0}
    stopped = purerl.run(LONG, out=out, trackers=[StopAfter(6)], **options)
    assert not stopped.finished and stopped.metrics["episodes"][0, -1] == 2
    resumed = purerl.run(LONG, out=out, resume=True, **OPTIONS)
    assert_same_bits(resumed.metrics, whole.metrics)
