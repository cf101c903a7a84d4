"""256 seeds of four step sizes in one vmapped program, and what they say together."""

import jax
import jax.numpy as jnp

import purerl
from purerl.report.statistics import estimate


def main(seeds=256, steps=50_000):
    """Train, print a row for each step size, and return the last returns `[4, S]`."""
    config = purerl.PPOConfig(total_timesteps=steps, num_evaluations=0)
    rates = jnp.array([1e-4, 3e-4, 1e-3, 1e-2])
    each_seed = jax.vmap(purerl.make_train(config), in_axes=(0, None))
    each_rate = jax.jit(jax.vmap(each_seed, in_axes=(None, 0)))
    keys = jax.random.split(jax.random.key(0), seeds)
    metrics = each_rate(keys, {"learning_rate": rates}).metrics
    returns = metrics["episode_return"][..., -1]  # of the last episodes that ended
    for rate, scores in zip(rates, returns, strict=True):
        iqm = estimate(scores)
        print(f"step size {rate:.0e}: IQM {iqm.value:.1f} ({iqm.text()})")
    return returns


if __name__ == "__main__":
    main()
