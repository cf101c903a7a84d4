"""The rules of `checker.check` that show only in a played episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .base import Environment

NUM_ENVS = 4
TIME_LIMIT = 5


class EnvCheckError(AssertionError):
    """An environment breaks a rule of the contract."""


class PlayedStep(NamedTuple):
    """The outcome of one step; in a rollout every field leads with `[T, B]`."""

    obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    final_obs: Any
    expected_obs: Any  # From `step_env`, the observation before any reset.
    other: Any  # From `step_env` with another key: observation, reward, terminated.
    in_space: jax.Array


def require(env: Environment, holds: Any, message: str) -> None:
    """Raise `EnvCheckError` with the message unless the rule holds.

    Args:
        env: Environment that is checked, named in the message.
        holds: Whether the rule holds.
        message: Sentence about what does not hold.
    """
    if not bool(holds):
        raise EnvCheckError(f"{env.name}: {message}")


def rollout_fn(
    env: Environment, num_steps: int
) -> Callable[[jax.Array, Any], PlayedStep]:
    """Make a function of key and params that plays `[T, B]` random steps."""

    def play_one(key: jax.Array, params: Any) -> PlayedStep:
        key_reset, key_loop = jax.random.split(key)
        _, state = env.reset(key_reset, params)

        def body(state: Any, key: jax.Array) -> tuple[Any, PlayedStep]:
            return random_step(env, state, key, params)

        return jax.lax.scan(body, state, jax.random.split(key_loop, num_steps))[1]

    def play(key: jax.Array, params: Any) -> PlayedStep:
        keys = jax.random.split(key, NUM_ENVS)
        return jax.vmap(play_one, in_axes=(0, None), out_axes=1)(keys, params)

    return play


def random_step(
    env: Environment, state: Any, key: jax.Array, params: Any
) -> tuple[Any, PlayedStep]:
    """Take one step with a random action.

    Args:
        env: Environment to step.
        state: State of the running episode.
        key: Random key, consumed.
        params: Numbers of the environment.
    """
    key_act, key_step = jax.random.split(key)
    action = env.action_space(params).sample(key_act)
    obs, next_state, reward, terminated, truncated, info = env.step(
        key_step, state, action, params
    )
    final_obs = expected_obs = info["final_observation"]
    other = (final_obs, reward, terminated)
    if env.steps_without_reset and not env.stochastic_transitions:
        expected_obs = env.step_env(key_step, state, action, params)[0]
        seen, _, *rest = env.step_env(key_act, state, action, params)
        other = (seen, *rest[:2])
    space = env.observation_space(params)
    in_space = space.contains(obs) & space.contains(final_obs)
    step = PlayedStep(
        obs, reward, terminated, truncated, final_obs, expected_obs, other, in_space
    )
    return next_state, step


def check_rollout(env: Environment, steps: PlayedStep) -> None:
    """Require finite numbers, exclusive flags, final observations, members."""
    for name, values in (
        ("an observation", steps.final_obs),
        ("a reward", steps.reward),
    ):
        require(
            env,
            all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(values)),
            f"{name} was infinite or NaN, expected finite numbers.",
        )
    both = int(jnp.sum(steps.terminated & steps.truncated))
    require(
        env,
        both == 0,
        f"terminated and truncated were both true in {both} steps, expected never: "
        "an episode that ends by itself terminated.",
    )
    _check_final_observation(env, steps)
    mine = _rows((steps.final_obs, steps.reward, steps.terminated))
    require(
        env,
        np.allclose(mine, _rows(steps.other), atol=1e-5),
        "step_env gave another outcome with another key, expected the same: with "
        "stochastic_transitions = False a reset gets the key of the step before; set "
        "it to True where a step draws.",
    )
    require(
        env,
        jnp.all(steps.in_space),
        f"{int(jnp.sum(~steps.in_space))} of {steps.in_space.size} steps had an "
        "observation outside the observation space, expected none.",
    )


def _check_final_observation(env: Environment, steps: PlayedStep) -> None:
    message = (
        "info['final_observation'] was not the observation before the reset: {}; a "
        "learner needs it to bootstrap through time limits."
    )
    final, expected = _rows(steps.final_obs), _rows(steps.expected_obs)
    require(
        env,
        np.allclose(final, expected, atol=1e-5),
        message.format("it differs from the one that step_env returns"),
    )
    done = np.asarray(steps.terminated | steps.truncated)
    obs = _rows(steps.obs)
    require(
        env,
        np.array_equal(final[~done], obs[~done]),
        message.format("in the middle of an episode it differs from obs"),
    )
    # Where chance is in the step there is nothing to compare with. But observations
    # that vary cannot all coincide with the first ones of the next episodes.
    varies = np.ptp(obs, axis=(0, 1)).any()
    require(
        env,
        not (done.any() and varies and env.stochastic_transitions)
        or not np.array_equal(final[done], obs[done]),
        message.format("it always equals the first one of the next episode"),
    )


def _rows(obs: Any) -> np.ndarray:
    """Observations `[T, B, ...]`, of several parts too, as numbers `[T, B, O]`."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(obs)]
    # NumPy takes no differences of truth values.
    leaves = [x.astype(np.uint8) if x.dtype == bool else x for x in leaves]
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in leaves], -1)


def check_time_limit(env: Environment, steps: PlayedStep) -> None:
    """Require truncation after exactly `TIME_LIMIT` steps, and no longer episode.

    Of steps that bring the limit nearer by more than 1, as many as reach it.
    """
    expected = -(-TIME_LIMIT // env.time_per_step)
    done = np.asarray(steps.terminated | steps.truncated)
    length = np.zeros(done.shape[1], int)
    for t in range(done.shape[0]):
        length += 1
        wrong = length[np.asarray(steps.truncated)[t] | (length > expected)]
        seen = int(wrong[wrong != expected][0]) if np.any(wrong != expected) else 0
        require(
            env,
            seen == 0,
            f"with max_steps_in_episode = {TIME_LIMIT} an episode lasted "
            f"{'at least ' if seen > expected else ''}{seen} steps, expected "
            f"truncation after exactly {expected}.",
        )
        length[done[t]] = 0
