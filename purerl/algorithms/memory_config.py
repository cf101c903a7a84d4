"""Fields that say which memory an algorithm has, and the memory they stand for."""

from typing import Any

import flax.linen as nn
import jax

from purerl.acting import observe
from purerl.acting.environment import Environment
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config
from purerl.config import POSITIVE, Check, ConfigError, static
from purerl.networks import memories
from purerl.networks.memories.checks import check_module

MEMORY = Check(
    lambda x: isinstance(x, nn.Module) or (isinstance(x, str) and x in memories.NAMES),
    f"must be one of {', '.join(memories.NAMES)}, a memory module such as "
    "purerl.networks.memories.LRU(64), or its import path such as "
    "purerl.networks.memories:LRU(features=64)",
)


def memory_field(default: str) -> Any:
    """Declare the field `memory` of an algorithm with a memory."""
    return static(
        default,
        f"Memory after the torso: {', '.join(memories.NAMES)}; or a module of "
        "sequences, or its import path.",
        MEMORY,
    )


def size_field(default: int = 128) -> Any:
    """Declare the field `memory_size` of an algorithm with a memory."""
    return static(default, "Units of a memory by name.", POSITIVE)


def kind_of(config: Any) -> memories.Kind:
    """Return the kind of memory of a config.

    Args:
        config: Config with the fields `memory` and `memory_size`.
    """
    return memories.kind_of(config.memory, config.memory_size)


def checked_size(config: Any, env: Environment) -> int:
    """Refuse a memory that does not fit, and return the number of what heads see of it.

    Args:
        config: Config with the fields `memory` and `memory_size`.
        env: Environment, from `resolve_env`.

    Raises:
        ConfigError: naming the memory and the remedy.
    """
    try:
        kind = kind_of(config)
    except ValueError as error:
        raise ConfigError(
            f"memory_size must fit the memory {config.memory}, got "
            f"{config.memory_size}: {error}."
        ) from None
    if isinstance(config.memory, nn.Module):
        network_config.check_torsos(config, env, ("torso",))
        space = env.observation_space(env.default_params)
        torso = network_config.torso_of(config, obs_shape(space))
        features, _ = jax.eval_shape(
            torso.init_with_output, jax.random.key(0), observe.example(space)
        )
        check_module(config.memory, features.shape[-1])
    return kind.size
