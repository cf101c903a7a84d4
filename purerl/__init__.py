"""purerl: reinforcement-learning training runs as one compiled JAX program.

The names load when they are first used: flax and optax take half a second, which
`import purerl` alone does not spend.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from purerl import algorithms as algorithms
    from purerl import losses as losses
    from purerl import presets as presets
    from purerl import serialise as serialise
    from purerl.algorithms.dqn import DQNConfig as DQNConfig
    from purerl.algorithms.mpo import MPOConfig as MPOConfig
    from purerl.algorithms.ppo import PPOConfig as PPOConfig
    from purerl.algorithms.pqn import PQNConfig as PQNConfig
    from purerl.algorithms.recurrent_ppo import RecurrentPPOConfig as RecurrentPPOConfig
    from purerl.algorithms.sac import SACConfig as SACConfig
    from purerl.algorithms.td3 import TD3Config as TD3Config
    from purerl.algorithms.vpg import VPGConfig as VPGConfig
    from purerl.checker import check as check
    from purerl.config import ConfigError as ConfigError
    from purerl.meta.comparison import LossComparison as LossComparison
    from purerl.meta.comparison import load_comparison as load_comparison
    from purerl.meta.evolve import evolve as evolve
    from purerl.meta.result import EvolutionResult as EvolutionResult
    from purerl.meta.result import load_evolution as load_evolution
    from purerl.meta.strategy import OpenES as OpenES
    from purerl.meta.strategy import Strategy as Strategy
    from purerl.meta.transfer import compare_losses as compare_losses
    from purerl.population.halving import halving as halving
    from purerl.population.halving_result import HalvingResult as HalvingResult
    from purerl.population.pbt import pbt as pbt
    from purerl.population.pbt_result import PBTResult as PBTResult
    from purerl.population.saved import load_search as load_search
    from purerl.population.schedule import Schedule as Schedule
    from purerl.population.schedule import train_schedules as train_schedules
    from purerl.report.track_folder import track as track
    from purerl.runner.loop import run as run
    from purerl.runner.result import RunResult as RunResult
    from purerl.runner.result import load_run as load_run
    from purerl.runner.trackers import make_tracker as make_tracker
    from purerl.runner.trackers.base import Tracker as Tracker
    from purerl.runner.trackers.points import dataset_points as dataset_points
    from purerl.runner.trackers.points import track_points as track_points
    from purerl.scale.devices import pmap as pmap
    from purerl.scale.devices import use_all_cores as use_all_cores
    from purerl.scale.parallel import data_parallel as data_parallel
    from purerl.serialise import load_loss as load_loss
    from purerl.serialise import save_loss as save_loss
    from purerl.sweeps.api import sweep as sweep
    from purerl.sweeps.axes import choice as choice
    from purerl.sweeps.axes import loguniform as loguniform
    from purerl.sweeps.axes import uniform as uniform
    from purerl.sweeps.lanes import find_lanes as find_lanes
    from purerl.sweeps.plan import plan as plan
    from purerl.sweeps.result import SweepResult as SweepResult
    from purerl.sweeps.result import load_sweep as load_sweep
    from purerl.train import make_algorithm as make_algorithm
    from purerl.train import make_policy as make_policy
    from purerl.train import make_train as make_train
    from purerl.train import resolve as resolve
    from purerl.tuning.api import tune as tune
    from purerl.tuning.result import TuneResult as TuneResult
    from purerl.tuning.saved import load_tune as load_tune
    from purerl.types import Algorithm as Algorithm
    from purerl.types import TrainResult as TrainResult

__version__ = "0.1.0"

_SUBMODULES = (
    "algorithms",
    "losses",
    "presets",
    "serialise",
)
_HOME = {
    "Algorithm": "purerl.types",
    "ConfigError": "purerl.config",
    "DQNConfig": "purerl.algorithms.dqn",
    "EvolutionResult": "purerl.meta.result",
    "HalvingResult": "purerl.population.halving_result",
    "LossComparison": "purerl.meta.comparison",
    "MPOConfig": "purerl.algorithms.mpo",
    "OpenES": "purerl.meta.strategy",
    "PBTResult": "purerl.population.pbt_result",
    "PPOConfig": "purerl.algorithms.ppo",
    "PQNConfig": "purerl.algorithms.pqn",
    "RecurrentPPOConfig": "purerl.algorithms.recurrent_ppo",
    "RunResult": "purerl.runner.result",
    "SACConfig": "purerl.algorithms.sac",
    "Schedule": "purerl.population.schedule",
    "Strategy": "purerl.meta.strategy",
    "SweepResult": "purerl.sweeps.result",
    "TD3Config": "purerl.algorithms.td3",
    "Tracker": "purerl.runner.trackers.base",
    "TrainResult": "purerl.types",
    "TuneResult": "purerl.tuning.result",
    "VPGConfig": "purerl.algorithms.vpg",
    "check": "purerl.checker",
    "choice": "purerl.sweeps.axes",
    "compare_losses": "purerl.meta.transfer",
    "data_parallel": "purerl.scale.parallel",
    "dataset_points": "purerl.runner.trackers.points",
    "evolve": "purerl.meta.evolve",
    "find_lanes": "purerl.sweeps.lanes",
    "halving": "purerl.population.halving",
    "load_comparison": "purerl.meta.comparison",
    "load_evolution": "purerl.meta.result",
    "load_loss": "purerl.serialise",
    "load_run": "purerl.runner.result",
    "load_search": "purerl.population.saved",
    "load_sweep": "purerl.sweeps.result",
    "load_tune": "purerl.tuning.saved",
    "loguniform": "purerl.sweeps.axes",
    "make_algorithm": "purerl.train",
    "make_policy": "purerl.train",
    "make_tracker": "purerl.runner.trackers",
    "make_train": "purerl.train",
    "pbt": "purerl.population.pbt",
    "plan": "purerl.sweeps.plan",
    "pmap": "purerl.scale.devices",
    "resolve": "purerl.train",
    "run": "purerl.runner.loop",
    "save_loss": "purerl.serialise",
    "sweep": "purerl.sweeps.api",
    "track": "purerl.report.track_folder",
    "track_points": "purerl.runner.trackers.points",
    "train_schedules": "purerl.population.schedule",
    "tune": "purerl.tuning.api",
    "uniform": "purerl.sweeps.axes",
    "use_all_cores": "purerl.scale.devices",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _SUBMODULES:
        return import_module(f"purerl.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'purerl' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *_HOME, *_SUBMODULES})
