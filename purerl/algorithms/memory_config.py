"""Fields that say which memory an algorithm has, and the memory they stand for."""

from typing import Any

import flax.linen as nn
import jax

from purerl.acting import observe
from purerl.acting.observe import obs_shape
from purerl.algorithms import network_config
from purerl.algorithms.checks import check_idle, check_minibatches
from purerl.algorithms.network_config import NetworkConfig
from purerl.config import (
    AUTO,
    NON_NEGATIVE,
    POSITIVE,
    SIZES,
    WIDTH,
    Check,
    ConfigError,
    config_dataclass,
    is_auto,
    nearest_divisors,
    number_of,
    static,
)
from purerl.envs.base import Environment
from purerl.networks import memories
from purerl.networks.memories.kinds import check_module

NONE = "none"
MEMORY = Check(
    lambda x: (
        isinstance(x, nn.Module)
        or (isinstance(x, str) and x in (NONE, *memories.NAMES))
    ),
    f"must be one of none, {', '.join(memories.NAMES)}, a memory module such as "
    "purerl.networks.memories.LRU(64), or its import path such as "
    "purerl.networks.memories:LRU(features=64)",
)


def memory_field(default: str) -> Any:
    """Declare the field `memory` of an algorithm with a memory."""
    return static(
        default,
        f"Memory after the torso: none, {', '.join(memories.NAMES)}; or a module of "
        "sequences, or its import path.",
        MEMORY,
    )


def has_memory(config: Any) -> bool:
    """Return whether an algorithm with a config remembers the episode."""
    memory = getattr(config, "memory", NONE)
    return isinstance(memory, nn.Module) or memory != NONE


def size_field(default: int = 128) -> Any:
    """Declare the field `memory_size` of an algorithm with a memory."""
    return static(default, "Units of a memory by name.", WIDTH)


def head_sizes_field(default: tuple[int, ...] = ()) -> Any:
    """Declare the field `head_sizes` of an algorithm with a memory."""
    return static(
        default, "Units of each hidden layer between the memory and its heads.", SIZES
    )


@config_dataclass
class MemoryConfig(NetworkConfig):
    """Fields of an algorithm that learns from rollouts and may have a memory."""

    memory: Any = memory_field(NONE)
    memory_size: int = size_field()
    head_sizes: tuple[int, ...] = head_sizes_field()
    sequence_length: int = static(
        AUTO,
        "Steps of a sequence that gradients go through, a divisor of num_steps; auto "
        "takes num_steps.",
        POSITIVE,
    )
    burn_in: int = static(
        0,
        "Steps before a sequence that only bring its stored memory up to date.",
        NON_NEGATIVE,
    )

    @property
    def samples_per_update(self) -> int:
        """The number of steps, or of sequences, from which minibatches are drawn."""
        if not has_memory(self):
            return self.steps_per_update
        return num_sequences(self)

    @property
    def steps_of_gradient(self) -> int:
        """Steps in time, one after the other, of a gradient step."""
        if not has_memory(self):
            return 1
        if is_auto(self.sequence_length):
            return number_of(self, "num_steps")
        return self.sequence_length + self.burn_in


def num_sequences(config: Any) -> int:
    """Return the number of sequences of an update."""
    if is_auto(config.sequence_length):
        return config.num_envs
    return config.num_envs * (config.num_steps // config.sequence_length)


def check_rows(config: Any) -> None:
    """Refuse rollouts that do not fall into minibatches of one size.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    if has_memory(config):
        check_sequences(config)
    else:
        check_minibatches(config)
        check_idle(config, ("head_sizes", "burn_in"), "memory", "memory='gru'")


def check_sequences(config: Any) -> None:
    """Refuse sequences that do not fit rollouts and minibatches.

    Args:
        config: Config with the fields of this module, whose `auto` is resolved.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    length, burn_in, steps = config.sequence_length, config.burn_in, config.num_steps
    if steps % length:
        raise ConfigError(
            f"num_steps ({steps}) must be divisible by sequence_length, got {length}; "
            f"nearest: {nearest_divisors(steps, length)}."
        )
    if burn_in and (length == steps or burn_in > length):
        raise ConfigError(
            f"burn_in must be 0 where a sequence is a whole rollout, and at most "
            f"sequence_length ({length}, of num_steps {steps}) elsewhere, got "
            f"{burn_in}; make sequence_length shorter than num_steps, or leave burn_in "
            "at 0."
        )
    total, minibatches = num_sequences(config), config.num_minibatches
    if total % minibatches:
        name = f"num_envs ({total})"
        unit = "environments"
        if length < steps:
            name = f"num_envs * num_steps / sequence_length ({total})"
            unit = "sequences"
        raise ConfigError(
            f"{name} must be divisible by num_minibatches, got {minibatches}: a "
            f"minibatch takes whole {unit}; nearest: "
            f"{nearest_divisors(total, minibatches)}."
        )


def check_values(config: Any, env: Environment, num_actions: int) -> None:
    """Refuse networks that do not map observations to values of a memory.

    Args:
        config: Config with the fields of this module and of `NetworkConfig`.
        env: Environment, from `resolve_env`.
        num_actions: Number of actions.

    Raises:
        ConfigError: naming the network, the shapes and the remedy.
    """
    size = checked_size(config, env)
    is_named = network_config.own(config, "critic") is None
    if is_named and not network_config.is_auto(config, "critic"):
        raise ConfigError(
            f"critic must be auto or a flax module of memories [N, {size}], got "
            f"{config.critic!r}, a torso of observations; give it as torso."
        )
    network_config.check_torsos(config, env, ("torso",))
    words = f"values of {num_actions} actions"
    network_config.check_whole(config, "critic", [(size,)], (num_actions,), words)


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
        check_own(config, env, "torso")
    return kind.size


def check_own(config: Any, env: Environment, field: str) -> None:
    """Refuse a memory of the user's own that does not fit a torso before it.

    Args:
        config: Config with the field `memory`, whose torso is checked.
        env: Environment, from `resolve_env`.
        field: Network that has the torso, see `network_config.torso_of`.

    Raises:
        ConfigError: naming the memory and the remedy.
    """
    if not isinstance(config.memory, nn.Module):
        return
    space = env.observation_space(env.default_params)
    torso = network_config.torso_of(config, obs_shape(space), field)
    features, _ = jax.eval_shape(
        torso.init_with_output, jax.random.key(0), observe.example(space)
    )
    check_module(config.memory, features.shape[-1])
