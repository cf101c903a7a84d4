import pytest

import purerl
from purerl.config import TASK_FIELDS
from purerl.space.points import config_at, resolve_point, with_algorithm
from purerl.train import bind
from tests.helpers import tiny_config


def test_another_algorithm_takes_over_what_was_set():
    config = tiny_config(gamma=0.9)
    other = with_algorithm(config, "dqn")
    assert isinstance(other, purerl.DQNConfig)
    assert (other.gamma, other.total_timesteps) == (0.9, 640)
    assert other.hidden_sizes == (8,)
    # What is PPO's default stays DQN's default.
    assert other.num_envs == 2 and other.activation == "relu" != config.activation


@pytest.mark.parametrize("cls", [purerl.PPOConfig, purerl.SACConfig, purerl.DQNConfig])
def test_another_algorithm_has_the_same_task_also_where_it_is_the_default(cls):
    """PPO's default environment is CartPole-v1, and SAC's Pendulum-v1."""
    config = cls(num_envs=cls().num_envs)
    for name in ("ppo", "sac", "plr", "bandit", "tabular"):
        other = with_algorithm(config, name)
        for field in TASK_FIELDS:
            expected = getattr(config, field)
            if (name, field) == ("plr", "env_wrappers"):
                expected = ("RandomLevels",)  # It cannot train without.
            assert getattr(other, field) == expected, (name, field)
    bind(with_algorithm(purerl.PPOConfig(env="Maze-v0", total_timesteps=5e6), "plr"))
    point = config_at(purerl.SACConfig(env="Pendulum-v1"), {"algorithm": "ppo"})
    assert isinstance(point, purerl.PPOConfig) and point.env == "Pendulum-v1"
    assert point.learning_rate == purerl.PPOConfig().learning_rate


def test_a_point_is_a_config():
    point = {"num_envs": 4, "learning_rate": 0.1, "algorithm": "vpg"}
    config, overrides = resolve_point(tiny_config(), point)
    assert isinstance(config, purerl.VPGConfig) and config.num_envs == 4
    assert overrides == {"learning_rate": 0.1}
    assert config_at(tiny_config(), point) == config.replace(learning_rate=0.1)


def test_the_task_of_a_folder_read_without_modules_is_the_config_of_every_point():
    task = purerl.config.TrainConfig(total_timesteps=640)
    assert config_at(task, {"extra_loss.coef": 0.1}) is task
