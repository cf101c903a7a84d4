"""The innermost environment of a stack of wrappers, with its numbers and state."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..base import Environment
from .base import Wrapper
from .levels import RandomLevels
from .randomised import Randomised, put_in


class Inside(NamedTuple):
    """The environment inside all wrappers, as it is at one moment.

    Attributes:
        env: The environment.
        params: Numbers of the environment, those drawn for the episode among them.
        state: State of the environment.
    """

    env: Environment
    params: Any
    state: Any


def innermost(env: Environment) -> Environment:
    """Return the environment inside all wrappers."""
    while isinstance(env, Wrapper):
        env = env.env
    return env


def unwrap(env: Environment, params: Any, state: Any) -> Inside:
    """Take all wrappers off an environment and off its state.

    Args:
        env: The environment, with its wrappers.
        params: Numbers of the environment, distributions among them.
        state: State of one environment.
    """
    while isinstance(env, Wrapper):
        if isinstance(env, Randomised):
            params = put_in(params, state.drawn)
        if isinstance(env, RandomLevels):
            params = state.level
        state, env = env.inner_state(state), env.env
    return Inside(env, params, state)
