"""Fields that say which networks an algorithm has, and the networks they stand for.

`torso` is what the networks of an agent have below their heads. `actor` and `critic`
may say otherwise for one of them: a name gives it a torso of its own, and a module is
the whole network, from observations to what the head or the loss takes.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from purerl import networks
from purerl.config import TrainConfig, config_dataclass, dynamic, static
from purerl.fields import LAYERS, POSITIVE, Check, one_of
from purerl.networks import modules, observe
from purerl.types import Array

NETWORK = Check(
    lambda x: isinstance(x, nn.Module) or (isinstance(x, str) and x in networks.TORSOS),
    f"must be one of {', '.join(networks.TORSOS)}, a flax module such as MyNet(), or "
    "its import path such as mypackage.nets:MyNet",
)
ACTIVATION = one_of(*networks.ACTIVATIONS)
DTYPES = {"float32": None, "bfloat16": jnp.bfloat16}


@config_dataclass
class NetworkConfig(TrainConfig):
    """Fields of the networks that every algorithm has."""

    torso: Any = static("auto", "Layers below the heads: a name or a module.", NETWORK)
    critic: Any = static("auto", "Critic: a torso's name, or a module.", NETWORK)
    hidden_sizes: tuple[int, ...] = static(
        (64, 64), "Units of each hidden layer.", LAYERS
    )
    activation: str = static("tanh", "Activation of hidden layers.", ACTIVATION)
    layer_norm: bool = static(False, "Layer normalisation before each activation.")
    torso_dtype: str = static("float32", "Type of torsos' products.", one_of(*DTYPES))
    torso_gain: float = static(float(np.sqrt(2)), "First gain of torsos.", POSITIVE)
    critic_gain: float = static(1.0, "First gain of the critic's last layer.", POSITIVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in modules.FIELDS:
            if hasattr(self, name):
                value = modules.parse(name, getattr(self, name))
                object.__setattr__(self, name, value)


@config_dataclass
class ObservedConfig(NetworkConfig):
    """Fields of an algorithm whose networks may see normalised observations."""

    normalize_observations: bool = static(False, "Standardise observations.")
    clip_observations: float = dynamic(10.0, "Largest normalised number.", POSITIVE)


@config_dataclass
class ActorConfig(ObservedConfig):
    """Fields of an algorithm with an actor beside its critic."""

    actor: Any = static("auto", "Actor: a torso's name, or a module.", NETWORK)
    actor_gain: float = static(0.01, "First gain of the actor's last layer.", POSITIVE)
    actor_keys: tuple[str, ...] = static((), "Keys that the actor sees; () for all.")
    critic_keys: tuple[str, ...] = static((), "Keys that the critic sees; () for all.")


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
    first = observe.leaf_shapes(observe.visible(shape, keys))[0]
    batched = networks.Batched(modules.copied(module), len(first), finish)
    return observe.viewed(batched, shape, keys)


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
    chosen = chosen_torso(config, field)
    if isinstance(chosen, nn.Module):
        return _of_rows(config, field, shape, chosen)
    keys = keys_of(config, field)
    torso = networks.make_torso(
        chosen,
        observe.visible(shape, keys),
        config.hidden_sizes if hidden_sizes is None else hidden_sizes,
        config.activation,
        layer_norm=config.layer_norm,
        dot_general=dot_general,
        dtype=DTYPES[config.torso_dtype],
        gain=config.torso_gain,
    )
    return observe.viewed(torso, shape, keys)


def encoder_of(config: Any, shape: Any) -> nn.Module | None:
    """Return what makes a vector of an observation before a critic of actions.

    Returns:
        None for a vector, which the critic takes as it is.
    """
    if is_vector_torso(config, shape, "critic"):
        return None
    if observe.is_shape(shape):
        return torso_of(config, shape, "critic")
    # Parts are put side by side, and the layers that follow are the critic's own.
    if chosen_torso(config, "critic") == "simba":
        config = config.replace(critic="mlp")
    return torso_of(config, shape, "critic", ())


def is_vector_torso(config: Any, shape: Any, field: str) -> bool:
    """Return whether a network's torso is one of vectors, by its name, for a vector."""
    chosen = chosen_torso(config, field)
    is_vector = observe.is_shape(shape) and len(shape) == 1
    return is_vector and isinstance(chosen, str) and chosen in ("auto", "mlp", "simba")


def stream_sizes(config: Any) -> tuple[int, ...]:
    """Return the units of a dueling stream: those of the last layer before it."""
    chosen = chosen_torso(config, "critic")
    if isinstance(chosen, str) and chosen in ("nature", "impala"):
        published = {"nature": networks.Nature, "impala": networks.Impala}
        return (published[chosen].dense_size,)
    return config.hidden_sizes[-1:]


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
        dtype=DTYPES[config.torso_dtype],
        gain=config.torso_gain,
        **options,
    )


def chosen_torso(config: Any, field: str) -> Any:
    """The torso of a network, a name or a module."""
    value = config.torso if field == "torso" else getattr(config, field)
    follows = isinstance(value, nn.Module) or value == "auto"
    return config.torso if follows else value
