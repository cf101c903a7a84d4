"""The checks of an optimiser in a config, made before anything is traced."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from purerl.config import ConfigError, how_to_read, is_part, part_kind
from purerl.optimisers import OPTIMISERS
from purerl.registry import loaded

_OWN = tuple(loaded(OPTIMISERS).values())
# Parts of small networks with names of PPO's, by which a mask may go.
_LAYER = {"bias": (3,), "kernel": (2, 3)}
_LAYERS = {
    "actor": {"params": {"log_std": (3,), "torso": {"Dense_0": _LAYER}}},
    "critic": {"params": {"Dense_0": _LAYER}},
}
# Steps in which the moves of layers and of a flat vector are compared: more than one,
# because some optimisers gather gradients or warm up before they move.
_STEPS = 8
# Difference of two moves that is rounding, in units of the largest move.
_TOLERANCE = 1e-5


def check_optimisers(config: Any) -> None:
    """Refuse a config whose fields `optimiser` or `*_optimiser` hold something else.

    An optimiser of one's own is called once on shapes, and makes some steps on small
    networks. None stands for another field's optimiser where it is the default.

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
        ConfigError: it is no callable dataclass, makes no transformation, or looks at
            layers without `needs_layers`.
    """
    if type(optimiser) in _OWN and not hasattr(optimiser, "params"):
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
    layers = _numbers(0)
    try:
        program = jax.make_jaxpr(lambda: _moved(optimiser, layers))()
    except Exception as error:
        raise ConfigError(
            f"{name} must return a transformation of gradients for a step size, with "
            f"init(params) and update(gradient, state, params), as {example} does; "
            f"{_described(optimiser)} failed on the layers of small networks: {error}."
        ) from error
    # Random numbers follow the shapes of leaves, so that layers and the flat vector
    # differ by them alone.
    is_random = "random_bits" in str(program)
    if not is_random and not getattr(optimiser, "needs_layers", False):
        _check_flat(name, optimiser)


def _check_flat(name: str, optimiser: Any) -> None:
    """Refuse an optimiser that moves layers otherwise than the flat vector of them.

    With traced numbers nothing can be said.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(optimiser)):
        return
    try:
        reason = _difference(optimiser)
    except TypeError:  # It holds arrays, or what else has no hash.
        reason = _difference.__wrapped__(optimiser)
    if reason:
        raise ConfigError(
            f"{name} looks at layers (their axes, names or norms) and must say so, got "
            f"{_described(optimiser)}: it {reason}, which most algorithms give an "
            "optimiser. Set the class variable needs_layers = True in "
            f"{type(optimiser).__name__}."
        )


@functools.lru_cache(maxsize=128)
def _difference(optimiser: Any) -> str:
    """Say what an optimiser does on a flat vector and not on layers; "" if nothing."""

    def moved(start: Any, *gradients: Any) -> np.ndarray:
        """Return how far numbers move in some steps."""

        def course() -> jax.Array:
            transformation = optimiser(1e-3)
            params, state = start, transformation.init(start)
            for gradient in gradients:
                updates, state = transformation.update(gradient, state, params)
                params = jax.tree.map(jnp.add, params, updates)
            return ravel_pytree(jax.tree.map(jnp.subtract, params, start))[0]

        # Constants alone compile fastest, while each operation by itself takes seconds;
        # and a call of `jit` would become a part of a program that is being traced.
        return np.asarray(jax.jit(course).lower().compile()())

    forms = [_numbers(seed) for seed in range(1 + _STEPS)]
    of_layers = moved(*forms)
    try:
        of_flat = moved(*map(_flat, forms))
    except Exception as error:
        return f"failed on one flat vector ({error})"
    both = np.abs(np.stack([of_layers, of_flat]))
    if not np.isfinite(both).all():
        return ""
    if np.abs(of_layers - of_flat).max() <= _TOLERANCE * both.max():
        return ""
    return "moves layers otherwise than the same numbers in one flat vector"


def _flat(layers: Any) -> np.ndarray:
    """The numbers of layers in the order of `ravel_pytree`."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(layers)])


def _numbers(seed: int) -> Any:
    """Small networks of random numbers that are the same in every process."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: rng.standard_normal(shape, np.float32),
        _LAYERS,
        is_leaf=lambda x: isinstance(x, tuple),
    )


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
