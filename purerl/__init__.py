"""purerl: reinforcement-learning training runs as one compiled JAX program."""

from purerl.algorithms.ppo import PPOConfig as PPOConfig
from purerl.config import ConfigError as ConfigError
from purerl.train import make_algorithm as make_algorithm
from purerl.train import make_policy as make_policy
from purerl.train import make_train as make_train
from purerl.types import Algorithm as Algorithm
from purerl.types import TrainResult as TrainResult

__version__ = "0.1.0"
