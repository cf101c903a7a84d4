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
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.core import Tracer

from purerl.envs.base import Environment
from purerl.envs.cartpole import CartPole
from purerl.envs.spaces import Box
from purerl.envs.wrappers.base import ObservationWrapper

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
        """Return all zeros: every message is zero, whatever is observed.

        Args:
            obs_size: Number `I` of inputs: the size of an observation.
            size: Number `C` of outputs: the length of a message.
            hidden_size: Number `H` of hidden units.
        """
        shapes = ((obs_size, hidden_size), hidden_size, (hidden_size, size), size)
        return cls(*(np.zeros(shape, np.float32) for shape in shapes))

    @classmethod
    def random(
        cls, key: jax.Array, obs_size: int, size: int, hidden_size: int
    ) -> Channel:
        """Draw normal weights of variance one over the inputs; biases are zero.

        Args:
            key: Random key, consumed.
            obs_size: Number `I` of inputs: the size of an observation.
            size: Number `C` of outputs: the length of a message.
            hidden_size: Number `H` of hidden units.
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


@functools.cache
def _params_class(inner: Any) -> Any:
    """The class of an environment's parameters with the channel's among them.

    A subclass, so that the environment inside takes them as its own, and a name such as
    `env_params.length` means the same with and without a channel.
    """

    @struct.dataclass
    class CheapTalkParams(inner):
        """The environment's own numbers, and those of the channel.

        Attributes:
            channel: Weights of the message.
            channel_scale: Largest size of a message's numbers.
        """

        channel: Any = None
        channel_scale: float | jax.Array = CHANNEL_SCALE

    return CheapTalkParams


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
        """Check environment and sizes.

        Raises:
            ValueError: a size that is not positive, or an environment that cannot
                carry a channel.
        """
        for name in ("size", "hidden_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"{name} must be a positive whole number, got {value!r}: a silent "
                    "channel is one whose weights are zero."
                )
        _check_can_carry(self.env)

    @property
    def name(self) -> str:
        """`cheap-talk/` and the environment's name."""
        return f"cheap-talk/{self.env.name}"

    @property
    def obs_size(self) -> int:
        """Numbers in an observation without its message."""
        return self.env.observation_space(self.env.default_params).shape[0]

    @property
    def default_params(self) -> Any:
        """The environment's, with a silent channel."""
        inner = self.env.default_params
        fields = {f.name: getattr(inner, f.name) for f in dataclasses.fields(inner)}
        return _params_class(type(inner))(
            **fields, channel=self.silent_channel(), channel_scale=CHANNEL_SCALE
        )

    def silent_channel(self) -> Channel:
        """Return weights of a channel that always says zero: no channel at all."""
        return Channel.silent(self.obs_size, self.size, self.hidden_size)

    def random_channel(self, key: jax.Array) -> Channel:
        """Draw weights that fit; the key is consumed."""
        return Channel.random(key, self.obs_size, self.size, self.hidden_size)

    def observe(self, obs: Any, state: Any, params: Any) -> jax.Array:
        """Return the observation with a message about it.

        Args:
            obs: Observation of the environment, a vector.
            state: State that it belongs to.
            params: Numbers of the environment.
        """
        del state
        return _with_message(obs, params)

    def observation_space(self, params: Any = None) -> Box:
        """Return the environment's, and `+- channel_scale` for the message."""
        params = self._params(params)
        inner = self.env.observation_space(params)
        assert isinstance(inner, Box)  # Checked when the channel was made.
        reach = abs(params.channel_scale)
        return Box(
            _extended(inner.low, -reach, self.size),
            _extended(inner.high, reach, self.size),
            (inner.shape[0] + self.size,),
        )


def make_with_cartpole(size: int = 2, hidden_size: int = 16) -> CheapTalk:
    """Return `cheap-talk/CartPole-v1`."""
    return CheapTalk(CartPole(), size, hidden_size)


def _with_message(obs: jax.Array, params: Any) -> jax.Array:
    obs = obs.astype(jnp.float32)
    message = params.channel_scale * params.channel.message(obs)
    return jnp.concatenate([obs, message.astype(jnp.float32)])


def _extended(bound: Any, value: Any, size: int) -> Any:
    """A bound `[I]` followed by `size` times a value; traced only where one is."""
    xp: Any = jnp if isinstance(bound, Tracer) or isinstance(value, Tracer) else np
    tail = xp.broadcast_to(xp.asarray(value, np.float32), (size,))
    return xp.concatenate([xp.asarray(bound, np.float32), tail])


def _check_can_carry(env: Environment) -> None:
    """Refuse environments in whose observations or parameters a channel has no place.

    Raises:
        ValueError: naming the environment and what it lacks.
    """
    params = env.default_params
    if not dataclasses.is_dataclass(params):
        raise ValueError(
            f"CheapTalk puts its channel among the environment's parameters, but those "
            f"of {env.name} are a {type(params).__name__}: make them a "
            "flax.struct.dataclass."
        )
    if hasattr(params, "channel"):
        raise ValueError(
            f"{env.name} has a parameter `channel` already: a second CheapTalk around "
            "it would take its place. Make one channel larger (size=...) instead."
        )
    space = env.observation_space(params)
    is_floats = np.issubdtype(space.dtype, np.floating)
    if not (isinstance(space, Box) and len(space.shape) == 1 and is_floats):
        raise ValueError(
            f"CheapTalk appends numbers to vectors of floats, but {env.name} observes "
            f"{space}: flatten its observations, or take another environment."
        )
