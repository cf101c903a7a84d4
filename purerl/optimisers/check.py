"""The checks of an optimiser in a config, made before anything is traced."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree

from purerl.config import ConfigError, how_to_read, is_part, part_kind
from purerl.learning.optimiser import is_in, name_leaves
from purerl.optimisers import OPTIMISERS
from purerl.registry import loaded
from purerl.types import PyTree

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

    Raises:
        ConfigError: naming the field, its value and what would do.
    """
    for name in optimiser_fields(config):
        value = getattr(config, name)
        if value is not None or config.__dataclass_fields__[name].default is not None:
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
            f"{name} must be an optimiser, such as {example}, got {optimiser!r}; see "
            f"docs/optimisers.md. Optimisers: {', '.join(OPTIMISERS)}."
            f"{how_to_read(optimiser)}"
        )
    try:
        program = jax.make_jaxpr(lambda: _course(optimiser, _numbers(0), [_numbers(1)]))
        text = str(program())
    except Exception as error:
        raise ConfigError(
            f"{name} must return a transformation of gradients for a step size, with "
            f"init(params) and update(gradient, state, params), as {example} does; "
            f"{_described(optimiser)} failed on the layers of small networks: {error}."
        ) from error
    # Random numbers follow the shapes of leaves, so that layers and the flat vector
    # differ by them alone; with traced numbers nothing can be said.
    is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(optimiser))
    is_random = "random_bits" in text
    if is_traced or is_random or getattr(optimiser, "needs_layers", False):
        return
    try:
        reason = _difference(optimiser)
    except TypeError:  # It holds arrays, or what else has no hash.
        reason = _difference.__wrapped__(optimiser)
    if reason:
        raise ConfigError(
            f"{name} looks at layers and must say so, got {_described(optimiser)}: it "
            f"{reason}. Set the class variable needs_layers = True in "
            f"{type(optimiser).__name__}."
        )


@functools.lru_cache(maxsize=128)
def _difference(optimiser: Any) -> str:
    """Say what an optimiser does on a flat vector and not on layers; "" if nothing."""

    def moved(start: Any, *gradients: Any) -> np.ndarray:
        # Constants alone compile fastest, while each operation by itself takes seconds;
        # and a call of `jit` would become a part of a program that is being traced.
        course = jax.jit(lambda: _course(optimiser, start, gradients))
        return np.asarray(course.lower().compile()())

    forms = [_numbers(seed) for seed in range(1 + _STEPS)]
    of_layers = moved(*forms)
    try:
        of_flat = moved(*map(_flat, forms))
    except Exception as error:
        return f"failed on one flat vector ({error})"
    both = np.abs(np.stack([of_layers, of_flat]))
    difference = np.abs(of_layers - of_flat).max()
    if not np.isfinite(both).all() or difference <= _TOLERANCE * both.max():
        return ""
    return "moves layers otherwise than the same numbers in one flat vector"


def _course(optimiser: Any, start: Any, gradients: Any) -> jax.Array:
    """How far numbers move in some steps, in one vector."""
    transformation = optimiser(1e-3)
    params, state = start, transformation.init(start)
    for gradient in gradients:
        updates, after = transformation.update(gradient, state, params)
        if jax.tree.structure(after) != jax.tree.structure(state):
            raise ValueError("the state after a step has another structure than before")
        shapes = [jax.tree.map(jnp.shape, x) for x in (updates, params)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"updates of {shapes[1]} have the shapes {shapes[0]}")
        params, state = jax.tree.map(jnp.add, params, updates), after
    return ravel_pytree(jax.tree.map(jnp.subtract, params, start))[0]


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


def check_parts(parts: Sequence[str], names: Iterable[str], owner: str) -> None:
    """Refuse parts to which no array belongs.

    Args:
        parts: Names of parts.
        names: Names of the arrays that there are.
        owner: Place where the parts were given, for the message.

    Raises:
        ConfigError: with the names that there are.
    """
    known = list(names)
    for part in parts:
        if not any(is_in(name, part) for name in known):
            arrays = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            words = known[0].split(".")
            examples = repr(".".join(words[:-1] or words))
            raise ConfigError(
                f"{owner}: no array of the networks belongs to {part!r}; give words "
                f"that stand in their names, such as {examples}. The arrays are "
                f"{arrays}."
            )


def check_frozen(parts: Sequence[str], state: PyTree) -> None:
    """Refuse frozen parts that there are not, and freezing everything.

    Args:
        parts: Names of the parts, as in a config's `frozen`.
        state: State of an agent, or its shapes.

    Raises:
        ConfigError: naming the part and what there is.
    """
    params = getattr(state, "params", None)
    if params is None:
        raise ConfigError(
            "frozen: the state of this algorithm has no field params, in which to look "
            "for parts; leave frozen out."
        )
    names = [name for name, _ in name_leaves(params)]
    check_parts(parts, names, "frozen")
    if all(any(is_in(name, part) for part in parts) for name in names):
        raise ConfigError(
            f"frozen: {', '.join(parts)} are all that this agent learns, so that "
            "nothing would be trained; leave a part out."
        )
