"""`check`: does an environment keep the contract of `base`?

Made for authors of environments: it plays the environment with random actions and
stops at the first broken rule, with a sentence that names the rule, what was seen and
what was expected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .adapters.adapt import adapt
from .base import Environment, StepError, two_values
from .checker_play import (
    TIME_LIMIT,
    EnvCheckError,
    check_rollout,
    check_time_limit,
    random_step,
    require,
    rollout_fn,
)
from .checker_tools import Counted, is_equal, is_float, signature

# What JAX raises where Python looks at a traced value.
_DECISIONS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.JAXIndexError,
)
# Kinds of dtypes: a larger one takes the numbers of a smaller one. V is bfloat16.
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2}


def check(
    env: Any, params: Any = None, key: jax.Array | None = None, num_steps: int = 64
) -> None:
    """Play `env` and check every rule that a training loop relies on.

    The rules: `reset` and `step` trace, once each; observations have the shape and
    dtype of the observation space, always; states and parameters are pytrees of
    arrays; everything is finite; the flags are bool and never both true; the time
    limit is kept to the step; `final_observation` is the one before the reset; the
    spaces contain what comes out; the same key gives the same episode; `vmap` works
    over keys and over the float leaves of the parameters; a step that is said to draw
    nothing does not.

    Compiles about five small programs.

    Args:
        env: An `Environment`, or any object that keeps the gymnax 1.0 contract.
        params: Numbers of the environment; the defaults where not given.
        key: Random key, consumed; a fixed one where not given.
        num_steps: Steps to play in each of four copies.

    Raises:
        EnvCheckError: a rule is broken.
        TypeError: `env` lacks a part of the contract, or `params` are not its own.
        ValueError: no step is to be played.
    """
    env = adapt(env)
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}.")
    own = env.default_params
    params = own if params is None else params
    if not isinstance(params, type(own)):
        raise TypeError(
            f"params of {env.name} must be a {type(own).__name__}, got a "
            f"{type(params).__name__}; env.default_params.replace(...) makes one."
        )
    key_once, key_play, key_vmap = jax.random.split(
        jax.random.key(0) if key is None else key, 3
    )
    _check_pytree(env, "params", params)
    _check_spaces(env, params)
    _check_single_step(env, params, key_once)
    play = jax.jit(rollout_fn(env, num_steps))
    check_rollout(env, play(key_play, params))
    if hasattr(params, "max_steps_in_episode"):
        dtype = jnp.result_type(params.max_steps_in_episode)
        limit = jnp.asarray(TIME_LIMIT, dtype)
        short = params.replace(max_steps_in_episode=limit)
        steps = play(key_play, short)
        check_rollout(env, steps)
        check_time_limit(env, steps)
    _check_vmap_over_params(env, params, key_vmap)


def _check_pytree(env: Environment, what: str, tree: Any) -> None:
    kinds = (jax.Array, np.ndarray, np.generic, bool, int, float)
    if what == "state":
        kinds = (jax.Array,)
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        where = f"{what}{jax.tree_util.keystr(path)}"
        require(
            env,
            isinstance(leaf, kinds),
            f"{where} is a {type(leaf).__name__}, expected an array: a {what} is a "
            "pytree of arrays (register its class with flax.struct.dataclass).",
        )


def _check_spaces(env: Environment, params: Any) -> None:
    for name in ("action_space", "observation_space"):
        try:
            space = getattr(env, name)(params)
        except (TypeError, AttributeError) as error:
            raise EnvCheckError(
                f"{env.name}: {name}(params) raised {type(error).__name__}: "
                f"{_first_line(error)}; expected a method that takes the parameters "
                "and returns one of envs.spaces."
            ) from error
        for part in ("sample", "contains", "shape", "dtype"):
            require(
                env,
                hasattr(space, part),
                f"{name} is {space!r} without `{part}`, expected one of envs.spaces.",
            )
    space = env.action_space(params)
    action = space.sample(jax.random.key(0))
    require(
        env,
        space.contains(action),
        f"action_space {space!r} does not contain its own sample {action}.",
    )


def _check_single_step(env: Environment, params: Any, key: jax.Array) -> None:
    """Trace once, keep types, give the same again: two steps, played twice."""
    first = _play_twice(env, params, key)
    again = _play_twice(env, params, key)
    for before, after in zip(
        jax.tree.leaves(first), jax.tree.leaves(again), strict=True
    ):
        require(
            env,
            is_equal(before, after),
            "the same key gave two different episodes, expected equal ones: all "
            "chance must come from the key, and nothing may be kept on the object.",
        )


def _play_twice(env: Environment, params: Any, key: jax.Array) -> Any:
    """Reset, take two steps, each a compiled program; return what came out."""
    key_reset, key_act, key_step = jax.random.split(key, 3)
    reset = Counted(lambda *args: two_values(env, env.reset(*args)))
    step = Counted(env.step)
    obs, state = _traced(env, "reset", reset, key_reset, params)
    _check_pytree(env, "state", state)
    _check_obs(env, "reset returned an observation", obs, params)
    action = env.action_space(params).sample(key_act)
    _check_one_step(env, key_step, state, action, params)
    outputs: list[Any] = [(obs, state)]
    for i in range(2):
        before = jax.tree.map(signature, state)
        key_now = jax.random.fold_in(key_step, i)
        result = _traced(env, "step", step, key_now, state, action, params)
        _check_result(env, result, params)
        state = result[1]
        require(
            env,
            # The class of a state may have an equality of its own, that of arrays.
            jax.tree.flatten(jax.tree.map(signature, state))
            == jax.tree.flatten(before),
            f"step changed the types of the state from {before} to "
            f"{jax.tree.map(signature, state)}, expected the same: a scan carries it.",
        )
        outputs.append(result)
    require(
        env,
        step.traces == 1,
        f"step was traced {step.traces} times for two equal calls, expected once: "
        "some leaf of the state is weakly typed (use jnp.int32(0), not 0).",
    )
    return outputs


def _check_one_step(
    env: Environment, key: jax.Array, state: Any, action: Any, params: Any
) -> None:
    """Require the types of a step before the reset that `step` may put in its place.

    Where they differ from those of a reset, `step` itself cannot be traced, with an
    error that does not say where.
    """
    if not env.steps_without_reset:
        return
    result = _traced(env, "step", _shapes_of(env), key, state, action, params)
    if not (isinstance(result, tuple) and len(result) == 5):
        return  # The check of `step` says what is wrong.
    _check_obs(env, "step_env returned an observation", result[0], params)
    before, after = (dict(signatures(one)) for one in (state, result[1]))
    require(
        env,
        before.keys() == after.keys(),
        f"step_env returned a state with the leaves {', '.join(sorted(after))}, "
        f"expected those of reset: {', '.join(sorted(before))}.",
    )
    for name, type_now in after.items():
        require(
            env,
            type_now == before[name],
            f"step_env changed state{name} from {before[name]} to {type_now}, "
            "expected the same: a scan carries the state.",
        )


def _shapes_of(env: Environment) -> Callable[..., Any]:
    """Return a function that finds the shapes and types of a step without a reset."""

    def shapes(*args: Any) -> Any:
        return jax.eval_shape(env.step_env, *args)

    return shapes


def signatures(tree: Any) -> list[tuple[str, str]]:
    """Return the path and the type of every leaf of a tree.

    Args:
        tree: Pytree of arrays, or of their shapes.
    """
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path), signature(leaf)) for path, leaf in found]


def _check_result(env: Environment, result: Any, params: Any) -> None:
    require(
        env,
        len(result) == 6,
        f"step returned {len(result)} values, expected 6: obs, state, reward, "
        "terminated, truncated, info.",
    )
    obs, state, reward, terminated, truncated, info = result
    values = {"reward": reward, "terminated": terminated, "truncated": truncated}
    for name, value in values.items():
        require(
            env,
            hasattr(value, "dtype"),
            f"{name} is a {type(value).__name__}, expected one number or truth value.",
        )
    _check_pytree(env, "state", state)
    _check_obs(env, "step returned an observation", obs, params)
    require(
        env,
        jnp.shape(reward) == () and jnp.issubdtype(reward.dtype, jnp.floating),
        f"reward is {reward.dtype.name}{list(jnp.shape(reward))}, expected one float.",
    )
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        require(
            env,
            jnp.shape(flag) == () and flag.dtype == jnp.bool_,
            f"{name} is {flag.dtype.name}{list(jnp.shape(flag))}, expected one bool.",
        )
    require(
        env,
        "final_observation" in info,
        f"info has {sorted(info)}, expected 'final_observation' too: the observation "
        "before the reset.",
    )
    _check_obs(env, "info['final_observation'] is", info["final_observation"], params)


def _check_obs(env: Environment, what: str, obs: Any, params: Any) -> None:
    space: Any = env.observation_space(params)
    check_member(env, what, obs, space)


def check_member(
    env: Environment, what: str, obs: Any, space: Any, exact: bool = True
) -> None:
    """Require the keys, shapes and dtypes of a space, part by part.

    Args:
        env: Environment that is checked.
        what: Name of the observation in the message.
        obs: The observation, or its shapes.
        space: Space that it is to be a member of.
        exact: Whether the dtype must be the same; without it, one that loses nothing as
            the space's kind of number will do, such as truth values among floats.

    Raises:
        EnvCheckError: with what was seen and what was expected.
    """
    parts = getattr(space, "spaces", None)
    if parts is not None:
        by_key = isinstance(parts, dict)
        keys = set(parts) if by_key else set(range(len(parts)))
        there = isinstance(obs, dict) if by_key else type(obs) is tuple
        given = set(obs if by_key else range(len(obs))) if there else obs
        require(
            env,
            given == keys,
            f"{what} with the parts {given}, expected a "
            f"{'dict' if by_key else 'tuple'} with those of the observation space: "
            f"{keys}.",
        )
        for key in sorted(keys):
            check_member(env, f"{what} at {key!r}", obs[key], parts[key], exact)
        return
    is_array = hasattr(obs, "shape") and hasattr(obs, "dtype")
    require(
        env,
        is_array or exact,
        f"{what} that is a {type(obs).__name__}, expected an array, as the observation "
        "space says.",
    )
    seen = (
        (obs.shape, obs.dtype) if is_array else (jnp.shape(obs), jnp.result_type(obs))
    )
    expected = (space.shape, space.dtype)
    fits = seen == expected
    if not exact:
        kind, most = (_KINDS.get(np.dtype(x).kind, 0) for _, x in (seen, expected))
        fits = tuple(seen[0]) == tuple(expected[0]) and kind <= most
    kept = jax.dtypes.canonicalize_dtype(space.dtype)
    is_narrowed = seen == (space.shape, kept) and kept != space.dtype
    remedy = f" JAX keeps such numbers as {kept}: give the space that."
    require(
        env,
        fits,
        f"{what} of shape {seen[0]} and dtype {seen[1]}, expected those of the "
        f"observation space: {expected[0]} and {expected[1]}."
        f"{remedy if is_narrowed else ''}",
    )


def _check_vmap_over_params(env: Environment, params: Any, key: jax.Array) -> None:
    """Batch every float leaf; both lanes must give what a single call gives."""
    axes = jax.tree.map(lambda x: 0 if is_float(x) else None, params)
    if not any(axis == 0 for axis in jax.tree.leaves(axes)):
        return
    batch = jax.tree.map(
        lambda x: jnp.stack([jnp.asarray(x)] * 2) if is_float(x) else x, params
    )

    def play(params: Any) -> Any:
        key_reset, key_loop = jax.random.split(key)
        _, state = env.reset(key_reset, params)
        return random_step(env, state, key_loop, params)[1]

    batched = jax.vmap(play, in_axes=(axes,))
    lanes = _traced(env, "reset and step under vmap over params", batched, batch)
    for leaf in jax.tree.leaves(lanes):
        require(
            env,
            is_equal(leaf[0], leaf[1]),
            "equal parameters in two lanes of a vmap gave different steps, expected "
            "equal ones.",
        )


def _traced(env: Environment, what: str, fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except StepError as error:
        raise EnvCheckError(str(error)) from None
    except _DECISIONS as error:
        raise EnvCheckError(
            f"{env.name}: {what} cannot be traced ({_first_line(error)}): expected "
            "pure JAX, without Python decisions on traced values."
        ) from error
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise EnvCheckError(
            f"{env.name}: {what} cannot be traced, it raised {type(error).__name__}: "
            f"{_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
