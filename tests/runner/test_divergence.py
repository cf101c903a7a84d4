"""What did not happen is not a divergence, and what broke is one, wherever it broke."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import ConfigError, PPOConfig, envs
from purerl.algorithms import ppo
from purerl.envs.cartpole import CartPole
from purerl.execution.curves import (
    PARAMETERS_FINITE,
    Segment,
    first_bad_update,
    reduce_segment,
)
from purerl.report import plots, tables
from purerl.report.page import folder_page
from purerl.runner.result import summary
from purerl.runner.rows import Records
from purerl.runner.trackers.group import Group
from purerl.storage import folders
from tests.helpers import StopAfter, tiny_config
from tests.report.synthetic import printed

nan, inf = np.nan, np.inf


def test_a_loss_of_no_policy_step_is_undefined_and_of_a_step_it_is_not():
    metrics = {
        "episodes": np.zeros((3, 3), int),
        "gradient_steps": np.array([[1, 2, 3]] * 3),
        "policy_steps": np.array([[0, 1, 3]] * 3),
        "policy_loss": np.array([[nan, 2.0, 6.0], [nan, nan, 6.0], [nan, 2.0, inf]]),
        "value_loss": np.ones((3, 3)),
    }
    assert first_bad_update(metrics).tolist() == [-1, 1, 2]
    reduced = reduce_segment(metrics, {})
    assert reduced["policy_steps"].tolist() == [4, 4, 4]
    assert reduced["policy_loss"][0] == (2.0 + 3 * 6.0) / 4
    assert np.isnan(reduced["policy_loss"][1]) and reduced["policy_loss"][2] == inf


def test_without_a_count_of_policy_steps_every_update_that_learned_has_one():
    metrics = {
        "episodes": np.zeros((2, 2), int),
        "policy_loss": np.array([[1.0, nan], [1.0, 3.0]]),
    }
    assert first_bad_update(metrics).tolist() == [1, -1]
    metrics["gradient_steps"] = np.array([[0, 0], [0, 4]])
    assert first_bad_update(metrics).tolist() == [-1, -1]
    assert reduce_segment(metrics, {})["policy_loss"][1] == 3.0


def test_parameters_that_broke_in_the_last_step_mark_the_member_and_are_in_no_row():
    metrics = {
        "episodes": np.zeros((2, 2), int),
        "value_loss": np.ones((2, 2)),
        PARAMETERS_FINITE: np.array([[True, False], [True, True]]),
    }
    assert first_bad_update(metrics).tolist() == [1, -1]
    assert set(reduce_segment(metrics, {})) == {"episodes", "value_loss"}


@pytest.mark.slow
def test_what_breaks_in_the_very_last_step_is_seen_by_every_search(monkeypatch):
    config = PPOConfig(
        num_envs=2, num_steps=8, num_minibatches=1, num_epochs=1, num_evaluations=0,
        hidden_sizes=(4,), total_timesteps=48,
    )  # fmt: skip
    learn = ppo.learn

    def breaks(agent, state, played, key):
        new = learn(agent, state, played, key)
        is_last = state.update == 2
        broken = jax.tree.map(lambda x: jnp.where(is_last, jnp.nan, x), new.params)
        return new._replace(params=broken)

    monkeypatch.setattr(ppo, "learn", breaks)
    result = purerl.sweep(config, {"learning_rate": [1e-3]}, seeds=1, lanes=1)
    assert result["diverged_at"].values.tolist() == [[2]]


def test_a_run_says_once_of_every_agent_that_it_has_diverged():
    ones = np.ones((3, 2))
    counts = {"episodes": np.ones((3, 2), int), PARAMETERS_FINITE: ones > 0}
    broken = np.array([[1, nan], [1, 1], [1, 1]])
    also = np.array([[nan, nan], [1, 1], [inf, 1]])
    found = Records((3, 4, 5), None, Group(()))
    segments = [
        Segment(0, 2, {**counts, "entropy": ones}, {}),
        Segment(2, 2, {**counts, "entropy": broken, "value_loss": broken}, {}),
        Segment(4, 2, {**counts, "entropy": ones, "value_loss": also}, {}),
        Segment(6, 2, {**counts, "entropy": ones, "value_loss": also}, {}),
    ]
    said = [found.newly_diverged(segment) for segment in segments]
    assert said[0] == said[3] == ""
    words = "1 agent of 3 diverged (seed 3): entropy, value_loss not finite in update 4"
    assert said[1].startswith(f"{words}. ") and "learning_rate" in said[1]
    words = "1 agent of 3 diverged (seed 5): value_loss not finite in update 5. "
    assert said[2].startswith(words)
    last = {**counts, PARAMETERS_FINITE: np.array([[True, False]] * 3)}
    found = Records((0, 1, 2), None, Group(()))
    said = found.newly_diverged(Segment(8, 2, last, {}))
    words = "3 agents of 3 diverged (seeds 0 to 2): parameters not finite in update 10"
    assert said.startswith(words)


class PaysLeft(CartPole):
    """CartPole in which a push to the left pays, which is all that broken agents do.

    A step pays more than a loss can hold where the cart has come far in five: few
    agents meet that.
    """

    def step_env(self, key, state, action, params):
        obs, state, _, *rest = super().step_env(key, state, action, params)
        is_broken = (state.time == 5) & (state.x > 0.07)
        reward = jnp.where(action == 0, 1.0, 0.0)
        return obs, state, jnp.where(is_broken, 1e38, reward), *rest


envs.register("test/pays-left", PaysLeft)
PAYS_LEFT = tiny_config(env="test/pays-left")
FEW = {"seeds": 4, "lanes": 4, "segment_updates": 8, "progress": False}


@pytest.fixture(scope="module")
def some_lost(tmp_path_factory):
    """A run of four agents, of which seed 3 diverges in the second of 3 segments."""
    return purerl.run(PAYS_LEFT, out=tmp_path_factory.mktemp("lost") / "run", **FEW)


def test_a_run_marks_who_has_diverged_as_a_sweep_does(some_lost):
    swept = purerl.sweep(PAYS_LEFT, {"learning_rate": [2.5e-4]}, **FEW)
    assert some_lost.config.learning_rate == 2.5e-4
    (found,) = swept["diverged_at"].values
    np.testing.assert_array_equal(some_lost.diverged_at, found)
    assert found.dtype == some_lost.diverged_at.dtype
    assert swept.to_dataframe()["diverged_at"].tolist() == found.tolist()
    assert (some_lost.diverged_at >= 0).tolist() == [False, False, False, True]
    np.testing.assert_array_equal(some_lost.scores(), swept.scores().values[0])
    for name in ("episode_return", "episode_length"):
        table, of_sweep = (x.to_dataframe()[name] for x in (some_lost, swept))
        np.testing.assert_array_equal(table, of_sweep)
        assert np.isnan(table).tolist() == [False, False, False, True]


def test_who_has_diverged_is_not_the_best_and_in_no_mean(some_lost):
    returns = some_lost.evaluation["episode_return"][:, -1].mean(-1)
    # It would have been: nothing pays more here than what it does.
    assert returns[3] == returns.max() > returns[:3].min()
    out, at = some_lost.out, some_lost.diverged_at
    assert 8 < at[3] < 16  # not the beginning of its segment
    assert folders.load(out)["diverged"] == {"3": at[3]}
    for run in (purerl.load(out), purerl.load_run(out)):
        np.testing.assert_array_equal(run.diverged_at, at)
    for run in (some_lost, purerl.load(out)):
        numbers = summary(run)
        kept = returns[:3]
        assert run.best().point != {"seed": 3} and run.best().score == kept.max()
        assert numbers["evaluation_mean"] == kept.mean()
        assert numbers["evaluation_per_seed"] == [*kept.tolist(), None]
        assert numbers["diverged"] == {"3": int(run.diverged_at[3])}
        json.dumps(numbers, allow_nan=False)


def test_tables_pages_and_pictures_say_who_has_diverged(some_lost, tmp_path):
    words = f"seed 3 diverged in update {some_lost.diverged_at[3] + 1}"
    lines = printed(tables.run_table(some_lost), 100).splitlines()
    (marked,) = [line for line in lines if "diverged" in line]
    assert marked.split("│")[1].strip() == "3" and words[-9:] in marked
    assert any("mean of 3" in line for line in lines)
    page = folder_page(some_lost.out, tmp_path / "page.html").read_text()
    assert f"{words[0].upper()}{words[1:]}" in page and "(1 of 4 lost)" in page
    axes = plots.learning_curve(some_lost).axes
    assert f"{words}; the mean" in axes.get_title(loc="left")
    curve = [line for line in axes.get_lines() if line.get_label() == "training"]
    returns = some_lost.metrics["episode_return"]
    np.testing.assert_allclose(curve[0].get_ydata(), returns[:3].mean(0))
    (cross,) = [line for line in axes.get_lines() if line.get_marker() == "x"]
    # The second segment, in which it diverged, is the last that is shown of it.
    assert cross.get_xdata() == some_lost.metrics["env_steps"][3, 1]


def test_a_resumed_run_knows_who_had_diverged(some_lost, tmp_path, capsys):
    out = tmp_path / "run"
    stopped = purerl.run(
        PAYS_LEFT, out=out, trackers=[StopAfter(16)], checkpoint_seconds=0, **FEW
    )
    assert not stopped.finished and stopped.diverged_at[3] == some_lost.diverged_at[3]
    capsys.readouterr()
    resumed = purerl.run(PAYS_LEFT, out=out, resume=True, trackers=[], **FEW)
    np.testing.assert_array_equal(resumed.diverged_at, some_lost.diverged_at)
    assert "diverged" not in capsys.readouterr().err  # It was said before.
    again = purerl.run(PAYS_LEFT, out=out, resume=True, trackers=[], **FEW)
    assert again.train_steps == 0
    np.testing.assert_array_equal(again.diverged_at, some_lost.diverged_at)


def test_where_all_have_diverged_there_is_no_best_and_commands_warn(tmp_path, capsys):
    from purerl.cli import results

    config = tiny_config(learning_rate=1e30)
    out = tmp_path / "run"
    run = purerl.run(config, seeds=2, lanes=2, progress=False, out=out)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("2 agents of 2 diverged (seeds 0 to 1): ")
    with pytest.raises(ConfigError, match=r"no agent .* 0 to 1 diverged, .*\. "):
        run.best()
    assert summary(run)["evaluation_mean"] is None
    assert plots.learning_curve(run).axes and tables.run_table(run).row_count == 2
    video = ("--out", str(tmp_path / "video.gif"), "--max-steps", "2")
    for main, arguments, who in (
        (
            results.main_evaluate,
            ("--episodes", "1"),
            "seeds 0 to 1 diverged, the first",
        ),
        (results.main_export, ("--seed", "1"), "seed 1 diverged"),
        (results.main_render, ("--seeds", "0", *video), "seed 0 diverged"),
    ):
        capsys.readouterr()
        assert main([str(out), *arguments]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{who} in update ") and "worth nothing" in line


def test_the_evaluation_of_a_lost_agent_is_unknown_and_not_the_best_return():
    """All of Pendulum's rewards are negative, so that 0 would be the highest return."""
    config = purerl.VPGConfig(
        env="Pendulum-v1", num_envs=2, num_steps=8, total_timesteps=32,
        num_evaluations=1, eval_episodes=2, eval_max_steps=10, hidden_sizes=(4,),
    )  # fmt: skip
    rates = {"learning_rate": jnp.array([3e-4, jnp.nan])}
    train = jax.vmap(purerl.make_train(config), in_axes=(None, 0))
    returns = jax.jit(train)(jax.random.key(0), rates).evaluation["episode_return"]
    assert (returns[0] < 0).all() and jnp.isnan(returns[1]).all()
