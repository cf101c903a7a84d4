"""Defaults that follow the task: fields that are `auto` until it is known."""

import json
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.acting import exploration
from purerl.algorithms import ALGORITHMS
from purerl.config import AUTO, ConfigError
from purerl.runner import manifest
from purerl.runner.run import RunOptions
from purerl.train import bind
from tests.helpers import tiny_config

CONTINUOUS = "probe/continuous"
values = attrgetter(
    *("num_steps", "num_epochs", "num_minibatches", "entropy_coef"),
    *("normalize_observations", "normalize_rewards"),
)


def test_the_defaults_of_ppo_follow_the_actions():
    assert values(purerl.PPOConfig()) == (AUTO,) * 6
    for config, expected in (
        (purerl.PPOConfig(env="CartPole-v1"), (128, 4, 4, 0.01, False, False)),
        (purerl.PPOConfig(env="Pendulum-v1"), (512, 10, 32, 0.0, True, True)),
        (purerl.RecurrentPPOConfig(env="Pendulum-v1"), (128, 4, 4, 0.0, True, True)),
    ):
        assert values(purerl.resolve(config)) == expected


@pytest.mark.parametrize(
    ("num_envs", "num_steps", "parts"),
    [(4, 512, 32), (2048, 10, 32), (2, 16, 1), (1, 1000, 10), (3, 100, 4)],
)
def test_minibatches_of_continuous_tasks_divide_any_rollout(num_envs, num_steps, parts):
    config = purerl.PPOConfig(
        env=CONTINUOUS, num_envs=num_envs, num_steps=num_steps, total_timesteps=10**6
    )
    found = purerl.resolve(config).num_minibatches
    assert found == parts
    size = num_envs * num_steps / found
    assert size == int(size) and (size >= 64 or found == 1)


def test_the_arithmetic_of_an_update_needs_the_task():
    with pytest.raises(ConfigError, match=r"num_steps is auto.*purerl.resolve"):
        _ = purerl.PPOConfig().steps_per_update
    with pytest.raises(ConfigError, match=r"num_epochs is auto"):
        _ = purerl.PPOConfig(num_steps=8).sequential_steps
    config = purerl.resolve(purerl.PPOConfig(env=CONTINUOUS))
    assert (config.steps_per_update, config.sequential_steps) == (2048, 832)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_but_a_choice_stays_auto(name):
    config = purerl.resolve(ALGORITHMS[name].config())
    left = [n for n, v in serialise.to_dict(config).items() if v == AUTO]
    assert set(left) <= {"policy", "torso", "actor", "critic"}
    assert purerl.resolve(config) == config


# Exploration ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "share", "steps"),
    [(purerl.DQNConfig, 0.5, 250_000.0), (purerl.PQNConfig, 0.2, 100_000.0)],
)
def test_exploration_is_a_share_of_the_run(cls, share, steps):
    assert purerl.resolve(cls()).epsilon_steps == steps  # as CleanRL's, purejaxql's
    short = purerl.resolve(cls(total_timesteps=50_000))
    assert short.epsilon_steps == share * 50_000
    assert purerl.resolve(cls(epsilon_steps=7.0)).epsilon_steps == 7.0
    half = purerl.resolve(cls(total_timesteps=50_000, epsilon_fraction=0.1))
    assert half.epsilon_steps == 5_000.0


@pytest.mark.parametrize("cls", [purerl.DQNConfig, purerl.PQNConfig])
def test_an_overridden_share_moves_the_steps(cls):
    bound = bind(cls(total_timesteps=100_000, epsilon_end=0.0))
    assert bound.at({"epsilon_fraction": 0.1}).epsilon_steps == 10_000.0
    assert bound.at({"epsilon_steps": 3.0}).epsilon_steps == 3.0

    def epsilon(share):
        config = bound.at({"epsilon_fraction": share})
        return exploration.epsilon_of(config, jnp.int32(5_000))

    found = jax.jit(jax.vmap(epsilon))(jnp.array([0.05, 0.1, 0.5]))
    np.testing.assert_allclose(found, [0.0, 0.5, 0.9], rtol=1e-6)


def test_a_share_that_nothing_follows_is_refused():
    bound = bind(purerl.DQNConfig(epsilon_steps=100.0))
    with pytest.raises(ConfigError, match=r"epsilon_fraction.*epsilon_steps is given"):
        bound.at({"epsilon_fraction": 0.1})
    with pytest.raises(ConfigError, match=r"epsilon_fraction.*epsilon_steps is given"):
        bind(purerl.PQNConfig()).at({"epsilon_fraction": 0.1, "epsilon_steps": 10.0})
    with pytest.raises(ConfigError, match=r"=0\.1 and epsilon_steps=7 contradict"):
        bind(purerl.DQNConfig(epsilon_fraction=0.1, epsilon_steps=7.0))
    bind(purerl.resolve(purerl.DQNConfig(epsilon_fraction=0.1)))  # they agree

    def is_bound(share):  # a traced share cannot be looked at
        bind(purerl.DQNConfig(epsilon_fraction=share))
        return share

    assert jax.eval_shape(is_bound, 0.3).shape == ()
    with pytest.raises(ConfigError, match=r"epsilon_fraction must be greater than 0"):
        bind(purerl.DQNConfig(epsilon_fraction=0.0))


# In files, sweeps and words -----------------------------------------------------------


@pytest.mark.slow
def test_a_run_saves_and_prints_what_auto_stood_for(tmp_path, capsys):
    config = tiny_config(env=CONTINUOUS, total_timesteps=64, eval_share=0.0)
    folder = tmp_path / "run"
    result = purerl.run(config, out=folder)
    assert (result.config.entropy_coef, result.config.normalize_rewards) == (0.0, True)
    stored = json.loads((folder / "manifest.json").read_text())["config"]
    assert (stored["entropy_coef"], stored["normalize_rewards"]) == (0.0, True)
    assert serialise.from_yaml(folder / "config.yaml") == result.config
    said = capsys.readouterr().err
    found = "normalize_observations=True, sequence_length=16, entropy_coef=0"
    assert f"auto: {found}, normalize_rewards=True" in said
    assert "1 evaluation of 2 episodes of at most 20 steps" in said
    assert "(3 asked for, affordable within eval_share=0)" in said
    # Asked again, as it was asked for or as it was saved, it is the same run.
    for again in (config, result.config):
        manifest.open_run(folder, bind(again).config, (0,), RunOptions(again))
    with pytest.raises(ConfigError, match=r"entropy_coef is 0.0 there and 0.5 here"):
        purerl.run(config.replace(entropy_coef=0.5), out=folder, resume=True)
