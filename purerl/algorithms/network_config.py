"""Fields that say which networks an algorithm has, and the networks they stand for.

`torso` is what the networks of an agent have below their heads. `actor` and `critic`
may say otherwise for one of them: a name gives it a torso of its own, and a module is
the whole network, from observations to what the head or the loss takes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from purerl import networks
from purerl.acting.observe import obs_shape
from purerl.config import (
    LAYERS,
    POSITIVE,
    Check,
    ConfigError,
    TrainConfig,
    config_dataclass,
    dynamic,
    one_of,
    static,
)
from purerl.envs.base import Environment
from purerl.networks import composite, modules
from purerl.networks.composite import MASK
from purerl.networks.distributions import is_discrete
from purerl.types import Array

NETWORK = Check(
    lambda x: isinstance(x, nn.Module) or (isinstance(x, str) and x in networks.TORSOS),
    f"must be one of {', '.join(networks.TORSOS)}, a flax module such as MyNet(), or "
    "its import path such as mypackage.nets:MyNet",
)
_ONE_WAY = (
    'an observation {"observation": ..., "action_mask": bool [A]}, of the space '
    "envs.spaces.MultiBinary(A) under action_mask"
)
_DTYPES = {"float32": None, "bfloat16": jnp.bfloat16}


@config_dataclass
class NetworkConfig(TrainConfig):
    """Fields of the networks that every algorithm has."""

    torso: Any = static(
        "auto",
        "Layers below the heads: auto takes cnn for images, else mlp; nature and "
        "impala have the published sizes; or a flax module, or its import path.",
        NETWORK,
    )
    critic: Any = static(
        "auto",
        "Network of the critic: auto takes torso and a head; a torso's name is "
        "the critic's own torso; a flax module, or its import path, is the whole "
        "network.",
        NETWORK,
    )
    hidden_sizes: tuple[int, ...] = static(
        (64, 64), "Units of each hidden layer.", LAYERS
    )
    activation: str = static(
        "tanh",
        "Activation function after each hidden layer.",
        one_of(*networks.ACTIVATIONS),
    )
    layer_norm: bool = static(False, "Layer normalisation before each activation.")
    torso_dtype: str = static(
        "float32",
        "Type in which torsos compute; parameters, features and heads are float32.",
        one_of(*_DTYPES),
    )
    torso_gain: float = static(
        float(np.sqrt(2)), "Gain of the torsos' orthogonal layers at first.", POSITIVE
    )
    critic_gain: float = static(
        1.0, "Gain of the critic's last layer at first.", POSITIVE
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in modules.FIELDS:
            if hasattr(self, name):
                value = modules.parse(name, getattr(self, name))
                object.__setattr__(self, name, value)


@config_dataclass
class ObservedConfig(NetworkConfig):
    """Fields of an algorithm whose networks may see normalised observations."""

    normalize_observations: bool = static(
        False, "Standardise observations by running moments of those acted on."
    )
    clip_observations: float = dynamic(
        10.0, "Largest normalised observation; CleanRL's and Baselines' 10.", POSITIVE
    )


@config_dataclass
class ActorConfig(ObservedConfig):
    """Fields of an algorithm with an actor beside its critic."""

    actor: Any = static(
        "auto",
        "Network of the actor: auto takes torso and a head; a torso's name is the "
        "actor's own torso; a flax module, or its import path, is the whole "
        "network.",
        NETWORK,
    )
    actor_gain: float = static(
        0.01, "Gain of the actor's last layer at first.", POSITIVE
    )
    actor_keys: tuple[str, ...] = static(
        (), "Keys of a dictionary observation that the actor sees; none for all."
    )
    critic_keys: tuple[str, ...] = static(
        (), "Keys of a dictionary observation that the critic sees; none for all."
    )


def keys_of(config: Any, field: str) -> tuple[str, ...]:
    """Return the keys of a dictionary observation that a network sees; () for all.

    Args:
        field: `actor` or `critic`; `torso` is that of a memory, which the actor has.
    """
    return getattr(config, f"{'actor' if field == 'torso' else field}_keys", ())


def own(config: Any, field: str) -> nn.Module | None:
    """Return the module of the user's own in a field; None where it holds a name."""
    value = getattr(config, field)
    return value if isinstance(value, nn.Module) else None


def described(config: Any, field: str) -> str:
    """Return a network's field as messages show it."""
    module = own(config, field)
    return repr(getattr(config, field)) if module is None else modules.text(module)


def is_auto(config: Any, field: str) -> bool:
    """Return whether a network's field follows the others."""
    return own(config, field) is None and getattr(config, field) == "auto"


def whole(
    config: Any,
    field: str,
    shape: Any,
    finish: Callable[[Any], Any] | None = None,
) -> nn.Module | None:
    """Return a whole network of the user's own; None where the field holds a name.

    Args:
        finish: Function that makes the module's outputs what the algorithm takes.
    """
    module = own(config, field)
    if module is None:
        return None
    return _of_rows(config, field, shape, module, finish)


def _of_rows(
    config: Any,
    field: str,
    shape: Any,
    module: nn.Module,
    finish: Callable[[Any], Any] | None = None,
) -> nn.Module:
    """A module of the user's own, with what it sees in rows; see `whole`."""
    keys = keys_of(config, field)
    first = composite.leaf_shapes(composite.visible(shape, keys))[0]
    batched = networks.Batched(modules.copied(module), len(first), finish)
    return composite.viewed(batched, shape, keys)


def torso_of(
    config: Any,
    shape: Any,
    field: str = "torso",
    hidden_sizes: tuple[int, ...] | None = None,
    dot_general: Callable[..., Array] | None = None,
) -> nn.Module:
    """Make a torso of a config; every call returns another module.

    Args:
        field: Network that it is for: `actor` and `critic` may name their own.
        hidden_sizes: Units of each hidden layer, in place of those in the config.
        dot_general: Product of the dense layers; `jax.lax.dot_general` if None.

    Raises:
        ValueError: the torso does not fit the observations.
    """
    chosen = _chosen(config, field)
    if isinstance(chosen, nn.Module):
        return _of_rows(config, field, shape, chosen)
    keys = keys_of(config, field)
    torso = networks.make_torso(
        chosen,
        composite.visible(shape, keys),
        config.hidden_sizes if hidden_sizes is None else hidden_sizes,
        config.activation,
        layer_norm=config.layer_norm,
        dot_general=dot_general,
        dtype=_DTYPES[config.torso_dtype],
        gain=config.torso_gain,
    )
    return composite.viewed(torso, shape, keys)


def encoder_of(config: Any, shape: Any) -> nn.Module | None:
    """Return what makes a vector of an observation before a critic of actions.

    Returns:
        None for a vector, which the critic takes as it is.
    """
    if is_vector_torso(config, shape, "critic"):
        return None
    # Parts are put side by side, and the dense layers that follow are the critic's own.
    sizes = None if composite.is_shape(shape) else ()
    return torso_of(config, shape, "critic", sizes)


def is_vector_torso(config: Any, shape: Any, field: str) -> bool:
    """Return whether a network's torso is the MLP of a vector, by its name."""
    chosen = _chosen(config, field)
    is_vector = composite.is_shape(shape) and len(shape) == 1
    return is_vector and isinstance(chosen, str) and chosen in ("auto", "mlp")


def stream_size(config: Any) -> int:
    """Return the units of a dueling stream: those of the last layer before it."""
    chosen = _chosen(config, "critic")
    if isinstance(chosen, str) and chosen in ("nature", "impala"):
        published = {"nature": networks.Nature, "impala": networks.Impala}
        return published[chosen].dense_size
    return config.hidden_sizes[-1]


def dense_layers(config: Any, sizes: tuple[int, ...], **options: Any) -> networks.MLP:
    """Make dense layers of vectors in the style of a config's torsos.

    Args:
        sizes: Units of each layer.
        **options: Further fields of `networks.MLP`.
    """
    return networks.MLP(
        sizes,
        config.activation,
        layer_norm=config.layer_norm,
        dtype=_DTYPES[config.torso_dtype],
        gain=config.torso_gain,
        **options,
    )


def dtype_of(config: Any) -> Any:
    """Return the type in which torsos compute; None for float32."""
    return _DTYPES[config.torso_dtype]


def _chosen(config: Any, field: str) -> Any:
    """The torso of a network, a name or a module."""
    value = config.torso if field == "torso" else getattr(config, field)
    follows = isinstance(value, nn.Module) or value == "auto"
    return config.torso if follows else value


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
        if field == "torso" or own(config, field) is None:
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
        torso_of(config, shape, field)
    except ValueError as error:
        raise ConfigError(f"{env.name}: {error}") from None
    if isinstance(_chosen(config, field), nn.Module):
        words = "features [N, F] of observations [N, *obs_shape]"
        seen = composite.visible(shape, keys_of(config, field))
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
    module = own(config, field)
    if module is not None:
        keys = keys_of(config, field)
        seen = [composite.visible(shape, keys) for shape in inputs]
        modules.check(field, module, seen, outputs, words)


def check_keys(config: Any, env: Environment, shape: Any) -> None:
    """Refuse keys of networks that an observation does not have.

    Raises:
        ConfigError: naming the field, the key and those that there are.
    """
    for field in ("actor_keys", "critic_keys"):
        keys = getattr(config, field, ())
        if not keys:
            continue
        if not isinstance(keys, tuple) or not all(isinstance(k, str) for k in keys):
            raise ConfigError(
                f"{field} must be keys of the observation, got {keys!r}; for example "
                '("observation",).'
            )
        there = composite.part_keys(shape) if isinstance(shape, Mapping) else ()
        unknown = [key for key in keys if key not in there]
        if unknown or len(set(keys)) < len(keys):
            has = f"has the keys {', '.join(there)}" if there else "is no dictionary"
            raise ConfigError(
                f"{field} must name keys of the observation, each once, got {keys!r}, "
                f"and that of {env.name} {has} (a mask of actions is seen by none)."
            )


def check_mask(config: Any, env: Environment, shape: Any) -> None:
    """Refuse a mask of actions that does not fit the actions, or has no use.

    Raises:
        ConfigError: naming the spaces and the remedy.
    """
    params = env.default_params
    space: Any = env.observation_space(params)
    actions = env.action_space(params)
    if _is_hidden(space):
        raise ConfigError(
            f"{env.name} has the key {MASK!r} inside another part of its observation: "
            f"a mask must be at the top, {_ONE_WAY}; rename what is none."
        )
    if not composite.has_mask(shape):
        return
    if not composite.part_keys(shape):
        raise ConfigError(f"{env.name} has no observation beside its mask: {_ONE_WAY}.")
    num = mask_size(actions)
    if num is None:
        raise ConfigError(
            f"{env.name} has a mask of actions under {MASK!r}, but its actions are "
            f"{actions}, and a mask is for Discrete and MultiDiscrete ones (a "
            "MultiBinary(n) is a MultiDiscrete([2] * n)); rename the key if it is none."
        )
    mask: Any = space["action_mask"]
    is_flags = hasattr(mask, "bits") or (
        hasattr(mask, "low") and np.dtype(mask.dtype).kind in "biu"
    )
    if not is_flags or tuple(mask.shape) != (num,):
        raise ConfigError(
            f"{env.name} has a mask of actions in {mask}, and its actions {actions} "
            f"need {num} truth values: MultiBinary({num}), or a Box of 0 and 1 with "
            "whole numbers of that shape."
        )


def mask_size(actions: Any) -> int | None:
    """Return the size of a mask of some actions; None where they can have none.

    Args:
        actions: Action space.
    """
    if hasattr(actions, "n"):
        return int(actions.n)
    return int(np.sum(actions.nvec)) if hasattr(actions, "nvec") else None


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
        needed = "discrete actions"
        if is_discrete(space):
            needed = "one discrete action at a time"
        raise ConfigError(
            f"{type(config).__name__} needs {needed}, got {space} of {env.name}; use "
            f"{instead_of_values(space)}."
        )
    return int(space.n)


def instead_of_values(space: Any) -> str:
    """Return what learns in an action space that has no value for every action.

    Args:
        space: Action space.
    """
    if is_discrete(space):
        return (
            "PPOConfig, whose policy has a factor for each component, or a wrapper "
            "that numbers their combinations"
        )
    if hasattr(space, "spaces"):
        return "PPOConfig, whose policy has a factor for each part"
    return "SACConfig or TD3Config"
