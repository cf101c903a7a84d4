"""Returns and advantages over a rollout, with termination and truncation apart.

Axes: `T` steps, `B` environments; every input and output is `[T, B]`.
"""

import chex
import jax
import jax.numpy as jnp

from purerl.accelerator.kernels import traced_for_cpu
from purerl.types import Array


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
    gae_lambda: Array | float,
) -> Array:
    """Return generalised advantage estimates (Schulman et al. 2016, eq. 16).

        delta_t = r_t + gamma * (1 - terminated_t) * V(s'_t) - V(s_t)
        A_t     = delta_t + gamma * lambda * (1 - done_t) * A_{t+1}

    `s'_t` is the state after step t and before any reset, so a time limit
    bootstraps (Pardo et al. 2018) while `done = terminated | truncated` only cuts
    the trace. The target of the value function is `A + value`.

    Args:
        reward: `[T, B]` rewards.
        value: `[T, B]` values `V(s_t)`.
        next_value: `[T, B]` values `V(s'_t)`.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        gae_lambda: Trace decay; 0 gives the TD error, 1 the Monte-Carlo advantage.

    Returns:
        Advantages `[T, B]`.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape([reward, value, next_value, terminated, truncated])
    bootstrap = jnp.where(terminated, 0.0, next_value)
    delta = reward + gamma * bootstrap - value
    carry_on = gamma * gae_lambda * (1.0 - (terminated | truncated))
    return recur_backwards(delta, carry_on)


def q_lambda(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
    trace_decay: Array | float,
) -> Array:
    """Return the greedy policy's lambda-returns, Peng's Q(lambda) (1996).

        G_t = r_t + gamma * ((1 - lambda) * M_t + lambda * G_{t+1})   within an episode
        G_t = r_t + gamma * M_t              where it is truncated, and at t = T - 1
        G_t = r_t                            where it terminated

    with `M_t = max_a Q(s'_t, a)` and `s'_t` the state after step t and before any
    reset, so a time limit bootstraps. Exploring actions do not cut the trace.

    Args:
        reward: `[T, B]` rewards.
        next_value: `[T, B]` bootstrap values `M_t`.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        trace_decay: Lambda; 0 gives the one-step target of Q-learning, 1 the rewards
            to the episode's or rollout's end and what lies beyond it.

    Returns:
        Targets of `Q(s_t, a_t)`, `[T, B]`.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape([reward, next_value, terminated, truncated])
    # After the last step G is unknown, as it is after an episode's end.
    cut = (terminated | truncated).at[-1].set(True)
    decay = jnp.where(cut, 0.0, trace_decay)
    bootstrap = jnp.where(terminated, 0.0, next_value)
    return recur_backwards(reward + gamma * (1.0 - decay) * bootstrap, gamma * decay)


def rewards_to_go(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
) -> Array:
    """Return discounted rewards to the path's end, with a value where it is cut.

        R_t = r_t + gamma * R_{t+1}          within an episode
        R_t = r_t + gamma * V(s'_t)          where it is truncated, and at t = T - 1
        R_t = r_t                            where it terminated

    `s'_t` is the state after step t and before any reset. It is `A + value` of `gae`
    with lambda 1, without a value in between.

    Args:
        reward: `[T, B]` rewards.
        next_value: `[T, B]` `V(s'_t)`, read only where a path is cut.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).

    Returns:
        Rewards-to-go `[T, B]`.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape([reward, next_value, terminated, truncated])
    is_last = (terminated | truncated).at[-1].set(True)
    beyond = jnp.where(is_last & ~terminated, next_value, 0.0)
    return recur_backwards(reward + gamma * beyond, gamma * (1.0 - is_last))


def n_step(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: Array | float,
    n: int,
) -> Array:
    """Return discounted sums of the next rewards and a value after them (Sutton 1988).

        G_t = r_t + gamma r_{t+1} + ... + gamma^(m-1) r_{t+m-1}
              + gamma^m (1 - terminated_{t+m-1}) V(s'_{t+m-1})

    with `m <= n` steps: they end with the episode, and with the rollout. `s'_t` is the
    state after step t and before any reset, so a time limit bootstraps.

    Args:
        reward: `[T, B]` rewards.
        next_value: `[T, B]` values `V(s'_t)`.
        terminated: `[T, B]` bool, the episode ended in a state of value zero.
        truncated: `[T, B]` bool, the episode was cut (time limit).
        n: The most steps, at least 1.

    Returns:
        Targets `[T, B]`.
    """
    chex.assert_rank(reward, 2)
    chex.assert_equal_shape([reward, next_value, terminated, truncated])
    is_last = (terminated | truncated).at[-1].set(True)
    shortest = reward + gamma * jnp.where(terminated, 0.0, next_value)
    target = shortest
    for _ in range(min(n, reward.shape[0]) - 1):
        # The value that `roll` puts after the last step is not read.
        longer = reward + gamma * jnp.roll(target, -1, axis=0)
        target = jnp.where(is_last, shortest, longer)
    return target


def running_returns(
    start: Array, reward: Array, done: Array, *, gamma: Array | float
) -> tuple[Array, Array]:
    """Return discounted sums of past rewards, as reward normalisation needs them.

        R_t = gamma * R_{t-1} + r_t,   then R_t is carried on as 0 where done_t

    The reward of an episode's last step belongs to that episode, and nothing leaks
    into the next one.

    Args:
        start: `[B]` the sum carried from the previous rollout.
        reward: `[T, B]` rewards.
        done: `[T, B]` bool, the episode ended: `terminated | truncated`.

    Returns:
        `(carry [B], returns [T, B])`.
    """

    def forward(total: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, done_t = step
        total = gamma * total + reward_t
        return jnp.where(done_t, 0.0, total), total

    # On an accelerator 16 steps share kernels; a CPU compiles a small loop as it is.
    unroll = 1 if traced_for_cpu() else 16
    return jax.lax.scan(forward, start, (reward, done), unroll=unroll)


def recur_backwards(offset: Array, factor: Array) -> Array:
    """Return `x_t = offset_t + factor_t * x_{t+1}`, nothing after the last, `[T, ...]`.

    A linear recurrence is associative: an accelerator has log2(T) wide steps instead of
    T narrow ones. A CPU runs the narrow ones as one small loop, which is faster there
    and has fewer kernels to compile.
    """
    if traced_for_cpu():

        def backward(x: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            factor_t, offset_t = step
            x = offset_t + factor_t * x
            return x, x

        start = jnp.zeros_like(offset[0])
        return jax.lax.scan(backward, start, (factor, offset), reverse=True)[1]

    def compose(later: tuple, earlier: tuple) -> tuple:
        # Two affine maps x -> offset + factor * x, one after the other.
        return later[0] * earlier[0], earlier[1] + earlier[0] * later[1]

    _, x = jax.lax.associative_scan(compose, (factor, offset), reverse=True)
    return x
