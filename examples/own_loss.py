"""Write a policy loss, and train a population of it in one call.

    python examples/own_loss.py --updates 20

A policy loss is a drift: what keeps the new policy near the old one. This one is the
penalty `beta * KL(old, new)`, and the population has one member per weight `beta`.
"""

import argparse

import jax
import jax.numpy as jnp
from flax import struct

import purerl


@struct.dataclass
class KLDrift:
    """`beta * (r - 1 - log r)`, whose mean is `beta` times the divergence.

    Attributes:
        beta: Weight of the divergence; a leaf, so that it can be vmapped and evolved.
    """

    beta: jax.Array | float = 1.0

    def __call__(self, log_ratio: jax.Array, advantage: jax.Array) -> jax.Array:
        """Drift per sample, `[N]`: never negative, 0 where the policy is as before."""
        del advantage
        return self.beta * jax.nn.relu(jnp.expm1(log_ratio) - log_ratio)


def main(updates: int) -> list[float]:
    """Train with three weights, and return how far the policy moved with each."""
    config = purerl.PPOConfig(
        policy_loss=KLDrift(),
        total_timesteps=updates * 512,
        learning_rate=3e-3,
        num_evaluations=0,
    )
    train = jax.jit(jax.vmap(purerl.make_train(config), in_axes=(None, 0)))
    betas = jnp.array([0.1, 1.0, 100.0])
    result = train(jax.random.key(0), {"policy_loss.beta": betas})

    moved = result.metrics["approx_kl_last"].mean(1)
    returns = jnp.nanmean(result.metrics["episode_return"][:, -5:], 1)
    for beta, kl, score in zip(betas, moved, returns, strict=True):
        print(f"beta {beta:5.1f}: KL per update {kl:.4f}, final return {score:.1f}")
    return [float(kl) for kl in moved]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train with a loss of your own.")
    parser.add_argument("--updates", type=int, default=20)
    main(**vars(parser.parse_args()))
