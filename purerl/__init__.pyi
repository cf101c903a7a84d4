"""The public names and where they are; type checkers and `__getattr__` read this."""

from purerl import algorithms as algorithms
from purerl import losses as losses
from purerl import optimisers as optimisers
from purerl import presets as presets
from purerl import randomisation as randomisation
from purerl import rules as rules
from purerl import schedules as schedules
from purerl import serialise as serialise
from purerl.algorithms.bandit import BanditConfig as BanditConfig
from purerl.algorithms.disco_config import DiscoConfig as DiscoConfig
from purerl.algorithms.dqn import DQNConfig as DQNConfig
from purerl.algorithms.lpg import LPGConfig as LPGConfig
from purerl.algorithms.mpo import MPOConfig as MPOConfig
from purerl.algorithms.ppo import PPOConfig as PPOConfig
from purerl.algorithms.pqn import PQNConfig as PQNConfig
from purerl.algorithms.recurrent_dqn_config import (
    RecurrentDQNConfig as RecurrentDQNConfig,
)
from purerl.algorithms.recurrent_ppo import RecurrentPPOConfig as RecurrentPPOConfig
from purerl.algorithms.recurrent_pqn_config import (
    RecurrentPQNConfig as RecurrentPQNConfig,
)
from purerl.algorithms.sac import SACConfig as SACConfig
from purerl.algorithms.tabular import TabularConfig as TabularConfig
from purerl.algorithms.td3 import TD3Config as TD3Config
from purerl.algorithms.vpg import VPGConfig as VPGConfig
from purerl.checker import check as check
from purerl.comparison.api import compare as compare
from purerl.comparison.api import compare_losses as compare_losses
from purerl.comparison.result import Comparison as Comparison
from purerl.comparison.result import LossComparison as LossComparison
from purerl.comparison.result import load_comparison as load_comparison
from purerl.config import ConfigError as ConfigError
from purerl.execution.cache import share_programs as share_programs
from purerl.execution.members import Members as Members
from purerl.export import export_policy as export_policy
from purerl.meta.distil import distil as distil
from purerl.meta.evolve import evolve as evolve
from purerl.meta.result import EvolutionResult as EvolutionResult
from purerl.meta.result import load_evolution as load_evolution
from purerl.meta.strategy import OpenES as OpenES
from purerl.meta.strategy import Strategy as Strategy
from purerl.metagradient.api import MetaGradient as MetaGradient
from purerl.metagradient.api import MetaGradientFunction as MetaGradientFunction
from purerl.metagradient.api import meta_gradient as meta_gradient
from purerl.metagradient.lifetimes import MetaTraining as MetaTraining
from purerl.metagradient.lifetimes import MetaTrainState as MetaTrainState
from purerl.metagradient.lifetimes import meta_train as meta_train
from purerl.metagradient.self_tuning import SelfTuned as SelfTuned
from purerl.metagradient.self_tuning import self_tune as self_tune
from purerl.population.halving import halving as halving
from purerl.population.halving_result import HalvingResult as HalvingResult
from purerl.population.pbt import pbt as pbt
from purerl.population.pbt_result import PBTResult as PBTResult
from purerl.population.saved import load_search as load_search
from purerl.population.schedule import Schedule as Schedule
from purerl.population.train_schedules import train_schedules as train_schedules
from purerl.report.load_folder import load as load
from purerl.report.rendering import Rendering as Rendering
from purerl.report.rendering import render as render
from purerl.report.track_folder import track as track
from purerl.runner.api import run as run
from purerl.runner.result import RunResult as RunResult
from purerl.runner.result import load_run as load_run
from purerl.runner.start import Start as Start
from purerl.runner.trackers import make_tracker as make_tracker
from purerl.runner.trackers.base import Tracker as Tracker
from purerl.runner.trackers.mlflow_model import log_policy as log_policy
from purerl.runner.trackers.points import dataset_points as dataset_points
from purerl.runner.trackers.points import track_points as track_points
from purerl.scale.devices import compiler_options as compiler_options
from purerl.scale.devices import use_all_cores as use_all_cores
from purerl.scale.parallel import data_parallel as data_parallel
from purerl.scale.pmap import pmap as pmap
from purerl.search.drive import drive as drive
from purerl.search.dry_run import dry_run as dry_run
from purerl.search.protocol import Outcome as Outcome
from purerl.search.protocol import Request as Request
from purerl.search.protocol import Search as Search
from purerl.search.protocol import Step as Step
from purerl.serialise import load_loss as load_loss
from purerl.serialise import load_part as load_part
from purerl.serialise import save_loss as save_loss
from purerl.serialise import save_part as save_part
from purerl.space.axes import choice as choice
from purerl.space.axes import loguniform as loguniform
from purerl.space.axes import uniform as uniform
from purerl.sweeps.api import sweep as sweep
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
from purerl.warm_start import networks_of as networks_of

__version__: str
