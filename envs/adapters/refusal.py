"""How an environment of Gymnasium is told from others, and why none can be trained in.

Importing this does not import Gymnasium.
"""

from __future__ import annotations

import sys


def is_of_gymnasium(env: object) -> bool:
    """Return whether it is one of Gymnasium's, without importing Gymnasium."""
    # An object of Gymnasium can only exist where Gymnasium is imported already.
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is None:
        return False
    return isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv)


def refusal(env: str) -> str:
    """Return why training cannot step `env`, and what to do; env is how to call it."""
    return (
        f"env {env} is a Python environment of Gymnasium, which training, one compiled "
        "JAX program, cannot step: train in one of `envs.registered()` or in your own "
        "(docs/adding.md), and play the policies in Gymnasium's environment of its "
        "name with `purerl evaluate RUN --gymnasium`."
    )
