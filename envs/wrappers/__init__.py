"""Wrappers: an environment around another one, under the same contract."""

from .action_mask import ActionMask as ActionMask
from .action_repeat import ActionRepeat as ActionRepeat
from .base import ObservationWrapper as ObservationWrapper
from .base import Wrapper as Wrapper
from .base import WrapperState as WrapperState
from .frame_stack import FrameStack as FrameStack
from .inside import innermost as innermost
from .inside import unwrap as unwrap
from .observations import FlattenObservation as FlattenObservation
from .observations import OneHotObservation as OneHotObservation
from .previous import PreviousActionReward as PreviousActionReward
from .randomised import Distribution as Distribution
from .randomised import Randomised as Randomised
from .randomised import RandomisedOnce as RandomisedOnce
from .randomised import distributions as distributions
from .randomised import drawn_params as drawn_params
from .registry import WRAPPERS as WRAPPERS
from .registry import are_built_in as are_built_in
from .registry import register_wrapper as register_wrapper
from .registry import wrap as wrap
from .rewards import ClipReward as ClipReward
from .rewards import RewardWrapper as RewardWrapper
from .rewards import ScaleReward as ScaleReward
from .sticky_actions import StickyActions as StickyActions
from .time_observation import TimeObservation as TimeObservation
