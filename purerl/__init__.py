"""purerl: reinforcement-learning training runs as one compiled JAX program."""

from purerl import algorithms as algorithms
from purerl import losses as losses
from purerl import presets as presets
from purerl import serialise as serialise
from purerl.algorithms.ppo import PPOConfig as PPOConfig
from purerl.config import ConfigError as ConfigError
from purerl.runner.loop import run as run
from purerl.runner.result import RunResult as RunResult
from purerl.runner.result import load_run as load_run
from purerl.scale.devices import pmap as pmap
from purerl.scale.devices import use_all_cores as use_all_cores
from purerl.scale.parallel import data_parallel as data_parallel
from purerl.train import make_algorithm as make_algorithm
from purerl.train import make_policy as make_policy
from purerl.train import make_train as make_train
from purerl.types import Algorithm as Algorithm
from purerl.types import TrainResult as TrainResult

__version__ = "0.1.0"
