"""brax's own training as a peer: its published numbers, and what it needs of JAX."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# PPO on HalfCheetah in brax's training notebook (google/brax,
# notebooks/training.ipynb); a minibatch is of sequences.
HALFCHEETAH: dict[str, Any] = {
    "num_envs": 2_048,
    "batch_size": 512,
    "unroll_length": 20,
    "num_minibatches": 32,
    "num_updates_per_batch": 8,
    "discounting": 0.95,
    "learning_rate": 3e-4,
    "entropy_cost": 1e-3,
    "reward_scaling": 1.0,
}


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
