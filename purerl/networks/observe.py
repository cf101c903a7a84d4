"""What networks see: features of observations, their shapes, and masks of actions.

What networks take of an observation is one array of floats, or, of a `Dict` or `Tuple`
space, the same pytree of arrays. Its *shape* is a tuple of whole numbers, or the same
pytree of such tuples, always without leading axes.

Under the key `MASK` of a dictionary at the top there is no feature, but which actions
are valid, bool `[..., A]`. No network sees it; it goes around the networks, to what
they return (`Masked`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError
from purerl.learning import averages
from purerl.learning.averages import after
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


def obs_shape(space: Any) -> Any:
    """Return the shape of the features of one observation, see `networks.observe`.

    Raises:
        ValueError: a space that is none of `envs.spaces`, or an array without numbers.
    """
    if hasattr(space, "spaces"):
        return _like(space, {key: obs_shape(part) for key, part in _items(space)})
    if hasattr(space, "n"):
        return (int(space.n),)
    if hasattr(space, "nvec"):
        return (int(np.sum(space.nvec)),)
    if not (hasattr(space, "low") or hasattr(space, "bits")):
        raise ValueError(
            f"observations must be members of a space of envs.spaces, got {space}; "
            "change them in a wrapper."
        )
    if 0 in space.shape:
        raise ValueError(
            f"observations of {space} hold no number, and a network needs some; leave "
            "that part out in a wrapper."
        )
    return tuple(space.shape)


def to_features(space: Any, obs: PyTree) -> Any:
    """Turn observations into floats: one-hot for discrete parts, a cast for numbers.

    Images in bytes, from 0 to 255, come out between 0 and 1.

    Args:
        obs: `[..., *shape]`; a buffer keeps them as they are, bytes as bytes.

    Returns:
        float32 `[..., *obs_shape(space)]`, of a `Dict` or `Tuple` a pytree of such.
    """
    if hasattr(space, "spaces"):
        parts = {}
        for key, part in _items(space):
            if key != MASK:
                parts[key] = to_features(part, obs[key])
                continue
            mask = obs[key].astype(bool)
            # After an episode's end there may be no valid action, and nothing to
            # choose: then all are, so that every number stays finite.
            parts[key] = mask | ~mask.any(-1, keepdims=True)
        return _like(space, parts)
    if hasattr(space, "n"):
        return jax.nn.one_hot(obs, int(space.n))
    if hasattr(space, "nvec"):
        sizes = np.reshape(space.nvec, -1)
        lead = obs.shape[: obs.ndim - len(space.shape)]
        flat = obs.reshape(*lead, len(sizes))
        hot = [jax.nn.one_hot(flat[..., i], int(n)) for i, n in enumerate(sizes)]
        return jnp.concatenate(hot, -1)
    features = obs.astype(jnp.float32)
    return features / 255.0 if _is_picture(space) else features


def are_truth_values(obs: PyTree) -> bool:
    """Return whether observations are one array of truth values."""
    return isinstance(obs, Array) and obs.dtype == bool


def example(space: Any) -> Any:
    """Return features of one observation, to draw parameters with: `[1, ...]`."""
    shape = obs_shape(space)
    if is_shape(shape):
        return jnp.zeros((1, *shape))
    found = map_shape(lambda one: jnp.zeros((1, *one)), shape)
    if has_mask(shape):
        found[MASK] = jnp.ones((1, *shape[MASK]), bool)
    return found


def as_arrays(obs: Any) -> PyTree:
    """Return observations that a user gave as arrays.

    Lists, and tuples of plain numbers, are an array each; other tuples and dictionaries
    are observations of several parts.

    Args:
        obs: One observation or a batch.
    """

    def is_one(x: Any) -> bool:
        is_row = isinstance(x, tuple) and all(isinstance(v, int | float) for v in x)
        return isinstance(x, list) or is_row

    return jax.tree.map(jnp.asarray, obs, is_leaf=is_one)


def completed(space: Any, obs: PyTree, keys: tuple[str, ...]) -> PyTree:
    """Return an observation with zeros for the parts that a policy does not see.

    Those may be left out: training may know more than whoever acts knows later.

    Args:
        obs: `[..., *shape]` observations, of a `Dict` with or without such parts.
        keys: Keys of a `Dict` that the policy sees; none for all keys.

    Raises:
        ConfigError: a part is missing that the policy sees, or has another shape than
            the space says, or another number of observations than the other parts.
    """
    check_shape("the observation", space, obs)
    leads = _leads(space, obs)
    odd = [pair for pair in leads if pair[0] != leads[0][0]]
    if odd:
        (one, here), (other, there) = leads[0], odd[0]
        raise ConfigError(
            "the parts of the observation must have the same axes of a batch, got "
            f"{one} of {here} and {other} of {there}."
        )
    parts = getattr(space, "spaces", None)
    if not (isinstance(parts, Mapping) and isinstance(obs, Mapping)):
        return obs
    missing = [key for key in parts if key not in obs]
    seen = [key for key in parts if key in (keys or parts) or key == MASK]
    blind = [key for key in missing if key in seen]
    if blind:
        raise ConfigError(
            f"the observation lacks {', '.join(blind)}: the policy sees "
            f"{', '.join(seen)}; give it all of these."
        )
    if not missing:
        return obs
    lead = leads[0][0]
    shapes = jax.eval_shape(space.sample, jax.random.key(0))
    zeros = {
        key: jax.tree.map(lambda x: jnp.zeros((*lead, *x.shape), x.dtype), shapes[key])
        for key in missing
    }
    return {**obs, **zeros}


def _leads(space: Any, obs: Any, where: str = "") -> list[tuple[tuple[int, ...], str]]:
    """The axes of a batch of each array that there is, and the name of its part."""
    if not hasattr(space, "spaces"):
        shape = np.shape(obs)
        return [(shape[: len(shape) - len(space.shape)], where)]
    known = obs if isinstance(obs, Mapping) else dict(enumerate(obs))
    pairs = [(key, part) for key, part in _items(space) if key in known]
    return [
        lead
        for key, part in pairs
        for lead in _leads(part, known[key], f"{where}.{key}".lstrip("."))
    ]


def check_shape(what: str, space: Any, obs: Any) -> None:
    """Refuse observations whose last axes are not those of a space.

    Args:
        what: Name of the observation, for the message.
        obs: `[..., *shape]` observations; parts that are missing are not looked at.

    Raises:
        ConfigError: naming the shape that was given, and what is expected.
    """
    parts = getattr(space, "spaces", None)
    if parts is not None:
        if not isinstance(obs, Mapping if isinstance(parts, Mapping) else tuple):
            raise ConfigError(
                f"{what} must have the parts of {space}, got {type(obs).__name__}."
            )
        known = obs if isinstance(obs, Mapping) else dict(enumerate(obs))
        for key, part in _items(space):
            if key in known:
                check_shape(f"{what} at {key!r}", part, known[key])
        return
    shape = tuple(space.shape)
    try:
        given: Any = type(obs).__name__ if isinstance(obs, Mapping) else np.shape(obs)
    except ValueError:  # It is ragged.
        given = type(obs).__name__
    if isinstance(given, str) or given[len(given) - len(shape) :] != shape:
        raise ConfigError(
            f"{what} must have the shape {shape}, or axes of a batch before it, got "
            f"{given}. Give what the environment's reset and step return."
        )


def _items(space: Any) -> Iterable[tuple[Any, Any]]:
    """Key or place of every part of a composite space, and its space."""
    parts = space.spaces
    return parts.items() if isinstance(parts, dict) else enumerate(parts)


def _like(space: Any, values: dict[Any, Any]) -> Any:
    """The values of a composite space's parts as a member of it would hold them."""
    return values if isinstance(space.spaces, dict) else tuple(values.values())


def _is_picture(space: Any) -> bool:
    """Return whether members are `[height, width, channels]` in bytes from 0 to 255."""
    if len(space.shape) != 3 or np.dtype(space.dtype) != np.uint8:
        return False
    bounds = space.low, space.high
    if any(isinstance(bound, Tracer) for bound in bounds):
        return False
    low, high = (np.asarray(bound) for bound in bounds)
    return bool(np.all(low == 0) and np.all(high == 255))


def init_moments(space: Any) -> PyTree:
    """Return the statistics of observations before anything was seen.

    They are `averages.Moments` of numbers, and nothing of pictures, of choices, which
    are one-hot, and of bits, whose features lie between 0 and 1 as they are. Of a
    `Dict` or `Tuple` they are a tuple, with an entry for each array in it.
    """
    pairs = zip(leaf_shapes(obs_shape(space)), _scaled_leaves(space), strict=True)
    made = [averages.init_moments(one) if scaled else () for one, scaled in pairs]
    return tuple(made) if hasattr(space, "spaces") else made[0]


def merge_moments(
    space: Any, moments: PyTree, features: PyTree, axis_name: str | None
) -> PyTree:
    """Merge features into the statistics of observations.

    Args:
        moments: Statistics before, see `init_moments`.
        features: `[..., *obs_shape]`; all leading axes are samples.
        axis_name: Mapped axis over which the samples are spread, if any.
    """
    is_single = not hasattr(space, "spaces")
    merged, before = list((moments,) if is_single else moments), None
    for index, part in enumerate(jax.tree.leaves(features)):
        if merged[index]:
            # Averages over devices must come one after another: see `averages`.
            part = part if before is None else after(part, before, axis_name)
            merged[index] = averages.merge(merged[index], part, axis_name)
            before = merged[index].var.sum()
    return merged[0] if is_single else tuple(merged)


def normalised(
    space: Any, moments: PyTree, features: PyTree, clip: Array | float
) -> PyTree:
    """Standardise and clip features that are numbers; others stay: see `init_moments`.

    Args:
        moments: Statistics of observations, see `init_moments`.
        features: `[..., *obs_shape]` features of observations.
        clip: Largest absolute value of what is standardised.
    """
    leaves, structure = jax.tree.flatten(features)
    each = moments if hasattr(space, "spaces") else (moments,)
    pairs = zip(each, leaves, strict=True)
    scaled = [averages.normalise(m, x, clip) if m else x for m, x in pairs]
    return jax.tree.unflatten(structure, scaled)


def prepare(parts: Any, moments: PyTree, obs: PyTree) -> Any:
    """Return what networks see of observations: floats, normalised if the config says.

    Args:
        parts: Parts of an algorithm: its `config`, with `normalize_observations` and
            `clip_observations`, and its `obs_space`.
        moments: Statistics of observations, which are read where they are normalised.
        obs: `[..., *shape]` observations as the environment gives them.
    """
    features = to_features(parts.obs_space, obs)
    if not parts.config.normalize_observations:
        return features
    clip = parts.config.clip_observations
    return normalised(parts.obs_space, moments, features, clip)


def _scaled_leaves(space: Any) -> Iterator[bool]:
    """Yield for each array of a composite observation whether it is standardised."""
    if not hasattr(space, "spaces"):
        is_number = hasattr(space, "low") and np.issubdtype(space.dtype, np.number)
        yield bool(is_number and not _is_picture(space))
        return
    for key, part in _items(space):
        if key == MASK:
            yield False
        else:
            yield from _scaled_leaves(part)
