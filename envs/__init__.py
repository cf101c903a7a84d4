"""Pure-JAX environments behind one contract.

`make("CartPole-v1")` returns an `Environment`: `reset(key, params)` and
`step(key, state, action, params)` are pure functions, its parameters are a pytree of
numbers that can be vmapped. See `base` for the contract, `registry` for the names.
"""

from importlib import import_module
from typing import Any

from . import spaces as spaces
from . import wrappers as wrappers
from .adapters.adapt import FiveValueEnvironment as FiveValueEnvironment
from .adapters.adapt import adapt as adapt
from .adapters.gymnasium import register_in_gymnasium as register_in_gymnasium
from .adapters.gymnasium import to_gymnasium as to_gymnasium
from .adapters.gymnasium import to_gymnasium_vector as to_gymnasium_vector
from .base import Environment as Environment
from .base import EnvParams as EnvParams
from .base import EnvState as EnvState
from .cartpole import CartPole as CartPole
from .checker import EnvCheckError as EnvCheckError
from .checker import check as check
from .doors import Doors as Doors
from .gridworld import CliffWalking as CliffWalking
from .gridworld import GridWorld as GridWorld
from .maze import Maze as Maze
from .object_grid import ObjectGrid as ObjectGrid
from .registry import EnvDescription as EnvDescription
from .registry import describe as describe
from .registry import make as make
from .registry import register as register
from .registry import registered as registered
from .registry import source_of as source_of
from .wrappers import ActionMask as ActionMask
from .wrappers import Wrapper as Wrapper
from .wrappers import register_wrapper as register_wrapper
from .wrappers import wrap as wrap

_CONTRIB = {
    "Channel": "purerl.contrib.cheap_talk",
    "CheapTalk": "purerl.contrib.cheap_talk",
    "KArmedBandit": "purerl.contrib.k_armed_bandit",
}


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name in _CONTRIB:
        return getattr(import_module(_CONTRIB[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
