"""A function that JAX has no longer, and that brax's own training calls."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def patch_jax() -> None:
    """Give JAX a function back for which brax 0.14 was written, if it has none."""
    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = _replicated  # type: ignore[attr-defined]


def _replicated(tree: Any, devices: Sequence[Any]) -> Any:
    """Put every array once on each device, `[D, ...]`."""
    mesh = jax.sharding.Mesh(np.asarray(devices), ("devices",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
    return jax.tree.map(
        lambda x: jax.device_put(jnp.stack([x] * len(devices)), place), tree
    )
