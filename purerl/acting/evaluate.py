"""Evaluation of a policy: inside the compiled program, or on the host."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.acting.rollout import is_finite, step_without_reset
from purerl.config import ConfigError
from purerl.envs.base import Environment, select_tree
from purerl.learning.averages import vary_like
from purerl.types import Array, Evaluation, HostMetrics, PyTree


class _Episodes(NamedTuple):
    """`E` episodes side by side, between two steps."""

    step: Array
    obs: Array
    state: PyTree
    memory: PyTree
    running: Array
    broken: Array
    episode_return: Array
    episode_length: Array


def evaluate(
    env: Environment,
    params: PyTree,
    act: Callable[..., Any],
    key: Array,
    *,
    num_episodes: int,
    max_steps: int,
    memory: PyTree = None,
) -> Evaluation:
    """Play `E` episodes from fresh resets with a deterministic policy.

    Rewards are those of the game, not what a `RewardWrapper` pays for them.

    The loop ends as soon as every episode has. An episode still running after
    `max_steps`, or at a transition that is not finite, counts with what it has earned
    by then.

    Args:
        act: Policy, `(obs [E, ...]) -> action [E, ...]`, or with a memory `(obs,
            memory [E, ...]) -> (action, memory)`.
        memory: `[E, ...]` memory of episodes that are about to begin; None for a policy
            that remembers nothing.
    """
    remembers = memory is not None

    def act_and_remember(obs: Array, memory: PyTree) -> tuple[Array, PyTree]:
        return act(obs, memory) if remembers else (act(obs), memory)

    if num_episodes < 1:
        raise ConfigError(f"num_episodes must be at least 1, got {num_episodes}.")
    keys = jax.random.split(key, 1 + num_episodes)
    key_play = keys[0]  # taken once, as slicing in the loop would consume all keys
    start = _start(env, params, memory, keys[1:])

    def unfinished(carry: _Episodes) -> Array:
        return (carry.step < max_steps) & carry.running.any()

    def play(carry: _Episodes) -> _Episodes:
        key = jax.random.fold_in(key_play, carry.step)
        keys_now = jax.random.split(key, num_episodes)
        return _step(env, params, act_and_remember, carry, keys_now)

    # The counter stays the same on every device.
    start = vary_like(start, key)._replace(step=start.step)
    end = jax.lax.while_loop(unfinished, play, start)
    cut = (end.running | end.broken).sum(dtype=jnp.int32)
    return Evaluation(end.episode_return, end.episode_length, cut)


class Recording(NamedTuple):
    """Episodes with what is kept of every moment; `T` steps, `E` episodes.

    Attributes:
        kept: Record of every moment, leaves `[T + 1, E, ...]`; row 0 is the start.
            After an episode has ended its rows mean nothing.
        episode_return: `[T + 1, E]` sum of rewards until then.
        episode_length: `[E]` int32 steps until the episode ended, T if it did not.
        ended: `[E]` bool, whether the episode ended within the steps.
    """

    kept: PyTree
    episode_return: Array
    episode_length: Array
    ended: Array


def record(
    env: Environment,
    params: PyTree,
    act: Callable[[Array, PyTree], tuple[Array, PyTree]],
    memory: PyTree,
    key: Array,
    *,
    num_episodes: int,
    max_steps: int,
    keep: Callable[[PyTree, Array], PyTree],
) -> Recording:
    """Play the episodes of `evaluate`, and keep something of every moment.

    The same key gives the same episodes. The number of steps is always `max_steps`.
    Where an environment does not tell the state in which an episode ended, the state
    before the last step is kept in its place, with the last observation.

    Args:
        act: Policy, `(obs [E, ...], memory [E, ...]) -> (action [E, ...], memory)`.
        memory: `[E, ...]` memory of episodes that are about to begin.
        max_steps: Number T of steps.
        keep: `(state, obs) -> pytree of arrays`, of one episode.
    """
    keys = jax.random.split(key, 1 + num_episodes)
    key_play = keys[0]
    start = _start(env, params, memory, keys[1:])

    def moment(carry: _Episodes) -> tuple[PyTree, Array]:
        return jax.vmap(keep)(carry.state, carry.obs), carry.episode_return

    def play(carry: _Episodes, _: None) -> tuple[_Episodes, tuple[PyTree, Array]]:
        key = jax.random.fold_in(key_play, carry.step)
        before = carry
        keys_now = jax.random.split(key, num_episodes)
        carry = _step(env, params, act, carry, keys_now)
        if env.keeps_last_state:
            return carry, moment(carry)
        # The state of an episode that just ended is the start of the next one.
        last = jax.vmap(select_tree)(carry.running, carry.state, before.state)
        return carry, moment(carry._replace(state=last))

    end, moments = jax.lax.scan(play, start, None, length=max_steps)
    kept, returns = jax.tree.map(
        lambda first, later: jnp.concatenate([first[None], later]),
        moment(start),
        moments,
    )
    return Recording(kept, returns, end.episode_length, ~end.running)


def _start(env: Environment, params: PyTree, memory: PyTree, keys: Array) -> _Episodes:
    """Reset an environment for each of the keys `[E]`, which are consumed."""
    num_episodes = len(keys)
    obs, state = jax.vmap(env.reset, (0, None))(keys, params)
    is_known = jax.vmap(is_finite)(obs)
    return _Episodes(
        step=jnp.int32(0),
        obs=obs,
        state=state,
        memory=memory,
        running=is_known,
        broken=~is_known,
        episode_return=jnp.zeros(num_episodes),
        episode_length=jnp.zeros(num_episodes, jnp.int32),
    )


def _step(
    env: Environment,
    params: PyTree,
    act: Callable[[Array, PyTree], tuple[Array, PyTree]],
    carry: _Episodes,
    keys: Array,
) -> _Episodes:
    """Step every episode; those that have ended earn nothing more."""
    action, memory = act(carry.obs, carry.memory)
    # No episode is followed by another here, so nothing pays for resets.
    step = jax.vmap(step_without_reset, (None, None, 0, 0, 0))
    obs, state, _, terminated, truncated, reward = step(
        env, params, keys, carry.state, action
    )
    counts = carry.running & jax.vmap(is_finite)(obs, reward)
    return _Episodes(
        step=carry.step + 1,
        obs=obs,
        state=state,
        memory=memory,
        running=counts & ~(terminated | truncated),
        broken=carry.broken | (carry.running & ~counts),
        episode_return=carry.episode_return + jnp.where(counts, reward, 0.0),
        episode_length=carry.episode_length + counts,
    )


def play_episodes(
    envs: Any,
    act: Callable[[Any, PyTree], tuple[Any, PyTree]],
    memory: PyTree,
    seed: int,
    max_steps: int,
) -> HostMetrics:
    """Play the first episode of every environment, and no other.

    An environment whose episode has ended is stepped on, and nothing of it counts. An
    episode that still runs after `max_steps`, or that breaks, is cut: it counts with
    what it has earned by then.

    Args:
        envs: The `E` environments to play in, `envs.adapters.host.HostEnvs`.
        act: Policy, `(obs [E, ...], memory) -> (action, memory)`.
        memory: Memory of episodes that are about to begin, `[E, ...]`.
        seed: Seed of the first environment; the others follow.

    Returns:
        The fields of `types.Evaluation`, by name.
    """
    returns = np.zeros(envs.num_envs, np.float32)
    lengths = np.zeros(envs.num_envs, np.int32)
    obs = envs.reset(seed)
    running = np.array(jax.vmap(is_finite)(obs))  # A copy, to be written into.
    broken = ~running
    for _ in range(max_steps):
        if not running.any():
            break
        action, memory = act(obs, memory)
        step = envs.step(action)
        returns += np.where(running, step.reward, np.float32(0))
        now_broken = running & step.terminated & step.truncated
        lengths += running & ~now_broken
        broken |= now_broken
        running &= ~(step.terminated | step.truncated)
        obs = step.obs
    return {
        "episode_return": returns,
        "episode_length": lengths,
        "cut_episodes": (running | broken).sum(dtype=np.int32),
    }
