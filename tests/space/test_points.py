import purerl
from purerl.space.points import config_at, resolve_point, with_algorithm
from tests.helpers import tiny_config


def test_another_algorithm_takes_over_what_was_set():
    config = tiny_config(gamma=0.9)
    other = with_algorithm(config, "dqn")
    assert isinstance(other, purerl.DQNConfig)
    assert (other.gamma, other.total_timesteps) == (0.9, 640)
    assert other.hidden_sizes == (8,)
    # What is PPO's default stays DQN's default.
    assert other.num_envs == 2 and other.activation == "relu" != config.activation


def test_a_point_is_a_config():
    point = {"num_envs": 4, "learning_rate": 0.1, "algorithm": "vpg"}
    config, overrides = resolve_point(tiny_config(), point)
    assert isinstance(config, purerl.VPGConfig) and config.num_envs == 4
    assert overrides == {"learning_rate": 0.1}
    assert config_at(tiny_config(), point) == config.replace(learning_rate=0.1)
