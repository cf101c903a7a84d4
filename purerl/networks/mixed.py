"""Policies over actions of several parts, some of them choices and some numbers.

Parts are independent given the observation, so that log-probabilities and entropies are
sums over them, as in Delalleau et al. (2019, "Discrete and continuous action
representation for practical RL in video games", arXiv:1912.11077).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.distributions import (
    CategoricalHead,
    Gaussian,
    Head,
    is_discrete,
    make_head,
)
from purerl.types import Array, PyTree


class MixedHead:
    """A policy with a factor for every part of a `Dict` or a `Tuple`.

    `outputs` is a `Gaussian`, `[..., A]` each, in which every part has its numbers side
    by side, in the order of JAX's pytrees. The mean of a discrete part is its logits,
    and its log standard deviation is not read. Raw actions are float32 `[..., R]`,
    which hold the whole numbers of discrete parts exactly.

    The entropy is the sum of the Shannon entropies of discrete parts and the
    differential entropies of the others.

    Args:
        heads: Pytree of the action's structure, with the head of every part.
    """

    is_discrete = False

    def __init__(self, heads: PyTree) -> None:
        self.heads, self.structure = jax.tree.flatten(heads)
        sizes = [head.num_outputs for head in self.heads]
        self.num_outputs = sum(sizes)
        self.places = np.cumsum(sizes)[:-1]
        self.raw_places = np.cumsum([_raw_size(head) for head in self.heads])[:-1]

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw the noise of all parts, `[*shape, A]`; the key is consumed."""
        keys = jax.random.split(key, len(self.heads))
        pairs = zip(self.heads, keys, strict=True)
        return jnp.concatenate([head.noise(one, shape) for head, one in pairs], -1)

    def choose(self, outputs: Gaussian, noise: Array) -> Array:
        """Return the raw actions that outputs and noise make, `[..., R]`."""
        noises = jnp.split(noise, self.places, -1)
        return self._joined(
            head.choose(part, some)
            for head, part, some in zip(
                self.heads, self._parts(outputs), noises, strict=True
            )
        )

    def sample(self, outputs: Gaussian, key: Array) -> Array:
        """Draw raw actions `[..., R]`; the key is consumed."""
        return self.choose(outputs, self.noise(key, outputs.mean.shape[:-1]))

    def mode(self, outputs: Gaussian) -> Array:
        """Return the likeliest member of discrete parts and the mean of the others."""
        pairs = zip(self.heads, self._parts(outputs), strict=True)
        return self._joined(head.mode(part) for head, part in pairs)

    def log_prob(self, outputs: Gaussian, raw: Array) -> Array:
        """Return the sum of the parts' log-probabilities and log-densities, `[...]`."""
        parts = zip(self.heads, self._parts(outputs), self._raw_parts(raw), strict=True)
        return jnp.stack([head.log_prob(part, one) for head, part, one in parts]).sum(0)

    def entropy(self, outputs: Gaussian) -> Array:
        """Return the sum of the parts' entropies, `[...]`."""
        pairs = zip(self.heads, self._parts(outputs), strict=True)
        return jnp.stack([head.entropy(part) for head, part in pairs]).sum(0)

    def to_env(self, raw: Array) -> PyTree:
        """Return the action, a dictionary or a tuple as the space is."""
        pairs = zip(self.heads, self._raw_parts(raw), strict=True)
        return jax.tree.unflatten(
            self.structure, [head.to_env(part) for head, part in pairs]
        )

    def _parts(self, outputs: Gaussian) -> list[Any]:
        """The outputs of every part, as its own head takes them."""
        means = jnp.split(outputs.mean, self.places, -1)
        log_stds = jnp.split(outputs.log_std, self.places, -1)
        return [
            mean if head.is_discrete else Gaussian(mean, log_std)
            for head, mean, log_std in zip(self.heads, means, log_stds, strict=True)
        ]

    def _raw_parts(self, raw: Array) -> list[Array]:
        """The raw action of every part, as its own head takes it."""
        parts = []
        for head, part in zip(
            self.heads, jnp.split(raw, self.raw_places, -1), strict=True
        ):
            part = part.astype(jnp.int32) if head.is_discrete else part
            parts.append(part[..., 0] if isinstance(head, CategoricalHead) else part)
        return parts

    def _joined(self, parts: Any) -> Array:
        """The raw actions of all parts side by side, float32 `[..., R]`."""
        rows = [
            part[..., None] if isinstance(head, CategoricalHead) else part
            for head, part in zip(self.heads, parts, strict=True)
        ]
        return jnp.concatenate([row.astype(jnp.float32) for row in rows], -1)


def make_policy_head(space: Any, policy: str) -> Head:
    """Make the head for an action space, which may have several parts.

    Args:
        space: Action space of `envs.spaces`, or one with the same attributes.
        policy: Kind of the distribution, as in `make_head`. Of several parts it is that
            of those with numbers; discrete ones among them are categorical.

    Raises:
        ValueError: the policy does not fit the space, or a part of it.
    """
    if not hasattr(space, "spaces"):
        return make_head(space, policy)
    is_all_discrete = all(map(is_discrete, _members(space)))

    def head_of(part: Any) -> PyTree:
        if isinstance(getattr(part, "spaces", None), dict):
            return {key: head_of(inner) for key, inner in part.spaces.items()}
        if hasattr(part, "spaces"):
            return tuple(map(head_of, part.spaces))
        is_given = is_all_discrete or not is_discrete(part)
        return make_head(part, policy if is_given else "auto")

    return MixedHead(head_of(space))


def _members(space: Any) -> list[Any]:
    """The spaces inside a space of several parts that have no parts themselves."""
    if not hasattr(space, "spaces"):
        return [space]
    parts = space.spaces
    inner = parts.values() if isinstance(parts, dict) else parts
    return [member for part in inner for member in _members(part)]


def _raw_size(head: Head) -> int:
    """The length of a raw action of a part."""
    if isinstance(head, CategoricalHead):
        return 1
    return int(np.prod(head.shape))  # type: ignore[attr-defined]
