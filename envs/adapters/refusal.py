"""Objects of Gymnasium: the test for them, and why they cannot be trained in.

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
        "JAX program, cannot step: register it in Gymnasium and give its name, such as "
        "env='gymnasium/CartPole-v1', with which purerl.run steps it on the host."
    )
