"""A channel beside the observation that says nothing which is not in it already.

Lu et al. (2023), "Adversarial cheap talk", let an adversary append messages to what a
learner (the victim) observes, and nothing else: dynamics and rewards are untouched,
and a message is a deterministic function of the current observation, so it holds no
information that the victim lacks. Still, it steers how the victim learns. The weights
of that function are parameters of the environment, so they can be evolved while
victims learn: `purerl.evolve(config, "env_params.channel")`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from purerl.envs.cartpole import CartPole
from purerl.envs.options import whole_number
from purerl.envs.spaces import Box
from purerl.envs.wrappers.base import ObservationWrapper, numpy_of, vector_of

# Lu et al. (2023) let messages reach from -2 pi to 2 pi.
CHANNEL_SCALE = 2 * math.pi


@struct.dataclass
class Channel:
    """The weights of a message, a small network; `I` inputs, `H` hidden, `C` outputs.

    Attributes:
        weight_in: `[I, H]` weights from the inputs to the hidden units.
        bias_in: `[H]` biases of the hidden units.
        weight_out: `[H, C]` weights from the hidden units to the outputs.
        bias_out: `[C]` biases of the outputs.
    """

    weight_in: Any
    bias_in: Any
    weight_out: Any
    bias_out: Any

    @classmethod
    def silent(cls, obs_size: int, size: int, hidden_size: int) -> Channel:
        """Return all zeros: every message is zero, whatever is observed."""
        shapes = ((obs_size, hidden_size), hidden_size, (hidden_size, size), size)
        return cls(*(np.zeros(shape, np.float32) for shape in shapes))

    @classmethod
    def random(
        cls, key: jax.Array, obs_size: int, size: int, hidden_size: int
    ) -> Channel:
        """Draw normal weights of variance one over the inputs; biases are zero.

        Args:
            key: Random key, consumed.
        """
        key_in, key_out = jax.random.split(key)
        weight_in = jax.random.normal(key_in, (obs_size, hidden_size))
        weight_out = jax.random.normal(key_out, (hidden_size, size))
        return cls(
            weight_in / math.sqrt(obs_size),
            jnp.zeros(hidden_size),
            weight_out / math.sqrt(hidden_size),
            jnp.zeros(size),
        )

    def message(self, obs: jax.Array) -> jax.Array:
        """Return what the channel says of an observation `[I]`, `[C]` in -1 .. 1.

        m(s) = tanh(tanh(s W_in + b_in) W_out + b_out)
        """
        hidden = jnp.tanh(obs @ jnp.asarray(self.weight_in) + self.bias_in)
        return jnp.tanh(hidden @ jnp.asarray(self.weight_out) + self.bias_out)


@dataclasses.dataclass(unsafe_hash=True)
class CheapTalk(ObservationWrapper):
    """An environment whose observations carry messages of a cheap-talk channel.

    * observation: that of the environment, then `size` numbers
      `channel_scale * channel.message(observation)`; the last observation of an episode
      carries the message about itself.
    * action, reward, terminated, truncated, states: the environment's, bit for bit.
    * parameters: the environment's, and `channel` (silent by default) and
      `channel_scale`.

    After Lu et al. (2023), "Adversarial cheap talk". Their channels have two outputs.

    Example:
        env = CheapTalk(CartPole())
        params = env.default_params.replace(channel=env.random_channel(key))
        obs, state = env.reset(jax.random.key(0), params)  # obs: [4 + 2]

    Attributes:
        env: The environment; its observations are vectors of floats.
        size: Number of numbers in a message.
        hidden_size: Units of the channel's hidden layer.
    """

    size: int = 2
    hidden_size: int = 16

    def check(self) -> None:
        """Check the sizes, and that observations are vectors.

        Raises:
            ValueError: a size that is not positive, or other observations.
        """
        self.size = whole_number("size", self.size, least=1)
        self.hidden_size = whole_number("hidden_size", self.hidden_size, least=1)

    @property
    def name(self) -> str:
        """`cheap-talk/` and the environment's name."""
        return f"cheap-talk/{self.env.name}"

    @property
    def obs_size(self) -> int:
        """Numbers in an observation without its message."""
        return vector_of(self.env, self.env.default_params, "CheapTalk").shape[0]

    def numbers(self) -> dict[str, Any]:
        """Return `channel`, which is silent, and `channel_scale`."""
        silent = self.silent_channel()
        return {"channel": silent, "channel_scale": CHANNEL_SCALE}

    def silent_channel(self) -> Channel:
        """Return weights of a channel that always says zero: no channel at all."""
        return Channel.silent(self.obs_size, self.size, self.hidden_size)

    def random_channel(self, key: jax.Array) -> Channel:
        """Draw weights that fit; the key is consumed."""
        return Channel.random(key, self.obs_size, self.size, self.hidden_size)

    def observe(self, obs: Any, state: Any, params: Any) -> jax.Array:
        """Return the observation with a message about it."""
        obs = obs.astype(jnp.float32)
        message = params.channel_scale * params.channel.message(obs)
        return jnp.concatenate([obs, message.astype(jnp.float32)])

    def observation_space(self, params: Any = None) -> Box:
        """Return the environment's, and `+- channel_scale` for the message."""
        params = self._params(params)
        inner = vector_of(self.env, params, "CheapTalk")

        xp = numpy_of(inner.low, inner.high, params.channel_scale)
        reach = xp.full(self.size, abs(params.channel_scale), np.float32)
        low = xp.concatenate([inner.low, -reach])
        return Box(low, xp.concatenate([inner.high, reach]), low.shape)


def make_with_cartpole(size: int = 2, hidden_size: int = 16) -> CheapTalk:
    """Return `cheap-talk/CartPole-v1`."""
    return CheapTalk(CartPole(), size, hidden_size)
