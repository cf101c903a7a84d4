"""Policies of several choices at once: one factor for each component of an action.

Components are independent given the observation, so that log-probabilities and
entropies are sums over them, and the likeliest action has the likeliest member of each.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.composite import EXCLUDED, exclude
from purerl.types import Array


class MultiCategoricalHead:
    """A softmax for each of `K` components; `outputs` are logits `[..., sum(nvec)]`.

    The logits of a component stand side by side, in the order of the components. Raw
    actions are int `[..., K]`.
    """

    is_discrete = True

    def __init__(self, nvec: Any, dtype: Any = jnp.int32) -> None:
        sizes = np.reshape(np.asarray(nvec), -1)
        self.shape = np.shape(nvec)
        self.num_outputs = int(sizes.sum())
        self.dtype = dtype
        # Components of other sizes become rows of one: `[K, max(nvec)]` of places in
        # the logits, and whether there is such a member.
        members = np.arange(sizes.max())[None]
        starts = np.cumsum(sizes) - sizes
        self.exists = members < sizes[:, None]
        self.places = np.where(self.exists, starts[:, None] + members, 0)

    def _rows(self, outputs: Array) -> Array:
        """Logits `[..., K, max(nvec)]`, of members that do not exist next to none.

        Where a mask has left no member of a component, all of them are as likely.
        """
        rows = outputs[..., self.places]
        exists = jnp.broadcast_to(self.exists, rows.shape)
        is_empty = ~(exists & (rows > EXCLUDED / 2)).any(-1, keepdims=True)
        return exclude(jnp.where(is_empty, 0.0, rows), exists)

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw Gumbel noise `[*shape, sum(nvec)]`; the key is consumed."""
        return jax.random.gumbel(key, (*shape, self.num_outputs))

    def choose(self, outputs: Array, noise: Array) -> Array:
        """Return the member with the largest perturbed logit of each, `[..., K]`."""
        return jnp.argmax(self._rows(outputs) + noise[..., self.places], axis=-1)

    def sample(self, outputs: Array, key: Array) -> Array:
        """Draw actions, int `[..., K]`; the key is consumed."""
        return self.choose(outputs, self.noise(key, outputs.shape[:-1]))

    def mode(self, outputs: Array) -> Array:
        """Return the most probable action."""
        return jnp.argmax(self._rows(outputs), axis=-1)

    def log_prob(self, outputs: Array, raw: Array) -> Array:
        """Return the sum of the components' log-probabilities, `[...]`."""
        log_probs = jax.nn.log_softmax(self._rows(outputs))
        taken = jnp.take_along_axis(log_probs, raw[..., None], -1)[..., 0]
        return taken.sum(-1)

    def entropy(self, outputs: Array) -> Array:
        """Return the sum of the components' Shannon entropies, `[...]`."""
        log_probs = jax.nn.log_softmax(self._rows(outputs))
        return -(jnp.exp(log_probs) * log_probs).sum((-2, -1))

    def to_env(self, raw: Array) -> Array:
        """Return the action in the shape and integer type of the environment."""
        return raw.astype(self.dtype).reshape(*raw.shape[:-1], *self.shape)


class BernoulliHead:
    """A coin for each of `K` components; `outputs` are the logits of a 1, `[..., K]`.

    Raw actions are int `[..., K]`, of zeros and ones.
    """

    is_discrete = True

    def __init__(self, shape: tuple[int, ...], dtype: Any = jnp.int8) -> None:
        self.shape = shape
        self.num_outputs = int(np.prod(shape))
        self.dtype = dtype

    def noise(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draw logistic noise `[*shape, K]`; the key is consumed."""
        return jax.random.logistic(key, (*shape, self.num_outputs))

    def choose(self, outputs: Array, noise: Array) -> Array:
        """Return 1 where the perturbed logit is positive, int32 `[..., K]`."""
        return (outputs + noise > 0).astype(jnp.int32)

    def sample(self, outputs: Array, key: Array) -> Array:
        """Draw actions, int32 `[..., K]`; the key is consumed."""
        return self.choose(outputs, self.noise(key, outputs.shape[:-1]))

    def mode(self, outputs: Array) -> Array:
        """Return the most probable action."""
        return (outputs > 0).astype(jnp.int32)

    def log_prob(self, outputs: Array, raw: Array) -> Array:
        """Return the sum of the components' log-probabilities, `[...]`."""
        return jax.nn.log_sigmoid(jnp.where(raw > 0, outputs, -outputs)).sum(-1)

    def entropy(self, outputs: Array) -> Array:
        """Return the sum of the components' Shannon entropies, `[...]`."""
        # H = -log sigmoid(x) + (1 - sigmoid(x)) x, by log sigmoid(-x) = log sigmoid(x)
        # - x.
        rest = jax.nn.sigmoid(-outputs) * outputs
        return (rest - jax.nn.log_sigmoid(outputs)).sum(-1)

    def to_env(self, raw: Array) -> Array:
        """Return the action in the shape and integer type of the environment."""
        return raw.astype(self.dtype).reshape(*raw.shape[:-1], *self.shape)
