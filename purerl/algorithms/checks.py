"""What is refused of networks, memories and policies before anything is traced.

Here is what the algorithms ask of the fields of `network_config`, of `memory` and of
`policy_gradient`, and of the environment that they are to fit. Learning imports none
of it: `train.bind` asks by the `validate` of an algorithm's `Entry`.
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from purerl.algorithms import memory, network_config
from purerl.config import ConfigError, check_idle, nearest_divisors
from purerl.envs.base import Environment
from purerl.losses.check import check_loss
from purerl.networks import memories, modules, observe
from purerl.networks.distributions import Head, MixedHead, is_discrete, make_policy_head
from purerl.networks.memories.kinds import check_module
from purerl.networks.observe import MASK, obs_shape

_ONE_WAY = (
    'an observation {"observation": ..., "action_mask": bool [A]}, of the space '
    "envs.spaces.MultiBinary(A) under action_mask"
)


def check_torsos(config: Any, env: Environment, fields: tuple[str, ...]) -> None:
    """Refuse torsos that do not fit the observations.

    Args:
        fields: Networks that have a torso: `actor`, `critic`, or `torso` where it is
            always used.

    Raises:
        ConfigError: naming the torso, the shapes and the remedy.
    """
    try:
        shape = obs_shape(env.observation_space(env.default_params))
        check_keys(config, env, shape)
        check_mask(config, env, shape)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    for field in fields:
        if field == "torso" or network_config.own(config, field) is None:
            check_torso(config, env, field)


def check_torso(config: Any, env: Environment, field: str) -> None:
    """Refuse the torso of a network that does not fit what the network sees.

    Args:
        config: Config of the agent, whose keys are checked.
        field: Network that has the torso, see `torso_of`.

    Raises:
        ConfigError: naming the torso, the shapes and the remedy.
    """
    shape = obs_shape(env.observation_space(env.default_params))
    try:
        network_config.torso_of(config, shape, field)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    if isinstance(network_config.chosen_torso(config, field), nn.Module):
        words = "features [N, F] of observations [N, *obs_shape]"
        seen = observe.visible(shape, network_config.keys_of(config, field))
        modules.check("torso", config.torso, [seen], (None,), words)


def check_whole(
    config: Any, field: str, inputs: list[Any], outputs: Any, words: str
) -> None:
    """Refuse a whole network of the user's own that does not fit.

    Args:
        field: `actor` or `critic`; nothing is checked where it holds a name.
        inputs: Shape of each input, without the batch axis.
        outputs: Shapes of what it must return, see `networks.modules.check`.
        words: Words for the outputs in the message.

    Raises:
        ConfigError: naming the module and both shapes.
    """
    module = network_config.own(config, field)
    if module is not None:
        keys = network_config.keys_of(config, field)
        seen = [observe.visible(shape, keys) for shape in inputs]
        modules.check(field, module, seen, outputs, words)


def check_keys(config: Any, env: Environment, shape: Any) -> None:
    """Refuse keys of networks that an observation does not have.

    Raises:
        ConfigError: naming the field, the key and those that there are.
    """
    there = observe.part_keys(shape) if isinstance(shape, Mapping) else ()
    for field in ("actor_keys", "critic_keys"):
        keys = getattr(config, field, ())
        if isinstance(keys, tuple) and set(keys) <= set(there):
            continue
        has = f"has the keys {', '.join(there)}" if there else "is no dictionary"
        raise ConfigError(
            f'{field} must name keys of the observation, such as ("observation",), '
            f"got {keys!r}, and that of {env.name} {has}."
        )


def check_mask(config: Any, env: Environment, shape: Any) -> None:
    """Refuse a mask of actions that does not fit the actions, or has no use.

    Raises:
        ConfigError: naming the spaces and the remedy.
    """
    space: Any = env.observation_space(env.default_params)
    actions = env.action_space(env.default_params)
    if _is_hidden(space):
        raise ConfigError(
            f"{env.name} has the key {MASK!r} inside another part of its observation: "
            f"a mask must be at the top, {_ONE_WAY}; rename what is none."
        )
    if not observe.has_mask(shape):
        return
    num, mask = network_config.mask_size(actions), space["action_mask"]
    is_flags = hasattr(mask, "bits") or (
        hasattr(mask, "low") and np.dtype(mask.dtype).kind in "biu"
    )
    is_fit = is_flags and tuple(mask.shape) == (num,) and observe.part_keys(shape)
    if not is_fit:
        raise ConfigError(
            f"{env.name} has a mask of actions in {mask} under {MASK!r}, for the "
            f"actions {actions}. A mask is for Discrete and MultiDiscrete actions, one "
            f"truth value for each choice, beside an observation: {_ONE_WAY}."
        )


def _is_hidden(space: Any, depth: int = 0) -> bool:
    """Return whether there is a mask's key below the top of a composite space."""
    if not hasattr(space, "spaces"):
        return False
    parts = space.spaces
    if isinstance(parts, dict) and depth and MASK in parts:
        return True
    inner = parts.values() if isinstance(parts, dict) else parts
    return any(_is_hidden(part, depth + 1) for part in inner)


def check_values(config: Any, env: Environment, outputs: int | None = None) -> None:
    """Refuse a network that does not map observations to what each action is to have.

    Args:
        config: Config with the fields of `NetworkConfig`.
        outputs: Numbers that an action is to have; None for a value.

    Raises:
        ConfigError: actions are not discrete, or the network does not fit.
    """
    num_actions = check_discrete(config, env)
    check_torsos(config, env, ("critic",))
    shape = obs_shape(env.observation_space(env.default_params))
    if outputs is None:
        words, sizes = f"values of {num_actions} actions", (num_actions,)
    else:
        words = f"{outputs} numbers of the return of each of {num_actions} actions"
        sizes = (num_actions, outputs)
    check_whole(config, "critic", [shape], sizes, words)


def check_discrete(config: Any, env: Environment) -> int:
    """Refuse environments without a value for every action; return their number.

    Raises:
        ConfigError: naming the actions and what learns in them.
    """
    space: Any = env.action_space(env.default_params)
    if not hasattr(space, "n"):
        several = "one discrete action at a time"
        needed = several if is_discrete(space) else "discrete actions"
        raise ConfigError(
            f"{type(config).__name__} needs {needed}, got {space} of {env.name}; use "
            f"{instead_of_values(space)}."
        )
    return int(space.n)


def instead_of_values(space: Any) -> str:
    """Return what learns in an action space that has no value for every action."""
    if is_discrete(space) or hasattr(space, "spaces"):
        return "PPOConfig, whose policy has a factor for each component"
    return "SACConfig or TD3Config"


def check_rows(config: Any) -> None:
    """Refuse rollouts that do not fall into minibatches of one size.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    minibatches, steps = config.num_minibatches, config.num_steps
    total = config.samples_per_update
    rows = f"num_envs * num_steps ({config.num_envs} * {steps} = {total})"
    if memory.has_memory(config):
        length, burn_in = config.sequence_length, config.burn_in
        if steps % length:
            raise ConfigError(
                f"num_steps ({steps}) must be divisible by sequence_length, got "
                f"{length}; nearest: {nearest_divisors(steps, length)}."
            )
        if burn_in and (length == steps or burn_in > length):
            raise ConfigError(
                "burn_in must be 0 where a sequence is a whole rollout, and at most "
                f"sequence_length ({length}) elsewhere, got {burn_in}."
            )
        rows = f"num_envs * num_steps / sequence_length ({total}), whole sequences,"
    else:
        check_idle(config, ("head_sizes", "burn_in"), "memory", "memory='gru'")
    if total % minibatches:
        raise ConfigError(
            f"{rows} must be divisible by num_minibatches, got {minibatches}; "
            f"nearest: {nearest_divisors(total, minibatches)}."
        )


def check_memory_values(config: Any, env: Environment) -> None:
    """Refuse networks that do not map observations to values of a memory.

    Raises:
        ConfigError: naming the actions, or the network, the shapes and the remedy.
    """
    num_actions = check_discrete(config, env)
    size = checked_size(config, env)
    check_head(config, "critic", size)
    check_torsos(config, env, ("torso",))
    words = f"values of {num_actions} actions"
    check_whole(config, "critic", [(size,)], (num_actions,), words)


def check_head(config: Any, field: str, size: int) -> None:
    """Refuse a network by name that would not see the memory of `size` features."""
    is_named = network_config.own(config, field) is None
    if is_named and not network_config.is_auto(config, field):
        raise ConfigError(
            f"{field} must be auto or a flax module of memories [N, {size}], got "
            f"{getattr(config, field)!r}, a torso of observations; give it as torso."
        )


def checked_size(config: Any, env: Environment) -> int:
    """Refuse a memory that does not fit, and return the number of what heads see of it.

    Raises:
        ConfigError: naming the memory and the remedy.
    """
    try:
        kind = memories.kind_of(config.memory, config.memory_size)
    except ValueError as error:
        raise ConfigError(
            f"memory_size must fit the memory {config.memory}, got "
            f"{config.memory_size}: {error}."
        ) from None
    if isinstance(config.memory, nn.Module):
        check_torsos(config, env, ("torso",))
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


def policy_gradient(config: Any, env: Environment) -> None:
    """Check the networks, the head and the value loss against the environment.

    Raises:
        ConfigError: naming the fields, their values, the constraint and the remedy.
    """
    check_loss("value_loss", config.value_loss, 3, "SquaredError()")
    _check_standardised(config)
    params = env.default_params
    try:
        head = make_policy_head(env.action_space(params), config.policy)
        shape = obs_shape(env.observation_space(params))
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    if memory.has_memory(config):
        size = checked_size(config, env)
        _check_heads_of_memory(config, size)
        check_torsos(config, env, ("torso",))
        if memory.critic_has_own(config, shape):
            check_torso(config, env, "critic")
            check_own(config, env, "critic")
        _check_whole_networks(config, head, (size,))
    else:
        check_shared(config)
        check_torsos(config, env, ("actor", "critic"))
        _check_whole_networks(config, head, shape)


def _check_standardised(config: Any) -> None:
    """Refuse advantages that are standardised one by one."""
    if not getattr(config, "normalize_advantages", False):
        return
    samples, sizes = config.num_envs * config.num_steps, "num_envs * num_steps"
    if not getattr(config, "normalize_whole_batch", True):
        samples, sizes = samples // config.num_minibatches, f"{sizes} / num_minibatches"
    if samples == 1:
        raise ConfigError(
            f"normalize_advantages=True needs two samples, and {sizes} leaves one, "
            "whose advantage would be 0; set normalize_advantages=False."
        )


def check_shared(config: Any) -> None:
    """Refuse to share a torso between networks that do not have one in common."""
    if config.shared_torso and config.actor_keys != config.critic_keys:
        raise ConfigError(
            "shared_torso needs actor_keys and critic_keys to be the same, got "
            f"{config.actor_keys!r} and {config.critic_keys!r}."
        )
    for field in ("actor", "critic") if config.shared_torso else ():
        if not network_config.is_auto(config, field):
            raise ConfigError(
                f"shared_torso needs {field} to be auto, a head on the torso, got "
                f"{network_config.described(config, field)}."
            )


def _check_heads_of_memory(config: Any, size: int) -> None:
    """Refuse networks that would not see the memory of `size` features."""
    if config.shared_torso:
        raise ConfigError(
            "shared_torso must be False with a memory, got True: actor and critic "
            "share both wherever they see the same keys; leave it out."
        )
    for field in ("actor", "critic"):
        check_head(config, field, size)


def _check_whole_networks(config: Any, head: Head, shape: Any) -> None:
    """Refuse whole networks of the user's own that do not fit head and values."""
    num = head.num_outputs
    outputs: Any = (num,) if head.is_discrete else [(num,), (num,)]
    if head.is_discrete:
        words = f"logits of {num} actions"
    elif isinstance(head, MixedHead):
        words = f"a pair of {num} logits and means, and {num} log standard deviations"
    else:
        words = f"a pair of mean and log standard deviation of {num} numbers"
    check_whole(config, "actor", [shape], outputs, words)
    check_whole(config, "critic", [shape], (), "one value per observation")


def ppo(config: Any, env: Environment) -> None:
    """Check what fields have to do with one another and with the environment."""
    check_rows(config)
    policy_gradient(config, env)
    check_loss("policy_loss", config.policy_loss, 2, "ClipDrift(0.2)")
