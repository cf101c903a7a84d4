"""The checks of an optimiser in a config, made before anything is traced."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, part_kind, tried
from purerl.learning.optimiser import is_in, name_leaves
from purerl.optimisers import OPTIMISERS
from purerl.registry import check_part, loaded
from purerl.types import PyTree

_OWN = tuple(loaded(OPTIMISERS).values())
_EXAMPLE = "purerl.optimisers.Adam(b1=0.9)"


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
    check_part(name, optimiser, _EXAMPLE)
    words = f"return a transformation of layers for a step size, as {_EXAMPLE} does"
    tried(name, optimiser, words, partial(jax.eval_shape, _step, optimiser, _layers()))


def _layers() -> Any:
    """Shapes of small networks with names of PPO's, by which a mask may go."""
    bias, kernel = (jax.ShapeDtypeStruct(x, jnp.float32) for x in ((3,), (2, 3)))
    layer = {"bias": bias, "kernel": kernel}
    torso = {"torso": {"Dense_0": layer}, "log_std": bias}
    return {"actor": {"params": torso}, "critic": {"params": {"Dense_0": layer}}}


def _step(optimiser: Any, layers: Any) -> Any:
    """Make one step of an optimiser; what it returns must be like what it was given."""
    transformation = optimiser(1e-3)
    state = transformation.init(layers)
    updates, after = transformation.update(layers, state, layers)
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise ValueError("the state after a step has another structure than before")
    shapes = [jax.tree.map(jnp.shape, x) for x in (updates, layers)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"updates of {shapes[1]} have the shapes {shapes[0]}")
    return updates


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
