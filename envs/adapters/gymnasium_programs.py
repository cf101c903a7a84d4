"""The compiled programs behind Gymnasium's environments, shared by all instances.

A *lane* is one running environment: its state, and a stream of keys that starts at
`jax.random.key(seed)`. Every reset and every step takes the next key of the stream
(`key, key_now = jax.random.split(key)`), the resets between episodes included. So a
lane is a function of its seed and its actions, and it does not matter whether it runs
alone or in a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from ..base import Environment, Info, Obs, select_tree


class Lane(NamedTuple):
    """The key and the state that one environment carries from step to step.

    Attributes:
        key: `[]`, or `[N]` in a vector: where the lane's stream of keys is.
        state: State of the environment; leaves `[...]`, or `[N, ...]`.
    """

    key: jax.Array
    state: Any


class Outcome(NamedTuple):
    """The outcome of a step before any reset; `[N, ...]` each in a vector."""

    obs: Obs
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: Info


class Programs(NamedTuple):
    """Compiled on first use, once for all environments that are equal.

    Attributes:
        reset: Function that resets an environment, `(params, key) -> obs, lane`.
        step: Function that steps an environment, `(params, lane, action) -> lane,
            outcome`.
        reset_lanes: Function that resets a vector, `(params, keys [N]) -> obs, lanes`.
        reset_some: Function that resets some of a vector, `(params, keys [N], mask [N],
            obs, lanes) -> obs, lanes`; those are new where the mask is true.
        step_lanes: Function that steps a vector, `(params, lanes, actions) -> obs,
            lanes, outcome`; `obs` and `lanes` are the next episode's where one ended.
    """

    reset: Callable[..., tuple[Obs, Lane]]
    step: Callable[..., tuple[Lane, Outcome]]
    reset_lanes: Callable[..., tuple[Obs, Lane]]
    reset_some: Callable[..., tuple[Obs, Lane]]
    step_lanes: Callable[..., tuple[Obs, Lane, Outcome]]


def programs_of(env: Environment) -> Programs:
    """Return the programs of an environment; equal environments have the same ones."""
    try:
        return _shared_programs(env)
    except TypeError:  # It cannot be hashed, so nobody can say what equals it.
        return _make_programs(env)


def keys_of(seeds: Sequence[int]) -> jax.Array:
    """Return `jax.random.key(seed)` for each seed, `[N]`.

    A key has room for 32 bits; a larger seed is hashed by numpy's `SeedSequence`.
    """
    words = [s if s < 2**32 else _hash(s) for s in map(int, seeds)]
    return _make_keys(np.asarray(words, np.uint32))


def _hash(seed: int) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1)[0])


_make_keys = jax.jit(jax.vmap(jax.random.key))


def _make_programs(env: Environment) -> Programs:
    def reset(params: Any, key: jax.Array) -> tuple[Obs, Lane]:
        key, key_reset = jax.random.split(key)
        obs, state = env.reset(key_reset, params)
        return obs, Lane(key, state)

    def step(params: Any, lane: Lane, action: jax.Array) -> tuple[Lane, Outcome]:
        key, key_step = jax.random.split(lane.key)
        state, outcome = _step_without_reset(env, params, key_step, lane.state, action)
        return Lane(key, state), outcome

    def step_and_restart(
        params: Any, lane: Lane, action: jax.Array
    ) -> tuple[Obs, Lane, Outcome]:
        lane, outcome = step(params, lane, action)
        done = outcome.terminated | outcome.truncated
        started = reset(params, lane.key)
        obs, lane = select_tree(done, started, (outcome.obs, lane))
        return obs, lane, outcome

    def reset_some(
        params: Any, key: jax.Array, mask: jax.Array, obs: Obs, lane: Lane
    ) -> tuple[Obs, Lane]:
        return select_tree(mask, reset(params, key), (obs, lane))

    return Programs(
        reset=jax.jit(reset),
        step=jax.jit(step),
        reset_lanes=jax.jit(jax.vmap(reset, (None, 0))),
        reset_some=jax.jit(jax.vmap(reset_some, (None, 0, 0, 0, 0))),
        step_lanes=jax.jit(jax.vmap(step_and_restart, (None, 0, 0))),
    )


_shared_programs = lru_cache(maxsize=64)(_make_programs)


def _step_without_reset(
    env: Environment, params: Any, key: jax.Array, state: Any, action: jax.Array
) -> tuple[Any, Outcome]:
    """One step that leaves an ended episode as it ended, so that it can be drawn.

    Where the environment only resets by itself, the state is the next episode's.
    """
    if env.steps_without_reset and type(env).step is Environment.step:
        obs, state, reward, terminated, info = env.step_env(key, state, action, params)
        truncated = env.is_truncated(state, params)
    else:
        _, state, reward, terminated, truncated, info = env.step(
            key, state, action, params
        )
        obs = info["final_observation"]
    known = ("terminated", "truncated", "final_observation")
    info = {name: value for name, value in info.items() if name not in known}
    return state, Outcome(obs, reward, terminated, truncated & ~terminated, info)
