"""Gymnasium's names for the environments of this package."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from ..registry import registered

ENTRY_POINT = "purerl.envs.adapters.gymnasium_env:GymnasiumEnv"
VECTOR_ENTRY_POINT = "purerl.envs.adapters.gymnasium_vector:GymnasiumVectorEnv"


def gymnasium_id(id: str) -> str:
    """Return Gymnasium's name of an id.

    It allows one slash, that of the namespace, and few characters beside letters.
    """
    allowed = re.sub(r"[^-:.\w]", "-", id)
    return f"purerl/{allowed}"


def spec_of(env: Any, **options: Any) -> EnvSpec | None:
    """Return how Gymnasium could make it again; None where `env` is no id."""
    if not isinstance(env, str):
        return None
    given = {name: value for name, value in options.items() if value is not None}
    return EnvSpec(
        id=gymnasium_id(env),
        entry_point=ENTRY_POINT,
        vector_entry_point=VECTOR_ENTRY_POINT,
        kwargs={"env": env, **given},
    )


def register_all() -> dict[str, str]:
    """Register what Gymnasium does not know yet; Gymnasium's name of every id."""
    names = {id: gymnasium_id(id) for id in registered()}
    for id, name in names.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=ENTRY_POINT,
                vector_entry_point=VECTOR_ENTRY_POINT,
                kwargs={"env": id},
            )
    return names
