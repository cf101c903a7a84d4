"""Terms of the user's own, for tests of `extra_loss`: importable, as users' are."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct


def outputs(params: Any, apply: Any, obs: Any) -> jax.Array:
    """What the network that acts says, `[N, ...]` as rows."""
    found = jax.tree.leaves(apply(params, "actor" if "actor" in params else "q", obs))
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in found], -1)


@struct.dataclass
class Near:
    """The squared distance of the outputs in neighbouring states, with some noise."""

    coef: float = 0.1

    def __call__(self, params, batch, apply, key):
        now = outputs(params, apply, batch.obs)
        then = outputs(params, apply, batch.next_obs)
        noise = 1.0 + 0.1 * jax.random.normal(key, batch.reward.shape)
        return noise * jnp.square(now - then).sum(-1)


@struct.dataclass
class Reward:
    """A head on the outputs that predicts the reward."""

    coef: float = 0.1
    network: nn.Module = struct.field(pytree_node=False, default=nn.Dense(1))

    def init(self, params, batch, apply, key):
        return self.network.init(key, outputs(params, apply, batch.obs))

    def __call__(self, params, batch, apply, key):
        seen = outputs(params, apply, batch.obs)
        return jnp.square(self.network.apply(params["head"], seen)[:, 0] - batch.reward)


@struct.dataclass
class Critic:
    """The squared distance of the critic's values from those of the rollout."""

    coef: float = 0.1

    def __call__(self, params, batch, apply, key):
        found = apply(params, "critic", batch.obs)
        return jnp.square(found.reshape(-1) - batch.own.value)
