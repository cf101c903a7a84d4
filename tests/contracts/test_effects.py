"""Every search refuses numbers that nothing reads: all its runs would be equal."""

import jax
import jax.numpy as jnp
import pytest

import purerl
from purerl.comparison.api import CompareOptions, planned
from purerl.config import ConfigError
from purerl.sweeps import plan
from purerl.sweeps.plan import SweepOptions
from purerl.tracing import read_by
from purerl.tuning.space import Space
from tests.helpers import tiny_config

# A bandit's episodes have one step, so that nothing is discounted.
BANDIT = purerl.BanditConfig(total_timesteps=4)
DQN = purerl.DQNConfig(hidden_sizes=(4,), total_timesteps=4_000)
AXES = {"gamma": [0.5, 0.9]}
WORDS = "gamma has no effect {}: with the other settings of this {}, in {}, nothing in"
SEARCHES = {
    "sweep": lambda out: purerl.sweep(BANDIT, AXES, out=out),
    "a sweep's plan": lambda out: plan.plan(BANDIT, AXES),
    "pbt": lambda out: purerl.pbt(BANDIT, AXES, population=2, num_rounds=2, out=out),
    "halving": lambda out: purerl.halving(BANDIT, AXES, num_points=2, out=out),
    "tune": lambda out: purerl.tune(BANDIT, AXES, trials=2, out=out),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_an_axis_that_nothing_reads_is_refused_before_there_is_a_folder(
    search, tmp_path
):
    words = WORDS.format("as an axis", "BanditConfig", "KArmedBandit-v0")
    with pytest.raises(ConfigError, match=words):
        SEARCHES[search](tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_number_that_nothing_reads_is_not_evolved(tmp_path):
    words = WORDS.format("in an evolution", "DQNConfig", "CartPole-v1")
    with pytest.raises(ConfigError, match=words.replace("gamma", "munchausen_tau")):
        purerl.evolve(DQN, evolve="munchausen_tau", population=4, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_setting_that_trains_as_the_config_does_is_not_compared():
    words = WORDS.format("as a setting", "BanditConfig", "KArmedBandit-v0")
    settings = {"own": {}, "far-sighted": {"gamma": 0.5}}
    with pytest.raises(ConfigError, match=f"settings: far-sighted: {words}"):
        purerl.compare(BANDIT, settings, seeds=2)
    # Beside a number that is read, or a loss that has none, it is one.
    for more in ({"epsilon": 0.2}, {"method": "gradient"}):
        other = {"gamma": 0.5} | more
        planned(CompareOptions(BANDIT, {"own": {}, "other": other}, seeds=2))
    loss = {"value_loss": purerl.losses.ClippedSquaredError()}
    planned(CompareOptions(tiny_config(), {"own": {}, "clipped": loss}, seeds=2))


def test_a_number_that_no_update_reads_has_no_meta_gradient():
    with pytest.raises(ConfigError, match="clip_rewards has no effect within a run"):
        purerl.meta_gradient(tiny_config(), wrt="clip_rewards")


@pytest.mark.parametrize(
    "axes",
    [
        # One of two kinds of values reads it.
        {"values": ["expected", "quantile"], "kappa": [0.5, 1.0]},
        # What has one value is a setting, and no question.
        {"kappa": [0.5], "gamma": [0.9, 0.99]},
        {"munchausen": [False, True], "munchausen_tau": [0.03, 0.1], "double": [False]},
    ],
)
def test_an_axis_that_some_runs_read_is_swept(axes):
    asked = SweepOptions(DQN, axes, seeds=1, lanes=1)
    plan.make_outline(asked, [], 1e9)


def test_a_study_looks_for_a_choice_that_reads_an_axis():
    Space(
        DQN,
        {
            "values": purerl.choice(["expected", "categorical", "implicit"]),
            "kappa": purerl.uniform(0.5, 1.0),
        },
    ).check_effects()
    # The first of these combinations cannot be trained.
    sizes = {"num_envs": purerl.choice([3, 4]), "num_minibatches": purerl.choice([32])}
    Space(
        tiny_config(num_envs=4), sizes | {"gamma": purerl.uniform(0.9, 0.99)}
    ).check_effects()
    # A loss without numbers is another program, and no number that nothing reads.
    losses = [purerl.losses.SquaredError(), purerl.losses.ClippedSquaredError()]
    Space(tiny_config(), {"value_loss": purerl.choice(losses)}).check_effects()
    with pytest.raises(ConfigError, match="kappa has no effect as an axis"):
        Space(
            DQN,
            {
                "values": purerl.choice(["expected", "categorical"]),
                "kappa": purerl.uniform(0.5, 1.0),
            },
        ).check_effects()


def test_what_is_read_is_found_in_the_program():
    def function(named, x):
        looped = jax.lax.fori_loop(0, 3, lambda _, y: y * named["inside"], x)
        branch = jax.lax.cond(x > 0, lambda: named["branch"], lambda: 1.0)
        return looped + branch, named["given back"]

    names = ["inside", "branch", "given back", "neither"]
    named = dict.fromkeys(names, jnp.float32(2.0))
    assert read_by(function, named, jnp.float32(1.0)) == set(names[:3])
