"""Wrappers: an environment around another one, under the same contract.

Files and command lines name them, as `FrameStack(4)`: see `wrap`.
"""

from collections.abc import Sequence
from typing import Any

from ..adapters.adapt import adapt
from ..adapters.packages import is_rerun, object_at, read_call
from ..base import Environment
from ..options import guess
from .base import ObservationWrapper as ObservationWrapper
from .base import Wrapper as Wrapper
from .base import WrapperState as WrapperState
from .base import innermost as innermost
from .base import unwrap as unwrap
from .observations import ActionMask as ActionMask
from .observations import FlattenObservation as FlattenObservation
from .observations import FrameStack as FrameStack
from .observations import OneHotObservation as OneHotObservation
from .observations import PreviousActionReward as PreviousActionReward
from .observations import SelectObservation as SelectObservation
from .observations import TimeObservation as TimeObservation
from .randomised import Distribution as Distribution
from .randomised import LevelState as LevelState
from .randomised import Randomised as Randomised
from .randomised import RandomisedOnce as RandomisedOnce
from .randomised import RandomLevels as RandomLevels
from .randomised import RepeatedLevels as RepeatedLevels
from .randomised import drawn_params as drawn_params
from .steps import ActionRepeat as ActionRepeat
from .steps import ClipReward as ClipReward
from .steps import RewardWrapper as RewardWrapper
from .steps import ScaleReward as ScaleReward
from .steps import StepInside as StepInside
from .steps import StickyActions as StickyActions
from .steps import TerminalLimit as TerminalLimit

_CLASSES = (
    *(FrameStack, ActionRepeat, TimeObservation, TerminalLimit, StickyActions),
    *(ClipReward, ScaleReward, OneHotObservation, FlattenObservation),
    *(SelectObservation, PreviousActionReward, RandomLevels),
)
_OWN: dict[str, type] = {cls.__name__: cls for cls in _CLASSES}
WRAPPERS: dict[str, type] = dict(_OWN)
"""Wrappers by name; `register_wrapper` adds to them."""


def register_wrapper(name: str, cls: type) -> None:
    """Let `wrap` and configs find a wrapper by its name.

    The class of one name may be registered again, as when a notebook's cell runs twice:
    the new one takes the old one's place.

    Args:
        name: Name, such as `"FrameStack"`; it reads like that of a class.
        cls: Subclass of `envs.Wrapper`, whose first argument is an environment.

    Raises:
        ValueError: the name is taken.
        TypeError: it is no such class.
    """
    if not (isinstance(cls, type) and issubclass(cls, Wrapper)):
        raise TypeError(
            f"wrapper {name!r} must be a subclass of envs.Wrapper, got {cls!r}."
        )
    known = WRAPPERS.get(name)
    if known is not None and (name in _OWN or not is_rerun(cls, known)):
        raise ValueError(
            f"wrapper {name!r} is already registered ({known!r}): choose another."
        )
    WRAPPERS[name] = cls


def wrap(env: Any, wrappers: Sequence[str]) -> Environment:
    """Put wrappers around an environment, the first of them innermost.

    Args:
        env: An `Environment`, or any object that keeps the gymnax 1.0 contract.
        wrappers: Texts such as `"FrameStack(4)"`, `"ClipReward"`,
            `"FrameStack(n=4, padding=zero)"` and `"lab.envs:Noise(0.1)"`, of a module
            that has been imported.

    Raises:
        ValueError: a text that cannot be read, an unknown wrapper or argument, or an
            environment that a wrapper does not fit.
        TypeError: `env` does not keep the contract.
    """
    env = adapt(env)
    for text in wrappers:
        cls, places, names = _read(text)
        try:
            env = cls(env, *places, **names)
        except (TypeError, ValueError) as error:
            raise ValueError(f"env_wrappers: {text!r}: {error}") from error
    return env


def are_built_in(wrappers: Sequence[str]) -> bool:
    """Return whether every wrapper is one that comes with this package."""
    return all(_read(text)[0] in _OWN.values() for text in wrappers)


def _read(text: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """The class of a wrapper's text, and its arguments by their place and by name."""
    name, places, names = read_call("env_wrappers", text, "FrameStack(4)")
    if ":" in name:
        cls = object_at("env_wrappers", name, "lab.envs:Noise(0.1)")
        if isinstance(cls, type) and issubclass(cls, Wrapper):
            return cls, places, names
        raise ValueError(
            f"env_wrappers must name subclasses of envs.Wrapper, and {name} is {cls!r}."
        )
    if name not in WRAPPERS:
        raise ValueError(
            f"env_wrappers: there is no wrapper {name!r}.{guess(name, WRAPPERS)} "
            f"Wrappers: {', '.join(WRAPPERS)}. envs.register_wrapper(name, cls) adds "
            "one."
        )
    return WRAPPERS[name], places, names
