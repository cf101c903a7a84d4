"""Episodes of random or given actions, as `step` plays them."""

from typing import Any, NamedTuple

import jax


class Steps(NamedTuple):
    """The steps of some episodes, `[T, ...]` each."""

    action: Any
    obs: Any
    final: Any  # before any reset
    state: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any


def played(env, params, key, num_steps, actions=None):
    """The first observation and state, and the `Steps` that follow.

    Actions and keys depend on `key` only. The environment may be of another package, if
    it has the contract of gymnax 1.0; it then needs `actions`.
    """
    key_reset, key_actions, key_steps = jax.random.split(key, 3)
    if actions is None:
        sample = env.action_space(params).sample
        actions = jax.vmap(sample)(jax.random.split(key_actions, num_steps))
    obs, state = env.reset(key_reset, params)

    def body(state, inputs):
        key, action = inputs
        obs, state, *outcome, info = env.step(key, state, action, params)
        final = info["final_observation"]
        return state, Steps(action, obs, final, state, *outcome, info)

    keys = jax.random.split(key_steps, num_steps)
    return (obs, state), jax.lax.scan(body, state, (keys, actions))[1]
