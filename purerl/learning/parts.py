"""Parts of an agent's networks by name: `actor`, `torso`, `critic.Dense_0`.

The name of an array is its path with dots, such as `actor.torso.Dense_0.kernel`. Flax
keeps what is learned in collections called `params`, which are left out. A part is some
consecutive words of such names: `torso` means the torso of every network, and
`actor.torso` that of the actor.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import jax

from purerl.config import ConfigError
from purerl.types import PyTree

# Flax's name for the collection of parameters, and the field of a state that holds
# networks.
_LEFT_OUT = "params"


def name_leaves(tree: PyTree, prefix: str = "") -> list[tuple[str, PyTree]]:
    """Return the names of the leaves of a pytree with the leaves, in its order.

    Args:
        tree: The pytree.
        prefix: The name of the whole, which begins all names.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    begin = [prefix] if prefix else []
    return [
        (".".join([*begin, *(word for word in map(_word, path) if word)]), leaf)
        for path, leaf in leaves
    ]


def _word(entry: object) -> str:
    """A step of a path as a word; nothing for a collection of flax."""
    text = jax.tree_util.keystr((entry,), simple=True)
    return "" if text == _LEFT_OUT else text


def is_in(name: str, part: str) -> bool:
    """Return whether an array belongs to a part, both by name."""
    return f".{part}." in f".{name}."


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
            examples = dict.fromkeys([".".join(words[:-1] or words), words[0]])
            raise ConfigError(
                f"{owner}: no array of the networks belongs to {part!r}; give words "
                f"that stand in their names, such as "
                f"{' or '.join(map(repr, examples))}. The arrays are {arrays}."
            )


def frozen_in(parts: Sequence[str], prefix: str = "") -> Callable | None:
    """Return what says which arrays are frozen; None where no part is.

    Args:
        parts: Names of the parts that do not learn, as in a config's `frozen`.
        prefix: The name of the parameters that are asked about, where they are not
            everything that is learned.

    Returns:
        A function from layers of parameters to a pytree of Python truth values.
    """
    if not parts:
        return None

    def is_frozen(layers: PyTree) -> PyTree:
        named = name_leaves(layers, prefix)
        frozen = [any(is_in(name, part) for part in parts) for name, _ in named]
        return jax.tree.unflatten(jax.tree.structure(layers), frozen)

    return is_frozen


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


def unique(named: Sequence[tuple[str, PyTree]]) -> Mapping[str, PyTree]:
    """Return named leaves as a mapping.

    Raises:
        ConfigError: two leaves have one name, as where a module is called `params`.
    """
    found = dict(named)
    if len(found) < len(named):
        names = [name for name, _ in named]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"two arrays of the networks are called {twice!r}; give the submodules of "
            "your network other names than 'params'."
        )
    return found
