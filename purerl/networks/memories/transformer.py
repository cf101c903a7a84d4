"""A gated transformer as a memory: GTrXL (Parisotto et al. 2020, arXiv:1910.06764)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl.networks.layers import Dense, along_last, layer_norm
from purerl.networks.memories.linear import check_sizes
from purerl.types import Array


class Cache(NamedTuple):
    """The memory that one block has of the last steps, the oldest first.

    Attributes:
        keys: `[..., window, heads, D]` keys; zero in the places of steps that are not
            there.
        values: `[..., window, heads, D]` values; zero in the places of steps that are
            not there.
        filled: `[...]` int32, how many of the last places hold a step of this episode.
    """

    keys: Array
    values: Array
    filled: Array


class Transformer(nn.Module):
    """Blocks of attention over the last steps of an episode, each with two gates.

    A dense layer brings the inputs to `features` numbers. With the identity map
    reordered as in the paper (figure 1, GTrXL), a block is

        y = gate(x, relu(attention(LayerNorm(x))))
        z = gate(y, relu(mlp(LayerNorm(y))))

    where `gate` is a GRU's (see `Gate`). In every block a step attends to itself and to
    the `window` steps before it, as far as they belong to its episode. So an output
    depends on the last `num_blocks * window + 1` inputs, and on nothing before them.
    Positions are distances in steps, encoded as in Transformer-XL (Dai et al. 2019).

    The carry holds the keys and values of the last `window` steps. (The paper's memory
    holds the blocks' inputs, of which keys and values are computed again in every
    step.) No gradient reaches what lies before a sequence.

    Attributes:
        features: Number of outputs, a multiple of `num_heads`.
        window: Steps before the present one that a block attends to.
        num_blocks: Number of blocks.
        num_heads: Heads of the attention, of `features / num_heads` units each.
        mlp_size: Units of the hidden layer in a block; None takes four times
            `features`.
        gate_bias: Bias with which the gates begin: the larger it is, the more of a
            block's input stays at first; 2 in the paper.
    """

    features: int
    window: int = 32
    num_blocks: int = 1
    num_heads: int = 4
    mlp_size: int | None = None
    gate_bias: float = 2.0

    def __post_init__(self) -> None:
        sizes = ("features", "window", "num_blocks", "num_heads", "mlp_size")
        check_sizes(self, sizes)
        if self.features % self.num_heads:
            raise ValueError(
                f"features must be divisible by num_heads ({self.num_heads}), got "
                f"{self.features}"
            )
        super().__post_init__()

    def initial(self, shape: tuple[int, ...]) -> tuple[Cache, ...]:
        """Return the caches of `[*shape]` episodes about to begin: zeros."""
        units = self.features // self.num_heads
        zeros = jnp.zeros((*shape, self.window, self.num_heads, units))
        cache = Cache(zeros, zeros, jnp.zeros(shape, jnp.int32))
        return (cache,) * self.num_blocks

    @nn.compact
    def __call__(
        self, carry: Sequence[Cache], inputs: Array, resets: Array
    ) -> tuple[tuple[Cache, ...], Array]:
        """The caches after the last step, and outputs `[T, B, features]`.

        Args:
            carry: Caches `[B, ...]` of the blocks before the first step.
            inputs: `[T, B, F]` inputs of the steps.
            resets: `[T, B]` bool, the step begins an episode.
        """
        width, hidden_size = self.features, self.mlp_size or 4 * self.features
        x, after = jnp.swapaxes(Dense(width)(inputs), 0, 1), []
        for cache in carry:
            attention = Attention(self.window, self.num_heads)
            attended, cache = attention(layer_norm()(x), cache, resets.T)
            x = Gate(self.gate_bias)(x, nn.relu(attended))
            hidden = nn.relu(Dense(hidden_size)(layer_norm()(x)))
            x = Gate(self.gate_bias)(x, nn.relu(Dense(width)(hidden)))
            after.append(cache)
        return tuple(after), jnp.swapaxes(x, 0, 1)


class Gate(nn.Module):
    """A gated recurrent unit in the place of a residual connection.

    Of what goes around a layer, `x`, and what comes out of it, `y` (section 3.2 of the
    paper):

        r = sigmoid(W_r y + U_r x)
        z = sigmoid(W_z y + U_z x - bias)
        h = tanh(W_g y + U_g (r * x))
        output = (1 - z) * x + z * h

    Attributes:
        bias: Initial value of the bias.
    """

    bias: float

    @nn.compact
    def __call__(self, x: Array, y: Array) -> Array:
        """Outputs `[..., D]` of two inputs `[..., D]`."""
        width = x.shape[-1]
        reset_y, update_y, new_y = jnp.split(Dense(3 * width, name="after")(y), 3, -1)
        around = nn.Dense(2 * width, use_bias=False, name="around")(x)
        reset_x, update_x = jnp.split(around, 2, -1)
        bias = self.param("bias", nn.initializers.constant(self.bias), (width,))
        reset = nn.sigmoid(reset_y + reset_x)
        update = nn.sigmoid(update_y + update_x - along_last(bias, x.ndim))
        kept = nn.Dense(width, use_bias=False, name="kept")(reset * x)
        return (1.0 - update) * x + update * nn.tanh(new_y + kept)


class Attention(nn.Module):
    """Attention to the last steps, with distances as positions.

    The score of step `j` at step `t` is `((q_t + u) k_j + (q_t + v) r_{t-j}) / sqrt(D)`
    (Dai et al. 2019, section 3.3), with `r` a linear map of sines of the distance.

    Attributes:
        window: W, steps before the present one.
        num_heads: Number H of attention heads.
    """

    window: int
    num_heads: int

    @nn.compact
    def __call__(self, x: Array, cache: Cache, resets: Array) -> tuple[Array, Cache]:
        """Outputs `[B, T, features]`, and the cache after the last step.

        Args:
            x: `[B, T, features]` inputs of the steps.
            cache: Cache `[B, ...]` before the first step.
            resets: `[B, T]` bool, the step begins an episode.
        """
        width = x.shape[-1]
        heads = (self.num_heads, width // self.num_heads)
        query, new_keys, new_values = (
            part.reshape(*part.shape[:-1], *heads)
            for part in jnp.split(Dense(3 * width, name="inputs")(x), 3, -1)
        )
        keys = jnp.concatenate([cache.keys, new_keys], 1)
        values = jnp.concatenate([cache.values, new_values], 1)
        positions = nn.Dense(width, use_bias=False, name="positions")(
            sines(self.window, width)
        ).reshape(-1, *heads)
        zeros = nn.initializers.zeros
        content = query + self.param("content_bias", zeros, heads)[None, None]
        place = query + self.param("position_bias", zeros, heads)[None, None]
        scores = jnp.einsum("bthd,bjhd->bhtj", content, keys)
        scores += skewed(jnp.einsum("bthd,whd->bhtw", place, positions))
        sees, is_same = self._sees(cache.filled, resets)
        scores = jnp.where(sees[:, None], scores / math.sqrt(heads[1]), -1e9)
        weights = jax.nn.softmax(scores, -1)
        seen = jnp.einsum("bhtj,bjhd->bthd", weights, values).reshape(x.shape)
        return Dense(width, name="outputs")(seen), self._after(keys, values, is_same)

    def _sees(self, filled: Array, resets: Array) -> tuple[Array, Array]:
        """Return the places `[B, T, W + T]` that a step sees, and the last episode's.

        Args:
            filled: `[B]`, how many places of the cache hold a step.
            resets: `[B, T]` bool, the step begins an episode.
        """
        length = resets.shape[1]
        place = np.arange(self.window + length)
        distance = self.window + np.arange(length)[:, None] - place
        is_near = (distance >= 0) & (distance <= self.window)
        is_there = place[None] >= self.window - filled[:, None]
        # The number of the episode, the cache's being 0.
        episode = jnp.cumsum(resets.astype(jnp.int32), axis=1)
        before = jnp.zeros((resets.shape[0], self.window), jnp.int32)
        episodes = jnp.concatenate([before, episode], 1)
        is_same = (episodes[:, None] == episode[:, :, None]) & is_there[:, None]
        return jnp.asarray(is_near)[None] & is_same, is_same[:, -1]

    def _after(self, keys: Array, values: Array, is_same: Array) -> Cache:
        """The cache of the last W of `[B, W + T]` places; others' places are zero."""
        kept = is_same[:, -self.window :]

        def last(x: Array) -> Array:
            return jnp.where(kept[:, :, None, None], x[:, -self.window :], 0.0)

        return Cache(last(keys), last(values), kept.sum(1, dtype=jnp.int32))


def sines(window: int, width: int) -> np.ndarray:
    """Return sines and cosines of the distances W, W - 1, ..., 0, `[W + 1, width]`.

    Args:
        window: Number W of steps that the window holds.
        width: Number of sines and cosines together.
    """
    half = (width + 1) // 2
    frequencies = 10_000.0 ** (-np.arange(half) / half)
    angles = np.arange(window, -1, -1)[:, None] * frequencies
    found = np.concatenate([np.sin(angles), np.cos(angles)], 1)[:, :width]
    return found.astype(np.float32)


def skewed(scores: Array) -> Array:
    """Move the scores `[..., T, W + 1]` of distances to places, `[..., T, W + T]`.

    Those of step `t` stand at the places `t` to `t + W`; what stands elsewhere means
    nothing. Rows of one more than `W + T` numbers, read as rows of `W + T`, move by one
    place per row: reshapes do what would else be a gather.

    Args:
        scores: The last axis has the distances W, W - 1, ..., 0.
    """
    *lead, length, places = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * (len(lead) + 1) + [(0, length)])
    flat = padded.reshape(*lead, -1)[..., : length * (places - 1 + length)]
    return flat.reshape(*lead, length, places - 1 + length)
