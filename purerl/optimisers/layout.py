"""The places of the numbers of a flat vector of parameters in the networks.

Learned optimisers treat all parameters alike, and know them apart by such facts. They
follow from the names and shapes of the layers, so that they are constants of a program.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.types import PyTree

_COLLECTION = "params"  # flax keeps the parameters of a network under this name.
# Modules that see an observation before all others beside them, in this order.
_FIRST = ("torso", "Conv", "CNN", "memory")
# Modules that come after a layer beside them, which is theirs to begin with.
_AFTER_LAYERS = "block"
_NORM = "LayerNorm"


class Layout(NamedTuple):
    """Facts about the P numbers of a flat vector, in the order of `ravel_pytree`.

    Attributes:
        sizes: Number of parameters of each leaf, `[L]`; they sum to P.
        depth: Place of each leaf's layer in its network, `[L]`: 0 for the first layer,
            1 for the last.
        is_matrix: 1 for a leaf of two axes or more (a kernel), 0 for a bias, `[L]`.
        is_critic: Whether each leaf belongs to a network of values beside a policy,
            `[L]`.
        network: Number of the network that each leaf belongs to, `[L]`.
        names: Path of each leaf.
    """

    sizes: np.ndarray
    depth: np.ndarray
    is_matrix: np.ndarray
    is_critic: np.ndarray
    network: np.ndarray
    names: tuple[tuple[str, ...], ...]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return `[P]`, one number for each parameter, of one for each leaf `[L]`."""
        return np.repeat(values, self.sizes)


def layout_of(params: PyTree) -> Layout:
    """Return where the parameters of some networks stand.

    A layer is what holds arrays: its kernel and its bias are at one depth. A network is
    what flax keeps under `params`; where one pytree holds an actor and a critic, or two
    critics alike, each has layers from 0 to 1. Within a network a torso comes first,
    then convolutions and a memory, then what is made of layers, and last what is a
    layer by itself (a head), each in the order of their names; a normalisation follows
    the layer of its number.

    Args:
        params: Pytree of arrays, or of their shapes.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    names = [tuple(_name(key) for key in path) for path, _ in leaves]
    depth: dict[tuple[str, ...], float] = {}
    number: dict[tuple[str, ...], float] = {}
    for network, inside in _networks(params).items():
        number[network] = len(number)
        layers = _layers(inside)
        for place, layer in enumerate(layers):
            depth[network + layer] = place / max(1, len(layers) - 1)
    return Layout(
        sizes=np.array([int(np.prod(leaf.shape)) for _, leaf in leaves]),
        depth=np.array([_nearest(depth, name) for name in names], np.float32),
        is_matrix=np.array([leaf.ndim > 1 for _, leaf in leaves], np.float32),
        is_critic=np.array(["critic" in "/".join(name) for name in names]),
        network=np.array([_nearest(number, name) for name in names], np.int32),
        names=tuple(names),
    )


def _networks(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The networks of a pytree by their paths; without `params` it is one network."""
    if not isinstance(tree, Mapping):
        return {path: tree}
    if _COLLECTION in tree:
        inside = tree[_COLLECTION]
        if not _are_twins(inside):
            return {(*path, _COLLECTION): inside}
        return {(*path, _COLLECTION, name): twin for name, twin in inside.items()}
    found: dict[tuple[str, ...], Any] = {}
    inner = {name: _networks(tree[name], (*path, name)) for name in tree}
    if any(one[-1:] == (_COLLECTION,) for each in inner.values() for one in each):
        for each in inner.values():
            found |= each
        return found
    return {path: tree}


def _are_twins(tree: Any) -> bool:
    """Return whether the modules of a network are networks of one structure."""
    if not isinstance(tree, Mapping) or len(tree) < 2:
        return False
    modules = list(tree.values())
    if any(not isinstance(x, Mapping) or _is_layer(x) for x in modules):
        return False
    return len({jax.tree.structure(x) for x in modules}) == 1


def _layers(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of the layers of a network, from the first to the last."""
    if not isinstance(tree, Mapping):
        return [path]
    modules = {name: x for name, x in tree.items() if isinstance(x, Mapping)}
    found: list[tuple[str, ...]] = []
    for name in _in_order(modules):
        if _is_layer(modules[name]):
            found.append((*path, name))
        else:
            found += _layers(modules[name], (*path, name))
    # Arrays beside modules, such as a log standard deviation, are a last layer.
    return found if len(modules) == len(tree) else [*found, path]


def _in_order(modules: Mapping[str, Any]) -> list[str]:
    """The names of modules beside one another, from the first to the last."""

    def key(name: str) -> tuple:
        first = [n for n, kind in enumerate(_FIRST) if name.startswith(kind)]
        rank = first[0] if first else len(_FIRST)
        is_layer = _is_layer(modules[name]) and not first
        return rank, name.startswith(_AFTER_LAYERS), is_layer, _numbered(name)

    norms = sorted((x for x in modules if x.startswith(_NORM)), key=_numbered)
    found = sorted((x for x in modules if x not in norms), key=key)
    for number, name in enumerate(norms):
        found.insert(2 * number + 1, name)  # After the layer of this number.
    return found


def _is_layer(tree: Any) -> bool:
    """Return whether a module holds arrays only."""
    return not any(isinstance(x, Mapping) for x in tree.values())


def _nearest(known: dict[tuple[str, ...], float], name: tuple[str, ...]) -> float:
    """Return the number that is known of the innermost place that a leaf is in."""
    for length in range(len(name), -1, -1):
        if name[:length] in known:
            return known[name[:length]]
    return 0.0


def _numbered(name: str) -> list[tuple[int, str]]:
    """A name to sort by, whose numbers count as such: Dense_10 is after Dense_2."""
    parts = re.split(r"(\d+)", name)
    return [(int(x), "") if x.isdigit() else (-1, x) for x in parts]


def _name(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
