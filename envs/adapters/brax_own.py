"""Environments of the user's own that keep brax's interface, found by their names.

Importing this does not import brax: whoever has one of them has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def own_names() -> tuple[str, ...]:
    """Return the names in brax's registry that do not stand for brax's own classes."""
    known = getattr(sys.modules.get("brax.envs"), "_envs", {})
    return tuple(name for name, factory in known.items() if is_own(factory))


def is_own(factory: Callable[..., Any]) -> bool:
    """Return whether a class or function of brax's registry is not one of brax's own.

    Args:
        factory: Class or function that makes the environment.
    """
    return not str(getattr(factory, "__module__", "")).startswith("brax.")


def is_of_brax(env: object) -> bool:
    """Return whether an object is an environment of brax or derives from one."""
    brax_class = getattr(sys.modules.get("brax.envs"), "Env", None)
    return brax_class is not None and isinstance(env, brax_class)


def refusal(env: object) -> str:
    """Return why an object of brax's interface is not taken, and what to do."""
    kind = type(env).__name__
    name = kind.lower()
    return (
        f"env is a {kind}, an environment of brax, which is taken by its name alone: "
        f"call brax.envs.register_environment({name!r}, {kind}), or give it a function "
        f"that makes the object, and train with env='brax/{name}'."
    )
