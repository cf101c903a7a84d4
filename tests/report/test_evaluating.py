"""`purerl.evaluate`: the episodes of runs, sweeps, states in hand, and Gymnasium."""

import re
from typing import Any

import jax
import numpy as np
import pytest

import purerl
from purerl.cli import main
from purerl.keys import evaluation_key
from purerl.population.schedules import ConfigSchedule
from purerl.report.playing import play_compiled
from purerl.scale.host import to_device
from tests.helpers import tiny_config

CONFIG = tiny_config(num_evaluations=1, eval_episodes=3)
QUICK = {"progress": False, "trackers": []}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two agents of CartPole, whose episodes are cut after 20 steps."""
    out = tmp_path_factory.mktemp("evaluate") / "run"
    return purerl.run(CONFIG, seeds=(3, 5), lanes=2, out=out, **QUICK)


@pytest.fixture(scope="module")
def played(run):
    return purerl.evaluate(run, episodes=4)


def agent(result, index):
    """The state of one agent, on the device."""
    return to_device(jax.tree.map(lambda x: x[index], result.state))


def test_a_run_its_folder_and_the_command_play_the_same(run, played, capsys):
    assert played.seeds == (3, 5) and played.diverged_at.tolist() == [-1, -1]
    returns = played.episode_return
    assert returns.shape == (2, 4) and np.unique(returns).size > 1
    # CartPole pays 1 for a step.
    np.testing.assert_array_equal(returns, played.episode_length)
    np.testing.assert_array_equal(played.cut_episodes, (returns == 20).sum(1))
    for of_folder in (
        purerl.evaluate(run.out, episodes=4, seed=5),
        purerl.evaluate(f"{run.out}:5", episodes=4),
    ):
        assert of_folder.seeds == (5,)
        np.testing.assert_array_equal(of_folder.episode_return, returns[1:])
    others = purerl.evaluate(run, episodes=4, episode_seed=7).episode_return
    assert (others != returns).any()
    assert main(["evaluate", str(run.out), "--episodes", "4"]) == 0
    said = capsys.readouterr().out
    assert played.title in " ".join(said.split())
    for seed, row in zip(played.seeds, returns, strict=True):
        (line,) = re.findall(rf"^\W*{seed}\W.*", said, re.MULTILINE)
        numbers = [float(x) for x in re.findall(r"\d+\.\d+", line)]
        expected = row.mean(), row.std(), row.min(), row.max()
        np.testing.assert_allclose(numbers, expected, atol=0.051)


def test_shared_programs_play_other_episodes_and_not_other_games(run, played):
    own: dict[str, Any] = {"episodes": 4}
    others: tuple[dict[str, Any], ...] = (
        {"episodes": 5},
        {"deterministic": False},
        {"env_params": {"force_mag": 90}},
    )
    with purerl.share_programs() as cache:
        first, again = (purerl.evaluate(run, **own, episode_seed=s) for s in (12345, 7))
        assert cache.compilations == 1
        changed = [purerl.evaluate(run, **own | other) for other in others]
        assert cache.compilations == 4
    np.testing.assert_array_equal(first.episode_return, played.episode_return)
    for other in (again, *changed):
        assert not np.array_equal(other.episode_return, first.episode_return)


def test_a_few_lines_say_what_was_played(played):
    returns = played.episode_return.mean(1)
    title, agents, cut = repr(played).splitlines()
    assert title == f"Evaluated: {played.title}"
    ends = f"range of 2: {returns.min():.1f} to {returns.max():.1f}"
    assert agents == f"  2 agents: mean return {returns.mean():.1f} ({ends})"
    assert cut.split()[0] == str(played.cut_episodes.sum())
    lost = played._replace(diverged_at=np.array([7, -1]))
    assert f"  2 agents: mean return {returns[1]:.1f}\n" in f"{lost}\n"
    assert "  seed 3 diverged in update 8" in repr(lost)


def test_with_the_keys_of_the_training_the_episodes_are_those_of_the_run(run):
    for index, seed in enumerate(run.seeds):
        key = evaluation_key(agent(run, index))
        played = play_compiled(CONFIG, run.only([seed]).state, 3, key)
        for name, values in played.items():
            expected = run.evaluation[name][index : index + 1, -1]
            np.testing.assert_array_equal(values, expected, err_msg=name)


def test_states_in_hand_play_as_the_agents_of_their_run(run, played):
    returns = played.episode_return
    best = purerl.BestMember(
        *({}, 1.0, CONFIG, 0, 0),
        schedule=ConfigSchedule((0,), ({},)),
        lineage=np.zeros(1, int),
        state=agent(run, 1),
    )
    for alone in (
        purerl.evaluate(CONFIG, agent(run, 1), episodes=4),
        purerl.evaluate(run.best(), agent(run, 1), episodes=4),
        purerl.evaluate(best, episodes=4),
    ):
        assert alone.seeds == (0,) and alone.title.endswith("after update 20")
        np.testing.assert_array_equal(alone.episode_return, returns[1:])
    both = purerl.evaluate(CONFIG, run.state, episodes=4)
    np.testing.assert_array_equal(both.episode_return, returns)


def test_of_a_sweep_the_best_configuration_plays_or_a_member():
    axes = {"learning_rate": [1e-5, 3e-2]}
    sweep = purerl.sweep(CONFIG, axes, seeds=2, keep_states=True, lanes=4, **QUICK)
    best = sweep.best()
    played = purerl.evaluate(sweep, episodes=4)
    alone = [
        purerl.evaluate(best, sweep.state(best.point, seed), episodes=4)
        for seed in sweep.seeds
    ]
    expected = np.concatenate([member.episode_return for member in alone])
    np.testing.assert_array_equal(played.episode_return, expected)
    one = purerl.evaluate(sweep, seed=1, episodes=4)
    assert one.seeds == (1,)
    np.testing.assert_array_equal(one.episode_return, expected[1:])


def test_a_sampled_policy_draws_an_action_of_every_observation(run, capsys):
    import gymnasium

    options = {"episodes": 3, "episode_seed": 7, "deterministic": False}
    inside = purerl.evaluate(run, **options)
    told = ["--episodes", "3", "--episode-seed", "7", "--no-deterministic"]
    assert main(["evaluate", str(run.out), *told]) == 0
    assert inside.title in " ".join(capsys.readouterr().out.split())
    assert "sampled policy" in inside.title
    certain = purerl.evaluate(run, **options | {"deterministic": True})
    assert (inside.episode_return != certain.episode_return).any()
    played = purerl.evaluate(run, gymnasium=True, seed=5, **options)
    policy, key = run.policy(5), jax.random.key(7)
    envs = [gymnasium.make("CartPole-v1") for _ in range(3)]
    obs = np.stack([env.reset(seed=7 + i)[0] for i, env in enumerate(envs)])
    ended, lengths = np.zeros(3, bool), np.zeros(3, int)
    for _ in range(20):
        key, key_now = jax.random.split(key)
        actions = np.asarray(policy(obs, key_now))
        for i in np.flatnonzero(~ended):
            obs[i], _, terminated, truncated, _ = envs[i].step(int(actions[i]))
            lengths[i] += 1
            ended[i] = terminated or truncated
    np.testing.assert_array_equal(played.episode_length, [lengths])
    np.testing.assert_array_equal(played.cut_episodes, [(~ended).sum()])


def test_other_numbers_of_the_environment_are_played_with(run):
    played = purerl.evaluate(
        run, episodes=2, env_params={"max_steps_in_episode": 4, "gravity": 0.1}
    )
    assert (played.episode_length == 4).all()


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ("run", {"episodes": 0}, "episodes must be a positive"),
        ("run", {"deterministic": "False"}, "deterministic must be True or False"),
        ("run", {"seed": 4}, "got 4; the run has seeds 3, 5"),
        ("run", {"state": 1}, "state goes with a config"),
        ("curves", {}, "without its states"),
        ("run", {"gymnasium": True, "env_params": {"length": 1}}, "leave env_params"),
        ("config", {}, "state must be a training state"),
        ("other", {"state": "one"}, "Give the config that the agent was trained with"),
        (7, {}, "what to evaluate must be a run or its folder"),
    ],
)
def test_what_cannot_be_played_is_refused(run, given, options, words):
    things = {
        "run": run,
        "curves": run._replace(state=None),
        "config": CONFIG,
        "other": CONFIG.replace(hidden_sizes=(16,)),
    }
    if options.get("state") == "one":
        options = options | {"state": agent(run, 0)}
    with pytest.raises(purerl.ConfigError, match=words):
        purerl.evaluate(things.get(given, given), **options)
