"""Repairs of brax 0.14.2 under a newer jax.

brax is no longer maintained. What is repaired here is written down with its cause, and
is skipped where the cause is gone.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import jax
import jax.numpy as jnp


def restore_clip(module: types.ModuleType) -> None:
    """Let a module of brax call `jp.clip(x, a_min=...)`, which jax 0.10 removed.

    `brax.fluid` does, so that swimmer could not take a step. Only the module's own
    name `jp` changes: it becomes a copy of `jax.numpy` with the older `clip`.
    """
    if "a_min" in inspect.signature(jnp.clip).parameters:
        return
    numpy = types.ModuleType("jax.numpy with the older clip")
    numpy.__dict__.update(jnp.__dict__)
    numpy.__dict__["clip"] = _clip
    module.__dict__["jp"] = numpy


def _clip(x: jax.Array, a_min: Any = None, a_max: Any = None) -> jax.Array:
    return jnp.clip(x, a_min, a_max)
