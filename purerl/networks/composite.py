"""Observations of several parts: their shapes, what a network sees of them, and masks.

What networks take of an observation (see `acting.observe`) is one array, or a pytree of
arrays: a dictionary or a tuple, nested as the observation is. Its *shape* is a tuple of
whole numbers, or the same pytree of such tuples, always without leading axes.

Under the key `MASK` of a dictionary at the top there is no feature, but which actions
are valid, bool `[..., A]`. No network sees it; it goes around the networks, to what
they return (`Masked`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl.types import Array, PyTree

MASK = "action_mask"
"""The key of a dictionary observation that says which actions are valid."""

# The key of features that stand beside a mask or beside features of another network:
# those of a memory or of a shared torso.
FEATURES = "<features>"
# This is far below every logit and every value, and yet finite: its softmax is exactly
# zero, and neither its product with zero nor a gradient through it is NaN.
EXCLUDED = -1e9


def is_shape(x: Any) -> bool:
    """Return whether `x` is the shape of one array, and no pytree of shapes."""
    return isinstance(x, tuple) and all(isinstance(size, int) for size in x)


def map_shape(function: Callable[[tuple[int, ...]], Any], shape: Any) -> Any:
    """Return the pytree of what a function makes of the shape of every array."""
    return jax.tree.map(function, shape, is_leaf=is_shape)


def leaf_shapes(shape: Any) -> list[tuple[int, ...]]:
    """Return the shape of every array, in the order of the pytree's leaves."""
    return jax.tree.leaves(shape, is_leaf=is_shape)


def has_mask(shape: Any) -> bool:
    """Return whether observations of a shape say which actions are valid."""
    return isinstance(shape, Mapping) and MASK in shape


def part_keys(shape: Any) -> tuple[str, ...]:
    """Return the keys of a dictionary of features, without that of the mask."""
    return tuple(key for key in shape if key != MASK)


def visible(shape: Any, keys: tuple[str, ...] = ()) -> Any:
    """Return the shape of what a network sees; see `viewed`.

    Args:
        keys: Keys of a dictionary that the network sees; none for all keys.
    """
    if not isinstance(shape, Mapping):
        return shape
    if FEATURES in shape:
        return shape[FEATURES]
    return {key: shape[key] for key in keys or part_keys(shape)}


def viewed(module: nn.Module, shape: Any, keys: tuple[str, ...] = ()) -> nn.Module:
    """Return a module that takes all features, and shows some of them to `module`.

    Args:
        module: Module of what `visible` says.
        keys: Keys of a dictionary that the module sees; none for all keys.
    """
    if not isinstance(shape, Mapping):
        return module
    if FEATURES in shape:
        return View(module, FEATURES)
    return View(module, tuple(keys) or part_keys(shape))


class View(nn.Module):
    """A module that sees a part of a dictionary.

    Attributes:
        module: Module of the part, and of whatever comes with it.
        keys: Keys that it sees as a dictionary, or the key whose value it sees.
    """

    module: nn.Module
    keys: tuple[str, ...] | str

    def __call__(self, obs: Mapping[str, Any], *more: Array) -> Any:
        """Return the outputs of the module on the part."""
        if isinstance(self.keys, str):
            return self.module(obs[self.keys], *more)
        return self.module({key: obs[key] for key in self.keys}, *more)


class Masked(nn.Module):
    """A network of logits or action values, of which invalid actions have none.

    Where the mask is false, the output is `EXCLUDED` and has no gradient. So the policy
    of the logits is the one over the valid actions alone (Huang & Ontanon 2022,
    arXiv:2006.14171), and the largest value is that of a valid action.

    Attributes:
        module: Network of the features, with one output for each action.
    """

    module: nn.Module

    def __call__(self, obs: Mapping[str, Any]) -> Array:
        """Outputs `[..., A]` of features that have a mask `[..., A]`."""
        return exclude(self.module(obs), obs[MASK])


def exclude(outputs: Array, mask: Array) -> Array:
    """Return logits or values with `EXCLUDED` in the place of invalid actions.

    Args:
        outputs: `[..., A]` logits or values of all actions.
        mask: `[..., A]` bool, true for valid actions.
    """
    return jnp.where(mask, outputs, jnp.full_like(outputs, EXCLUDED))


def mean_of_valid(values: Array, mask: Array) -> Array:
    """Return the mean over the valid actions, `[..., 1]`.

    Args:
        values: `[..., A]` values of all actions.
        mask: `[..., A]` bool, true for valid actions.
    """
    total = jnp.where(mask, values, 0.0).sum(-1, keepdims=True)
    return total / jnp.maximum(mask.sum(-1, keepdims=True), 1)


def mask_of(obs: PyTree) -> Array | None:
    """Return the mask `[..., A]` of features; None where all actions are valid."""
    return obs[MASK] if isinstance(obs, Mapping) and MASK in obs else None


def beside_mask(features: Array, obs: PyTree, always: bool = False) -> PyTree:
    """Return what heads on features take: these, with the mask of `obs` if it has one.

    Args:
        features: `[..., F]` that a torso or a memory made of `obs`.
        obs: Features of the observation.
        always: Whether features have their key without a mask too, for others beside
            them.
    """
    mask = mask_of(obs)
    if mask is None:
        return {FEATURES: features} if always else features
    return {FEATURES: features, MASK: mask}


def head_shape(size: int, shape: Any, always: bool = False) -> Any:
    """Return the shape of what `beside_mask` returns.

    Args:
        size: F, number of features.
        shape: Shape of the features of the observation.
        always: Whether features have their key without a mask too.
    """
    if has_mask(shape):
        return {FEATURES: (size,), MASK: shape[MASK]}
    return {FEATURES: (size,)} if always else (size,)
