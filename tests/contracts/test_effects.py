"""Every search refuses numbers that nothing reads: all its runs would be equal."""

import jax
import jax.numpy as jnp
import pytest

import purerl
from purerl.comparison.api import CompareOptions, planned
from purerl.config import ConfigError
from purerl.sweeps import plan
from purerl.tracing import read_by
from tests.helpers import tiny_config

# A bandit's episodes have one step, so that nothing is discounted.
BANDIT = purerl.BanditConfig(total_timesteps=4)
DQN = purerl.DQNConfig(hidden_sizes=(4,), total_timesteps=4_000)
AXES = {"gamma": [0.5, 0.9]}
WORDS = "gamma has no effect {}: with the other settings of this {}, in {}, nothing in"
SEARCHES = {
    "sweep": lambda out: purerl.sweep(BANDIT, AXES, out=out),
    "a sweep's plan": lambda out: plan.plan(BANDIT, AXES),
    "pbt": lambda out: purerl.pbt(BANDIT, AXES, population=2, out=out),
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


def test_what_is_read_is_found_in_the_program():
    def function(named, x):
        looped = jax.lax.fori_loop(0, 3, lambda _, y: y * named["inside"], x)
        branch = jax.lax.cond(x > 0, lambda: named["branch"], lambda: 1.0)
        return looped + branch, named["given back"]

    names = ["inside", "branch", "given back", "neither"]
    named = dict.fromkeys(names, jnp.float32(2.0))
    assert read_by(function, named, jnp.float32(1.0)) == set(names[:3])
