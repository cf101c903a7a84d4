"""From Jumanji's specs, observations and actions to spaces, parts and numbers.

Nothing here imports Jumanji: a spec is known by its attributes.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..base import Array
from ..spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

MASK = "action_mask"
"""Key of the valid actions, by which Jumanji and this package call them alike."""

MOST_COMBINATIONS = 10_000
"""Combinations that a mask may speak of: a network has an output for each of them."""


PICTURES = ("grid",)
"""Fields of three axes that are a height, a width and channels."""


def parts_of(value: Any) -> dict[str, Any] | None:
    """Return the parts of an observation by name.

    Args:
        value: A named tuple, a dataclass or a dictionary; anything else, such as an
            array, has no parts.
    """
    if isinstance(value, dict):
        return value
    if hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names}
    return None


def space_of(spec: Any, example: Any, field: str = "") -> Space:
    """Return the space of the values that a spec describes.

    A `DiscreteArray` is one choice. A `BoundedArray` is a number of its type between
    its bounds. Whole numbers without bounds become floats, whose bounds are infinite.
    Networks here take three axes for a picture; of the arrays that are none, such as
    the faces of a cube, the last two axes become one.

    Args:
        spec: Spec of an observation or of one part.
        example: A value that the spec describes, which knows the names of parts.
        field: Name of the part.
    """
    parts = parts_of(example)
    if parts is not None:
        return Dict({key: space_of(spec[key], x, key) for key, x in parts.items()})
    shape = tuple(int(size) for size in spec.shape)
    if len(shape) == 3 and field not in (*PICTURES, MASK):
        shape = (shape[0], shape[1] * shape[2])
    if hasattr(spec, "num_values") and shape == ():
        return Discrete(int(spec.num_values))
    if spec.dtype == np.bool_:
        return MultiBinary(shape) if shape else Discrete(2)
    if not hasattr(spec, "minimum"):
        return Box(-np.inf, np.inf, shape)
    bounds = (np.broadcast_to(x, spec.shape) for x in (spec.minimum, spec.maximum))
    low, high = (bound.reshape(shape) for bound in bounds)
    return Box(low, high, shape, spec.dtype)


def member_of(space: Any, value: Any) -> Any:
    """Return an observation as a member of its space.

    Args:
        space: Space of the observation, see `space_of`.
        value: Jumanji's observation, whose parts come back as dictionaries.
    """
    if isinstance(space, Dict):
        parts = parts_of(value) or {}
        return {key: member_of(space[key], parts[key]) for key in space.spaces}
    if isinstance(space, Discrete):  # -1 is none of the others: the last member.
        value = jnp.where(jnp.asarray(value) < 0, space.n - 1, value)
    return jnp.asarray(value).astype(space.dtype).reshape(space.shape)


@dataclasses.dataclass(frozen=True)
class Actions:
    """Translation of actions of this package into Jumanji's.

    A mask may speak of every combination of choices, such as the place and the turn of
    a block: then the combinations are numbered and are one choice. Where it speaks of
    every choice by itself, such as that of each agent, they stay several choices.

    Attributes:
        space: Space of actions in this package.
        combined: Numbers of the choices whose combinations are numbered; else empty.
        dtype: Type of Jumanji's actions.
    """

    space: Space
    combined: tuple[int, ...]
    dtype: Any

    def to_jumanji(self, action: Array) -> Array:
        """Return the action that Jumanji's step takes."""
        if self.combined:
            action = jnp.stack(jnp.unravel_index(action, self.combined))
        return jnp.asarray(action).astype(self.dtype)

    @property
    def mask_size(self) -> int:
        """Number of values of a mask; 0 where actions can have none."""
        space: Any = self.space
        return getattr(space, "n", 0) or int(np.sum(getattr(space, "nvec", 0)))


def actions_of(spec: Any, mask: tuple[int, ...] | None) -> Actions:
    """Return the actions of a spec.

    Args:
        spec: Jumanji's spec of actions.
        mask: Shape of the mask among the observations; None without a mask.

    Raises:
        ValueError: the mask is that of no such actions, or of too many combinations.
    """
    if not np.issubdtype(spec.dtype, np.integer):
        low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
        return Actions(Box(low, high, spec.shape, spec.dtype), (), spec.dtype)
    counts = np.broadcast_to(np.asarray(spec.maximum) + 1, spec.shape)
    nvec = tuple(int(n) for n in counts.reshape(-1))
    num_combinations = int(np.prod(nvec))
    if spec.shape == () and mask in (None, nvec):
        return Actions(Discrete(nvec[0]), (), spec.dtype)
    if mask is None:
        return Actions(MultiDiscrete(nvec), (), spec.dtype)
    if mask == nvec and num_combinations <= MOST_COMBINATIONS:
        return Actions(Discrete(num_combinations), nvec, spec.dtype)
    if spec.shape and mask[:-1] == spec.shape and mask != nvec:
        # A number without a place in the mask is no action: the spec of MultiCVRP has
        # one more than there are places.
        return Actions(MultiDiscrete(mask[-1:] * len(nvec)), (), spec.dtype)
    raise ValueError(
        f"has a mask of shape {mask} for actions of {nvec} choices, but a mask must be "
        "that of each choice, or that of their combinations, of which there may be "
        f"{MOST_COMBINATIONS:,}: choose a smaller environment."
    )
