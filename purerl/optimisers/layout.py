"""The places of the numbers of a flat vector of parameters in the networks.

Learned optimisers treat all parameters alike, and know them apart by such facts. They
follow from the names and shapes of the layers, so that they are constants of a program.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl.types import PyTree

_COLLECTION = "params"  # flax keeps the parameters of a network under this name.
# Modules that see an observation before all others beside them, in this order.
_FIRST = ("torso", "Conv", "CNN", "memory")
# The blocks of a memory, which follow the layer that is beside them. A block's norm is
# before all else in it, and the recurrence of its number, which is beside it, follows.
_BLOCK = "block"
_NORM = "LayerNorm"
# The modules of one block of a transformer, whose norms are before what they normalise.
_TRANSFORMER = ("LayerNorm", "Attention", "Gate", "LayerNorm", "Dense", "Dense", "Gate")
_OUTPUTS = "outputs"  # The last layer of an attention.
_HEAD = "Critic"


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
    the layer of its number. In blocks around which something is added (transformers,
    memories of blocks, IMPALA's), it is before the layer that it normalises.

    Args:
        params: Pytree of arrays, or of their shapes.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    names = [tuple(_name(key) for key in path) for path, _ in leaves]
    depth: dict[tuple[str, ...], float] = {}
    number: dict[tuple[str, ...], float] = {}
    for index, (path, network) in enumerate(_networks(params)):
        layers = _layers(network)
        for place, layer in enumerate(layers):
            number[path + layer] = index
            depth[path + layer] = place / max(1, len(layers) - 1)
    return Layout(
        sizes=np.array([int(np.prod(leaf.shape)) for _, leaf in leaves]),
        depth=np.array([_nearest(depth, name) for name in names], np.float32),
        is_matrix=np.array([leaf.ndim > 1 for _, leaf in leaves], np.float32),
        is_critic=np.array(["critic" in "/".join(name) for name in names]),
        network=np.array([_nearest(number, name) for name in names], np.int32),
        names=tuple(names),
    )


def _networks(tree: Any, path: tuple[str, ...] = ()) -> list[tuple]:
    """The networks of a pytree with their paths; without `params` it is one network."""
    if not isinstance(tree, Mapping):
        return [(path, tree)]
    if _COLLECTION in tree:
        return [((*path, _COLLECTION), part) for part in _twins(tree[_COLLECTION])]
    inner = [one for name in tree for one in _networks(tree[name], (*path, name))]
    if any(where[-1:] == (_COLLECTION,) for where, _ in inner):
        return inner
    return [(path, tree)]


def _twins(tree: Any) -> list[Any]:
    """The networks of one structure that a network is made of, or the network itself.

    Their modules have the same names but for the number at the end: `CNN_0` and
    `Critic_0` are one of them, `CNN_1` and `Critic_1` the other.
    """
    if not isinstance(tree, Mapping):
        return [tree]
    parts: dict[str, dict[str, Any]] = {}
    for name, module in tree.items():
        kind, _, number = name.rpartition("_")
        is_made_of_layers = isinstance(module, Mapping) and not _is_layer(module)
        if not (number.isdigit() and is_made_of_layers):
            return [tree]
        parts.setdefault(number, {})[kind] = module
    if len({jax.tree.structure(part) for part in parts.values()}) > 1:
        return [tree]
    return [
        {f"{kind}_{number}": module for kind, module in part.items()}
        for number, part in parts.items()
    ]


def _layers(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of the layers of a network, from the first to the last."""
    if not isinstance(tree, Mapping):
        return [path]
    modules = {name: x for name, x in tree.items() if isinstance(x, Mapping)}
    inside = _in_blocks(modules)
    is_block = bool(path) and path[-1].startswith(_BLOCK)
    found: list[tuple[str, ...]] = []
    for name in _in_order(modules, is_block):
        if name in inside.values():
            continue
        own = [(*path, name)]
        if not _is_layer(modules[name]):
            own = _layers(modules[name], (*path, name))
        if name in inside:
            own.insert(1, (*path, inside[name]))
        found += own
    # Arrays beside modules, such as a log standard deviation, are a last layer.
    return found if len(modules) == len(tree) else [*found, path]


def _in_blocks(modules: Mapping[str, Any]) -> dict[str, str]:
    """The recurrences of a memory by the names of their blocks, which are beside them.

    They are named as what makes them, such as `StateSpace_0` for `block_0`.
    """
    found = {}
    for name in modules:
        kind, _, number = name.rpartition("_")
        block = f"{_BLOCK}_{number}"
        if kind not in (_BLOCK, "Dense", _NORM) and block in modules:
            found[block] = name
    return found


def _in_order(modules: Mapping[str, Any], is_block: bool) -> list[str]:
    """The names of modules beside one another, from the first to the last."""

    def key(name: str) -> tuple:
        first = [n for n, kind in enumerate(_FIRST) if name.startswith(kind)]
        rank = first[0] if first else len(_FIRST)
        is_layer = _is_layer(modules[name]) and not first
        # The head of a critic of all actions stands beside its torso.
        is_late = name.startswith(_BLOCK) or name == _OUTPUTS or _HEAD in name
        return rank, is_late, is_layer, _numbered(name)

    known = _with_norms_first(modules)
    if known is not None:
        return known
    norms = sorted((x for x in modules if x.startswith(_NORM)), key=_numbered)
    found = sorted((x for x in modules if x not in norms), key=key)
    for number, name in enumerate(norms):
        # After the layer of this number, or before it.
        found.insert(2 * number + (not is_block), name)
    return found


def _with_norms_first(modules: Mapping[str, Any]) -> list[str] | None:
    """The names of modules in order where blocks of them begin with a norm.

    The numbers of modules tell how many blocks there are.

    Returns:
        Names of a transformer, or of IMPALA's network with norms; None of others.
    """
    count = Counter(name.rpartition("_")[0] for name in modules)
    blocks, convolutions, norms = (count[x] for x in ("Attention", "Conv", _NORM))
    sections = convolutions + 2 - norms  # Without norms before their first layers.
    if blocks:
        kinds = ["Dense", *_TRANSFORMER * blocks]
    elif norms and sections > 1:
        inside = convolutions // sections - 1
        kinds = ["Conv", *(_NORM, "Conv") * inside] * sections
        kinds += [_NORM, "Dense", _NORM]
    else:
        return None
    numbers = {kind: itertools.count() for kind in kinds}
    names = [f"{kind}_{next(numbers[kind])}" for kind in kinds]
    return names if set(names) == set(modules) else None


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
