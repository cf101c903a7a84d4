"""From an environment's observation to the floats that a network takes.

They are one array, or, of a `Dict` or `Tuple` space, the same pytree of arrays. Under
the key `action_mask` of a `Dict` the mask of valid actions passes through: see
`networks.composite`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError
from purerl.learning import normalise
from purerl.learning.collectives import after
from purerl.networks import composite
from purerl.types import Array, PyTree


def obs_shape(space: Any) -> Any:
    """Return the shape of the features of one observation, see `networks.composite`.

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
        parts = {key: _part(key, part, obs[key]) for key, part in _items(space)}
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


def example(space: Any) -> Any:
    """Return features of one observation, to draw parameters with: `[1, ...]`."""
    shape = obs_shape(space)
    if composite.is_shape(shape):
        return jnp.zeros((1, *shape))
    found = composite.map_shape(lambda one: jnp.zeros((1, *one)), shape)
    if composite.has_mask(shape):
        found[composite.MASK] = jnp.ones((1, *shape[composite.MASK]), bool)
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
            the space says.
    """
    check_shape("the observation", space, obs)
    parts = getattr(space, "spaces", None)
    if not (isinstance(parts, Mapping) and isinstance(obs, Mapping)):
        return obs
    missing = [key for key in parts if key not in obs]
    seen = [key for key in parts if key in (keys or parts) or key == composite.MASK]
    blind = [key for key in missing if key in seen]
    if blind:
        raise ConfigError(
            f"the observation lacks {', '.join(blind)}: the policy sees "
            f"{', '.join(seen)}; give it all of these."
        )
    if not missing:
        return obs
    shapes = {key: _shapes_of(part) for key, part in parts.items()}
    one, of_one = (jax.tree.leaves(x[seen[0]])[0] for x in (obs, shapes))
    lead = one.shape[: one.ndim - len(of_one.shape)]
    zeros = {
        key: jax.tree.map(lambda x: jnp.zeros((*lead, *x.shape), x.dtype), shapes[key])
        for key in missing
    }
    return {**obs, **zeros}


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
        by_key = isinstance(parts, Mapping)
        if not isinstance(obs, Mapping if by_key else tuple):
            expected = f"dict with {', '.join(parts)}" if by_key else "tuple"
            raise ConfigError(
                f"{what} must be a {expected}, got {_kind(obs)}. Give what the "
                "environment's reset and step return."
            )
        known = obs if isinstance(obs, Mapping) else dict(enumerate(obs))
        for key, part in _items(space):
            if key in known:
                check_shape(f"{what} at {key!r}", part, known[key])
        return
    shape = tuple(space.shape)
    try:
        given = np.shape(obs)
    except ValueError:  # It is ragged.
        given = None
    if given is None or given[len(given) - len(shape) :] != shape:
        got = type(obs).__name__ if given is None or isinstance(obs, Mapping) else given
        raise ConfigError(
            f"{what} must have the shape {shape}, or axes of a batch before it, got "
            f"{got}. Give what the environment's reset and step return."
        )


def _kind(obs: Any) -> str:
    """Say what an observation is, for a message."""
    if isinstance(obs, jax.Array | np.ndarray):
        return f"an array of shape {obs.shape}"
    return f"a {type(obs).__name__}"


def _shapes_of(space: Any) -> PyTree:
    """The shapes and types of a member of a space."""
    return jax.eval_shape(space.sample, jax.random.key(0))


def _items(space: Any) -> Iterable[tuple[Any, Any]]:
    """Key or place of every part of a composite space, and its space."""
    parts = space.spaces
    return parts.items() if isinstance(parts, dict) else enumerate(parts)


def _like(space: Any, values: dict[Any, Any]) -> Any:
    """The values of a composite space's parts as a member of it would hold them."""
    return values if isinstance(space.spaces, dict) else tuple(values.values())


def _part(key: Any, space: Any, obs: PyTree) -> Any:
    """The features of a part of an observation, or the mask."""
    if key != composite.MASK:
        return to_features(space, obs)
    mask = obs.astype(bool)
    # After an episode's end there may be no valid action, and nothing to choose: then
    # all are, so that every number stays finite.
    return mask | ~mask.any(-1, keepdims=True)


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

    They are `normalise.Moments` of numbers, and nothing of pictures, of choices, which
    are one-hot, and of bits, whose features lie between 0 and 1 as they are. Of a
    `Dict` or `Tuple` they are a tuple, with an entry for each array in it.
    """
    shape = obs_shape(space)
    if composite.is_shape(shape):
        return normalise.init_moments(shape) if _is_scaled(space) else ()
    pairs = zip(composite.leaf_shapes(shape), _scaled_leaves(space), strict=True)
    return tuple(normalise.init_moments(one) if scaled else () for one, scaled in pairs)


def merge_moments(
    space: Any, moments: PyTree, features: PyTree, axis_name: str | None
) -> PyTree:
    """Merge features into the statistics of observations.

    Args:
        moments: Statistics before, see `init_moments`.
        features: `[..., *obs_shape]`; all leading axes are samples.
        axis_name: Mapped axis over which the samples are spread, if any.
    """
    if not hasattr(space, "spaces"):
        return normalise.merge(moments, features, axis_name) if moments else moments
    merged: list[Any] = []
    before = None
    for one, part in zip(moments, jax.tree.leaves(features), strict=True):
        if not one:
            merged.append(one)
            continue
        # Averages over devices must come one after another: see `collectives`.
        part = part if before is None else after(part, before, axis_name)
        merged.append(normalise.merge(one, part, axis_name))
        before = merged[-1].var.sum()
    return tuple(merged)


def normalised(
    space: Any, moments: PyTree, features: PyTree, clip: Array | float
) -> PyTree:
    """Standardise and clip features that are numbers; others stay: see `init_moments`.

    Args:
        moments: Statistics of observations, see `init_moments`.
        features: `[..., *obs_shape]` features of observations.
        clip: Largest absolute value of what is standardised.
    """
    if not hasattr(space, "spaces"):
        return normalise.normalise(moments, features, clip) if moments else features
    leaves, structure = jax.tree.flatten(features)
    pairs = zip(moments, leaves, strict=True)
    scaled = [normalise.normalise(m, x, clip) if m else x for m, x in pairs]
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
        yield _is_scaled(space)
        return
    for key, part in _items(space):
        if key == composite.MASK:
            yield False
        else:
            yield from _scaled_leaves(part)


def _is_scaled(space: Any) -> bool:
    """Return whether members are numbers that are standardised: no picture, no bits."""
    is_number = hasattr(space, "low") and np.issubdtype(space.dtype, np.number)
    return bool(is_number and not _is_picture(space))
