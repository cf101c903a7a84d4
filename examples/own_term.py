"""Add terms of your own to PPO's loss: one of them has a network of its own.

    python examples/own_term.py --updates 20

`NearPolicies` is a penalty on the distance between the policies of neighbouring states,
trained with four coefficients in one call; with 0 the agent is PPO's, bit for bit.
`NextObservation` is an auxiliary task: a head on the actor's torso that predicts what
comes next, so that the torso learns of the environment too.
"""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

import purerl


@struct.dataclass
class NearPolicies:
    """`sum_a |pi(a|s') - pi(a|s)|`, twice the total variation."""

    coef: float = 0.1

    def __call__(self, params, batch, apply, key):
        """A number per sample, `[N]`."""
        now = jax.nn.softmax(apply(params, "actor", batch.obs))
        then = jax.nn.softmax(apply(params, "actor", batch.next_obs))
        return jnp.abs(then - now).sum(-1)


@struct.dataclass
class NextObservation:
    """The squared error of a linear prediction of the next observation."""

    coef: float = 0.5

    def init(self, params, batch, apply, key):
        """Parameters of the head, from its own key."""
        return self.head(batch).init(key, self.features(params, batch, apply))

    def __call__(self, params, batch, apply, key):
        """A number per sample, `[N]`."""
        features = self.features(params, batch, apply)
        found = self.head(batch).apply(params["head"], features)
        return jnp.square(found - batch.next_obs).mean(-1)

    def head(self, batch):
        """A layer from what the head sees to an observation."""
        return nn.Dense(batch.next_obs.shape[-1])

    def features(self, params, batch, apply):
        """What the torso makes of observations, beside the actions."""
        seen = apply(params, "actor.torso", batch.obs)
        return jnp.concatenate([seen, jax.nn.one_hot(batch.action, 2)], -1)


def main(updates: int):
    """Train with both terms; return the metrics by coefficient, and of PPO alone."""
    config = purerl.PPOConfig(total_timesteps=updates * 512, num_evaluations=0)
    coefs, key = jnp.array([0.0, 0.1, 1.0, 10.0]), jax.random.key(0)

    near = purerl.make_train(config.replace(extra_loss=NearPolicies()))
    swept = jax.jit(jax.vmap(near, (None, 0)))(key, {"extra_loss.coef": coefs}).metrics
    for coef, distance in zip(coefs, swept["near_policies"].mean(1), strict=True):
        print(f"coefficient {coef:4.1f}: distance {distance:.4f}")

    both = config.replace(extra_loss=(NearPolicies(0.0), NextObservation()))
    error = jax.jit(purerl.make_train(both))(key).metrics["next_observation"]
    print(f"error of the next observation {error[0]:.3f}, at last {error[-1]:.3f}")
    return swept, error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train with terms of your own.")
    parser.add_argument("--updates", type=int, default=20)
    main(**vars(parser.parse_args()))
