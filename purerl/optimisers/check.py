"""The checks of an optimiser in a config, made before anything is traced."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, how_to_read, is_part, part_kind
from purerl.optimisers.registry import OPTIMISERS

_OWN = tuple(OPTIMISERS.values())
_LAYERS = {"bias": (3,), "kernel": (2, 3)}


def check_optimisers(config: Any) -> None:
    """Refuse a config whose fields `optimiser` or `*_optimiser` hold something else.

    An optimiser of one's own is called once on shapes, and nothing is computed. None
    stands for another field's optimiser where it is the default.

    Args:
        config: Config of any algorithm.

    Raises:
        ConfigError: naming the field, its value and what would do.
    """
    for name in optimiser_fields(config):
        value = getattr(config, name)
        default = config.__dataclass_fields__[name].default
        if value is not None or default is not None:
            check_optimiser(name, value)


def optimiser_fields(config: Any) -> list[str]:
    """Return the names of a config's fields that hold optimisers."""
    names = config.__dataclass_fields__
    return [name for name in names if part_kind(name) == "optimiser"]


def check_optimiser(name: str, optimiser: Any) -> None:
    """Refuse what is no optimiser.

    Args:
        name: Name of the config's field.
        optimiser: Value of the config's field.

    Raises:
        ConfigError: it is no callable dataclass, or makes no transformation.
    """
    if isinstance(optimiser, _OWN) and not hasattr(optimiser, "params"):
        return
    example = "purerl.optimisers.Adam(b1=0.9)"
    if isinstance(optimiser, type):
        raise ConfigError(
            f"{name} must be an optimiser, got the class {optimiser.__name__}; call it "
            f"to make one, such as {example}."
        )
    if not is_part(optimiser) or jax.tree_util.all_leaves([optimiser]):
        raise ConfigError(
            f"{name} must be an optimiser, such as {example}, or a "
            "flax.struct.dataclass whose __call__(learning_rate) returns optax's "
            "transformation, got "
            f"{optimiser!r}. Optimisers: {', '.join(OPTIMISERS)}."
            f"{how_to_read(optimiser)}"
        )
    params = {key: jnp.zeros(shape) for key, shape in _LAYERS.items()}
    try:
        jax.eval_shape(lambda: _moved(optimiser, params))
    except Exception as error:
        raise ConfigError(
            f"{name} must return a transformation of gradients for a step size, with "
            f"init(params) and update(gradient, state, params), as {example} does; "
            f"{_described(optimiser)} failed on two layers: {error}."
        ) from error


def _described(optimiser: Any) -> str:
    """The optimiser in words; of a network only the shapes."""
    if not hasattr(optimiser, "params"):
        return repr(optimiser)
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(optimiser.params)]
    return f"{type(optimiser).__name__} with params of the shapes {shapes}"


def _moved(optimiser: Any, params: Any) -> Any:
    """The parameters after one step, which must be of the same shapes."""
    transformation = optimiser(1e-3)
    state = transformation.init(params)
    updates, after = transformation.update(params, state, params)
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise ValueError("the state after a step has another structure than before")
    return jax.tree.map(_added, params, updates)


def _added(param: jax.Array, update: jax.Array) -> jax.Array:
    if jnp.shape(update) != param.shape:
        raise ValueError(f"an update of {param.shape} has shape {jnp.shape(update)}")
    return param + update
