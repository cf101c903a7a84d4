"""Stepping many environments: auto-reset, episode statistics, reset pools.

Axes: `T` steps, `B` environments of one agent on this device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.collectives import env_keys, psum
from purerl.environment import Environment, step_without_reset
from purerl.types import Array, Metrics, PyTree, Transition

# Steps of the environment loop per iteration of the compiled loop: fewer, larger
# kernels on CPU for the price of compile time.
ROLLOUT_UNROLL = 1


class EnvCarry(NamedTuple):
    """The environments between two steps.

    Attributes:
        state: environment states, leaves `[B, ...]`.
        obs: `[B, ...]` what the policy sees next (after any reset).
        episode_return: `[B]` sum of rewards of the running episode.
        episode_length: `[B]` int32 steps of the running episode.
    """

    state: PyTree
    obs: Array
    episode_return: Array
    episode_length: Array


class StepOutput(NamedTuple):
    """What one step of all environments gives, `[B, ...]` each."""

    reward: Array
    next_obs: Array
    terminated: Array
    truncated: Array
    episode_return: Array
    episode_length: Array


class Episodes(NamedTuple):
    """Where episodes ended in a rollout, and what they had earned, `[T, B]` each."""

    done: Array
    returns: Array
    lengths: Array


class Stepper(NamedTuple):
    """An environment with its numbers and the way its episodes restart."""

    env: Environment
    params: PyTree
    reset_scheme: str
    reset_pool_size: int
    axis_name: str | None


def init_envs(stepper: Stepper, key: Array, num_envs: int) -> EnvCarry:
    """Start `num_envs` episodes; the key is consumed."""
    keys = env_keys(key, (num_envs,), stepper.axis_name)
    obs, state = jax.vmap(stepper.env.reset, (0, None))(keys, stepper.params)
    return EnvCarry(state, obs, jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32))


def draw_pool(stepper: Stepper, key: Array) -> PyTree | None:
    """The start states that episodes of one rollout share, or None when fresh.

    Every rollout draws a new pool, so over a run starts come from the environment's
    own distribution; within a rollout two episodes may share a start.
    """
    if stepper.reset_scheme == "fresh":
        return None
    keys = jax.random.split(key, stepper.reset_pool_size)
    return jax.vmap(stepper.env.reset_env, (0, None))(keys, stepper.params)


def step_envs(
    stepper: Stepper, carry: EnvCarry, action: Array, keys: Array, pool: PyTree | None
) -> tuple[EnvCarry, StepOutput]:
    """Step every environment once, and restart those whose episode ended.

    Args:
        stepper: environment, numbers, reset scheme.
        carry: environments before the step.
        action: `[B, ...]` actions of the environment.
        keys: `[B]`, consumed.
        pool: from `draw_pool`.
    """
    if pool is None:
        step = jax.vmap(stepper.env.step, (0, 0, 0, None))
        obs, state, reward, terminated, truncated, info = step(
            keys, carry.state, action, stepper.params
        )
        next_obs = info["final_observation"]
    else:
        step = jax.vmap(_step_from_pool, (None, None, 0, 0, 0, None))
        obs, state, reward, terminated, truncated, next_obs = step(
            stepper.env, stepper.params, keys, carry.state, action, pool
        )
    truncated = truncated & ~terminated  # A foreign environment may set both.
    done = terminated | truncated
    reward = reward.astype(jnp.float32)
    episode_return = carry.episode_return + reward
    episode_length = carry.episode_length + 1
    output = StepOutput(
        reward, next_obs, terminated, truncated, episode_return, episode_length
    )
    carry = EnvCarry(
        state,
        obs,
        jnp.where(done, 0.0, episode_return),
        jnp.where(done, 0, episode_length),
    )
    return carry, output


def _step_from_pool(
    env: Environment,
    params: PyTree,
    key: Array,
    state: PyTree,
    action: Array,
    pool: Any,
) -> tuple[Any, ...]:
    """One environment's step, restarting from a random member of the pool."""
    key_step, key_pool = jax.random.split(key)
    next_obs, next_state, reward, terminated, truncated = step_without_reset(
        env, params, key_step, state, action
    )
    done = terminated | truncated
    size = jax.tree.leaves(pool)[0].shape[0]
    index = jax.random.randint(key_pool, (), 0, size)
    obs, state = jax.tree.map(
        lambda start, running: jnp.where(done, start[index], running),
        pool,
        (next_obs, next_state),
    )
    return obs, state, reward, terminated, truncated, next_obs


def collect(
    stepper: Stepper,
    carry: EnvCarry,
    act: Callable[[Array, Array], tuple[Array, Array, Array]],
    prepare: Callable[[Array], Array],
    key: Array,
    num_steps: int,
) -> tuple[EnvCarry, Transition, Episodes]:
    """Run the policy for `T = num_steps` steps in every environment.

    Args:
        stepper: environment, numbers, reset scheme.
        carry: environments before the rollout.
        act: `(prepared obs [B, ...], keys [B]) -> (raw action, log_prob, env action)`.
        prepare: what the policy sees of an observation (cast, normalised).
        key: consumed.
        num_steps: T.

    Returns:
        Environments after the rollout, transitions `[T, B, ...]` with observations as
        the environment gave them, and where episodes ended (see `episode_metrics`).
    """
    key_act, key_env, key_pool = jax.random.split(key, 3)
    pool = draw_pool(stepper, key_pool)
    shape = (num_steps, carry.episode_return.shape[0])
    # All keys in one wide kernel instead of one narrow one per step.
    keys_act = env_keys(key_act, shape, stepper.axis_name)
    keys_env = env_keys(key_env, shape, stepper.axis_name)

    def step(
        carry: EnvCarry, keys: tuple[Array, Array]
    ) -> tuple[EnvCarry, tuple[Transition, Array, Array]]:
        key_act_t, key_env_t = keys
        raw, log_prob, action = act(prepare(carry.obs), key_act_t)
        after, out = step_envs(stepper, carry, action, key_env_t, pool)
        transition = Transition(
            obs=carry.obs,
            action=raw,
            log_prob=log_prob,
            reward=out.reward,
            next_obs=out.next_obs,
            terminated=out.terminated,
            truncated=out.truncated,
        )
        return after, (transition, out.episode_return, out.episode_length)

    carry, (batch, returns, lengths) = jax.lax.scan(
        step, carry, (keys_act, keys_env), unroll=ROLLOUT_UNROLL
    )
    done = batch.terminated | batch.truncated
    return carry, batch, Episodes(done, returns, lengths)


def episode_metrics(episodes: Episodes, axis_name: str | None) -> Metrics:
    """Means over the episodes that ended; NaN where none did.

    Args:
        episodes: of a rollout.
        axis_name: mapped axis over which environments are spread, if any.
    """
    done, returns, lengths = episodes
    count, return_sum, length_sum = psum(
        (
            # A float holds the count exactly up to 2^24 episodes per update.
            done.sum(dtype=jnp.float32),
            jnp.where(done, returns, 0.0).sum(),
            jnp.where(done, lengths, 0).sum().astype(jnp.float32),
        ),
        axis_name,
    )
    some = jnp.maximum(count, 1.0)
    return {
        "episodes": count.astype(jnp.int32),
        "episode_return": jnp.where(count > 0, return_sum / some, jnp.nan),
        "episode_length": jnp.where(count > 0, length_sum / some, jnp.nan),
    }
