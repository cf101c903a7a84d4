"""The coordinates of a meta-gradient: leaves of a config as arrays without bounds.

The names and scales are those of `purerl.evolve`: a number that must stay positive is
`start * exp(z)`, a fraction `sigmoid(logit(start) + z)`, and arrays are themselves. The
derivative is with respect to `z`, so that a step of any size leads to numbers that can
be trained with.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.meta.genome import Genome
from purerl.meta.names import Names
from purerl.train import Bound, check_may_move
from purerl.types import Array, Overrides

Values = dict[str, Array]
"""Coordinates by name of the leaf: `gamma`, `policy_loss.params[0]`."""
# How to give a number of which the derivative is, by the argument that names it.
_INSTEAD = {"wrt": "give them by values", "tune": "give them in the config"}


class Coordinates:
    """Leaves of a config as arrays without bounds.

    Args:
        bound: The config and its environment.
        names: The name of a field, several, or names with their scales.
        word: Name in messages of the argument that names the fields: `wrt` or `tune`.

    Raises:
        ConfigError: the field is unknown, static or has no float leaves, no update
            reads it, or it starts where its scale ends.
    """

    def __init__(self, bound: Bound, names: Names, word: str = "wrt") -> None:
        self._genome = Genome(bound.asked, bound.env, names, word)
        self._word = word
        self.fields = tuple(self._genome.values)
        check_may_move(bound, self._genome.values, f"and {word} is about updates")

    def start(self) -> Values:
        """Return the coordinates of the config's own values, float32."""
        vector, found = self._genome.start(), {}
        for leaf in self._genome.leaves:
            part, vector = np.split(vector, [leaf.start.size])
            found[leaf.name] = jnp.asarray(part.reshape(leaf.start.shape))
        return found

    def decode(self, values: Mapping[str, Any]) -> Overrides:
        """Return the numbers that coordinates mean, as overrides of the config.

        Args:
            values: Coordinates by name of the leaf, which may be traced.

        Raises:
            ConfigError: there are other names, or other shapes.
        """
        self._check(values)
        parts = [jnp.ravel(values[leaf.name]) for leaf in self._genome.leaves]
        one = self._genome.decode(jnp.concatenate(parts)[None])
        return jax.tree.map(lambda x: x[0], one)

    def check_apart(self, overrides: Overrides) -> None:
        """Check that none of the overrides is one of these numbers.

        Args:
            overrides: Values by name of the field.

        Raises:
            ConfigError: one of them is, or holds one, or is a part of one.
        """
        for name in overrides:
            for field in self.fields:
                if f"{name}.".startswith(f"{field}.") or field.startswith(f"{name}."):
                    raise ConfigError(
                        f"overrides: {name} and {field}, which the meta-gradient is "
                        f"of, are the same numbers; {_INSTEAD[self._word]}."
                    )

    def _check(self, values: Mapping[str, Any]) -> None:
        shapes = {leaf.name: leaf.start.shape for leaf in self._genome.leaves}
        if not isinstance(values, Mapping) or set(values) != set(shapes):
            raise ConfigError(
                f"values must be arrays under the names {', '.join(shapes)}, as "
                f"start() returns them, got {_described(values)}."
            )
        for name, shape in shapes.items():
            if jnp.shape(values[name]) != shape:
                raise ConfigError(
                    f"values[{name!r}] must have the shape {shape}, got "
                    f"{jnp.shape(values[name])}; for several agents use jax.vmap."
                )


def _described(values: Any) -> str:
    if isinstance(values, Mapping):
        return ", ".join(map(str, values)) or "none"
    return type(values).__name__
