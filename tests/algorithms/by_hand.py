"""Sequences in plain loops: a memory that leaks, and targets of several steps."""

import jax
import jax.numpy as jnp
import numpy as np


def entering(network, params, obs):
    """What observations `[..., O]` add to a memory that is a `nets.Leaky`."""
    features = network.apply(params, obs, method=lambda module, obs: module.torso(obs))
    return features @ params["params"]["memory"]["Dense_0"]["kernel"]


def walk(network, params, rows, memory, before=None):
    """A `nets.Leaky` at every step of sequences, and after it, `[L, R, H]` each.

    Args:
        network: The memory with its torso.
        params: Its parameters.
        rows: Sequences with a burn-in.
        memory: `[R, H]` before the burn-in.
        before: Parameters of the burn-in; `params` if None.
    """

    def forward(params, memory, obs, first):
        kept = jnp.where(first[:, None], 0.0, 0.5 * memory)
        return kept + entering(network, params, obs)

    burn_in, steps = rows.burn_in, rows.batch
    before = params if before is None else before
    for t in range(burn_in.first.shape[1]):
        memory = forward(before, memory, burn_in.obs[:, t], burn_in.first[:, t])
    now, following = [], []
    for t in range(rows.first.shape[1]):
        memory = forward(params, memory, steps.obs[:, t], rows.first[:, t])
        now.append(memory)
        # The memory of this episode sees the observation before any reset.
        after = entering(network, params, steps.next_obs[:, t])
        following.append(0.5 * memory + after)
    return jnp.stack(now), jnp.stack(following)


def windows(steps, n):
    """Number `[L, R]` of the last of the `n` steps that a target sums, or fewer."""
    ended = np.asarray(steps.terminated | steps.truncated).T
    found = np.zeros(ended.shape, int)
    for t, r in np.ndindex(found.shape):
        u = t
        while u - t < n - 1 and u < len(ended) - 1 and not ended[u, r]:
            u += 1
        found[t, r] = u
    return found


def returns(steps, last, value, gamma):
    """Targets `[L, R]` in float64 of windows that end with values `[L, R]`."""
    steps, found = jax.tree.map(np.asarray, steps), np.zeros(last.shape)
    for t, r in np.ndindex(found.shape):
        u = last[t, r]
        rewards = steps.reward[r, t : u + 1].astype(np.float64)
        found[t, r] = rewards @ gamma ** np.arange(u + 1 - t)
        if not steps.terminated[r, u]:
            found[t, r] += gamma ** (u + 1 - t) * value[t, r]
    return found
