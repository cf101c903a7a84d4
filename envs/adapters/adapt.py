"""From any object that keeps the gymnax 1.0 contract to an `Environment`."""

from __future__ import annotations

import sys
from typing import Any

from ..base import Environment
from . import brax_own
from .contract import ContractEnvironment
from .five_values import FiveValueEnvironment, returns_five_values
from .refusal import is_of_gymnasium, refusal


def adapt(env: Any) -> Environment:
    """Return `env` as an `Environment`.

    An `Environment` comes back as it is. A gymnax environment gets the gymnax adapter.
    An object of the older contract, whose `step` returns five values with one `done`,
    becomes a `FiveValueEnvironment`, which says how its ends are told apart.
    Any other object that keeps the gymnax 1.0 contract, a wrapper for instance, is
    used through its `reset` and `step`.

    Raises:
        TypeError: it does not keep the contract, it is a class or a name, or it is one
            of Gymnasium or brax, which are made by their names.
    """
    if isinstance(env, Environment):
        return env
    if isinstance(env, str):
        raise TypeError(
            f"env is the name {env!r}; make the environment first: envs.make({env!r})."
        )
    if isinstance(env, type):
        name = env.__name__
        raise TypeError(f"env is the class {name}; call it to make one: {name}().")
    if is_of_gymnasium(env):
        raise TypeError(refusal(f"({type(env).__name__})"))
    if brax_own.is_of_brax(env):
        raise TypeError(brax_own.refusal(env))
    # An object of gymnax can only exist where gymnax is imported already.
    if "gymnax" in sys.modules:
        from .gymnax import GymnaxEnvironment, is_plain_gymnax

        if is_plain_gymnax(env):
            return GymnaxEnvironment(env)
    if returns_five_values(env):
        return FiveValueEnvironment(env)
    return ContractEnvironment(env)
