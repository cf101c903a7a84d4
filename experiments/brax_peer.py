"""brax's own training as a peer: its published numbers, and how it is called."""

from collections.abc import Mapping, Sequence
from functools import partial
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
# SAC at a size for a few cores.
SAC: dict[str, Any] = {
    "num_envs": 16,
    "grad_updates_per_step": 4,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "discounting": 0.99,
    "reward_scaling": 1.0,
    "normalize_observations": True,
}


# Fields of purerl's PPO -> brax's arguments.
PPO = {
    "num_envs": "num_envs",
    "num_epochs": "num_updates_per_batch",
    "num_minibatches": "num_minibatches",
    "gamma": "discounting",
    "learning_rate": "learning_rate",
    "entropy_coef": "entropy_cost",
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


def ppo_fields(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of purerl's PPO with brax's numbers.

    brax collects the samples of an update in several short unrolls; here it is one.
    """
    rows = numbers["batch_size"] * numbers["num_minibatches"]
    return {
        **{ours: numbers[theirs] for ours, theirs in PPO.items()},
        "num_steps": rows * numbers["unroll_length"] // numbers["num_envs"],
        "anneal_learning_rate": False,
    }


def sac_fields(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of purerl's SAC with brax's numbers.

    brax's target entropy is half of the number of actions, its temperature has a step
    size of its own, and its untrained policy fills the buffer.
    """
    return {
        "total_timesteps": numbers["num_timesteps"],
        "num_envs": numbers["num_envs"],
        "gamma": numbers["discounting"],
        "learning_rate": numbers["learning_rate"],
        "gradient_steps": numbers["grad_updates_per_step"],
        "batch_size": numbers["batch_size"],
        "buffer_size": numbers["max_replay_size"],
        "learning_starts": numbers["min_replay_size"],
        "random_steps": 0,
        "entropy_per_dimension": -0.5,
        "temperature_learning_rate": 3e-4,
        "normalize_observations": numbers["normalize_observations"],
    }


def train(
    task: tuple[str, str],
    algorithm: str = "PPO",
    sizes: tuple[int, ...] | None = None,
    look: Mapping[str, Any] = {},
    **given: Any,
) -> list[tuple[int, dict[str, Any]]]:
    """Train an agent by brax, which compiles its program anew every time.

    Args:
        task: The environment and its backend.
        algorithm: PPO or SAC.
        sizes: Units of the hidden layers, if not brax's own.
        look: What else is not brax's own of the networks.
        **given: Other arguments of brax's training.

    Returns:
        The steps and the numbers of every evaluation, one before the first step.
    """
    patch_jax()
    import brax.envs
    from brax.training.agents.ppo import networks as ppo
    from brax.training.agents.ppo.train import train as train_ppo
    from brax.training.agents.sac import networks as sac
    from brax.training.agents.sac.train import train as train_sac

    names = ("policy_hidden_layer_sizes", "value_hidden_layer_sizes")
    learn, make = train_ppo, ppo.make_ppo_networks
    if algorithm == "SAC":
        names, learn, make = ("hidden_layer_sizes",), train_sac, sac.make_sac_networks
    if sizes is not None:
        given["network_factory"] = partial(make, **dict.fromkeys(names, sizes), **look)
    seen: list[tuple[int, dict[str, Any]]] = []
    learn(
        environment=brax.envs.get_environment(task[0], backend=task[1]),
        progress_fn=lambda step, found: seen.append((step, jax.device_get(found))),
        **given,
    )
    return seen
