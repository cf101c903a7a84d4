"""Networks as a user writes them, and an environment with pictures for them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from purerl import envs
from purerl.envs.cartpole import CartPole
from tests.helpers import Continuous

PICTURES = "test/picture-cartpole"
CONTINUOUS_PICTURES = "test/continuous-picture-cartpole"
SIDE = 36  # the smallest that `nature` takes


@dataclasses.dataclass(unsafe_hash=True)
class PictureCartPole(CartPole):
    """CartPole in pictures of bytes: a bright column where the cart is."""

    def observation_space(self, params=None):
        del params
        return envs.spaces.Box(0, 255, (SIDE, SIDE, 2), np.uint8)

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return _picture(obs), state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return (_picture(obs), *rest)


def _picture(obs):
    columns = jnp.linspace(-2.4, 2.4, SIDE)
    row = jnp.exp(-jnp.square(columns[:, None] - obs[None, :3:2]))
    picture = jnp.broadcast_to(row, (SIDE, SIDE, 2))
    return (255.0 * picture).astype(jnp.uint8)


@dataclasses.dataclass(unsafe_hash=True)
class ContinuousPictureCartPole(Continuous, PictureCartPole):
    """The same with a number as its action."""


envs.register(PICTURES, PictureCartPole)
envs.register(CONTINUOUS_PICTURES, ContinuousPictureCartPole)


class Torso(nn.Module):
    """One layer, which is written for one batch axis."""

    features: int = 6
    activation: Callable[[Any], Any] = nn.relu

    @nn.compact
    def __call__(self, obs):
        return self.activation(nn.Dense(self.features)(obs.reshape(obs.shape[0], -1)))


class Policy(nn.Module):
    """`num` numbers, from a layer that is a field."""

    num: int = 2
    layer: nn.Module = nn.Dense(3)

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(self.num)(nn.tanh(self.layer(obs)))


class Pair(nn.Module):
    """A mean, and a log standard deviation of 5, more than a policy may have."""

    num: int = 1

    @nn.compact
    def __call__(self, obs):
        mean = nn.Dense(self.num)(obs)
        return mean, jnp.full_like(mean, 5.0)


class Value(nn.Module):
    """One number for each observation, and for the action beside it."""

    layer: nn.Module = nn.Dense(3)

    @nn.compact
    def __call__(self, *inputs):
        x = jnp.concatenate([x.reshape(x.shape[0], -1) for x in inputs], -1)
        return nn.Dense(1)(nn.tanh(self.layer(x)))[:, 0]


class Column(nn.Module):
    """As a critic is often written: `[N, 1]`."""

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(1)(obs)


class Normalised(nn.Module):
    """With statistics that change while it is used."""

    @nn.compact
    def __call__(self, obs):
        return nn.BatchNorm(use_running_average=False)(obs)


class Holder(nn.Module):
    """With a field that takes anything."""

    value: Any = None

    @nn.compact
    def __call__(self, obs):
        return nn.Dense(2)(obs)


def local():
    """A module whose class nobody else can import."""

    class Local(Torso):
        pass

    return Local()


class Leaky(nn.Module):
    """A memory: half of what it was, and what is new."""

    features: int = 4
    fault: str = ""

    def initial(self, shape):
        if self.fault == "ones":
            return jnp.ones((*shape, self.features))
        return jnp.zeros((*shape, self.features))

    @nn.compact
    def __call__(self, carry, inputs, resets):
        entering = nn.Dense(self.features, use_bias=False)(inputs)

        def step(total, xs):
            new, reset = xs
            total = jnp.where(reset[:, None], 0.0, 0.5 * total) + new
            return total, total

        carry, outputs = jax.lax.scan(step, carry, (entering, resets))
        if self.fault == "carry":
            carry = carry[:, None]
        return carry, outputs[..., :1] if self.fault == "outputs" else outputs


class Nothing(nn.Module):
    """A memory that remembers nothing: what it sees is what it returns."""

    features: int = 8

    def initial(self, shape):
        del shape
        return ()

    def __call__(self, carry, inputs, resets):
        del resets
        return carry, inputs
