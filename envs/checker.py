"""`check`: does an environment keep the contract of `base`?

Made for authors of environments: it plays the environment with random actions and
stops at the first broken rule, with a sentence that names the rule, what was seen and
what was expected. `check_types` looks at shapes and types alone, as training does.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .adapters.adapt import adapt
from .base import Array, Environment, StepError, outcome, unpacked
from .wrappers import Wrapper

NUM_ENVS = 4
TIME_LIMIT = 5
LATER_LIMIT = 10_000  # No episode of the check gets there.
# What JAX raises where Python looks at a traced value.
_DECISIONS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.JAXIndexError,
)
# Kinds of dtypes beside floats: floats take whole numbers, and these truth values.
_KINDS = {"b": 0, "i": 1, "u": 1}


class EnvCheckError(AssertionError):
    """An environment breaks a rule of the contract."""


class RuleError(Exception):
    """A rule that does not hold, before it is said of what."""


def require(holds: Any, message: str) -> None:
    """Raise `RuleError` with the message unless the rule holds.

    Args:
        holds: Whether the rule holds.
        message: Sentence about what does not hold.
    """
    if not bool(holds):
        raise RuleError(message)


@contextlib.contextmanager
def said_of(name: str, error: type[Exception]) -> Iterator[None]:
    """Raise an error that begins with a name where a rule does not hold inside.

    Args:
        name: Name of what is checked.
        error: Class of the error.
    """
    try:
        yield
    except RuleError as broken:
        raise error(f"{name}: {broken}") from broken.__cause__


def check(
    env: Any, params: Any = None, key: Array | None = None, num_steps: int = 64
) -> None:
    """Play `env` and check every rule that a training loop relies on.

    The rules: `reset` and `step` can be traced; observations have the shape and dtype
    of the observation space, always; states and parameters are pytrees of arrays, whose
    types never change; everything is finite; the flags are bool and never both true;
    the time limit is kept to the step, and terminates nothing; `final_observation` is
    the one before the reset; the spaces contain what comes out; the same key gives the
    same episode; `vmap` works over keys; a step that is said to draw nothing does not.

    Compiles about four small programs.

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
    key = jax.random.key(0) if key is None else key
    with said_of(env.name, EnvCheckError):
        _check(env, params, key, num_steps)


def _check(env: Environment, params: Any, key: Array, num_steps: int) -> None:
    key_once, key_play, _ = jax.random.split(key, 3)
    limit = getattr(params, "max_steps_in_episode", None)
    # Where it is drawn at every reset it is no number.
    has_limit = isinstance(limit, int | float) or hasattr(limit, "dtype")
    kinds = (jax.Array, np.ndarray, np.generic, bool, int, float)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        require(
            isinstance(leaf, kinds),
            f"params{jax.tree_util.keystr(path)} is a {type(leaf).__name__}, expected "
            "an array: register its class with flax.struct.dataclass.",
        )
    _check_spaces(env, params)
    if has_limit:
        params = _with_limit(params, limit)
    _check_types(env, params, exact=True)
    # Each is traced by itself, so that chance in the code itself shows.
    once, again = (
        _traced("step", jax.jit(_rollout_fn(env, 2)), key_once, params)
        for _ in range(2)
    )
    require(
        is_equal(once, again),
        "the same key gave two different episodes, expected equal ones: all chance "
        "must come from the key, and nothing may be kept on the object.",
    )
    play = jax.jit(_rollout_fn(env, num_steps))
    _check_rollout(env, play(key_play, params))
    if has_limit:
        if not env.terminal_limit:
            _check_termination(env, params, key_once)
        steps = play(key_play, _with_limit(params, TIME_LIMIT))
        _check_rollout(env, steps)
        _check_time_limit(env, steps)


def _check_counts(env: Environment, before: Any, after: Any) -> None:
    """Refuse a traced step that returns the very time that it was given."""
    while isinstance(env, Wrapper):
        before, after = env.inner_state(before), env.inner_state(after)
        env = env.env
    if type(env).is_truncated is Environment.is_truncated:
        require(
            after.time is not before.time,
            "step_env returns state.time as it was, so that no episode ever reaches "
            "its time limit. Return time=state.time + 1.",
        )


def check_types(env: Environment, params: Any) -> None:
    """Refuse what reset and step return where it is not what training can take.

    Shapes are evaluated, and nothing is computed. Numbers that lose nothing as the
    observation space's kind of number will do.

    Args:
        env: The environment.
        params: Numbers of the environment.

    Raises:
        EnvCheckError: an observation that is not what the environment's own space says,
            a reward that is not one number, a flag that is not one truth value, or an
            observation or a state of other types after a step than after a reset.
        StepError: a step of other than five values, or a reset of other than two.
    """
    with said_of(env.name, EnvCheckError):
        try:
            _check_types(env, params, exact=False)
        except (StepError, RuleError):
            raise
        except Exception:
            return  # Training in the environment will show its own error.


def _check_types(env: Environment, params: Any, exact: bool) -> None:
    """Check shapes and types of reset and step.

    Where `exact`, dtypes must be those of the space, and `step` itself is looked at.
    """
    space: Any = env.observation_space(params)
    key = jax.random.key(0)
    action = env.action_space(params).sample(key)

    def shapes(what: str, function: Callable[..., Any], *args: Any) -> Any:
        if exact:
            return _traced(what, partial(jax.eval_shape, function), *args, params)
        return jax.eval_shape(lambda *x: function(*x, params), *args)

    def reset(key: Array, params: Any) -> Any:
        return unpacked(env, env.reset(key, params), "reset", "obs, state")

    def taken(key: Array, state: Any, action: Any, params: Any) -> Any:
        obs, after, reward, *flags, _ = outcome(env, key, state, action, params)
        _check_outcome(reward, *flags, exact=exact)
        _check_counts(env, state, after)
        return obs, after, obs

    def step(key: Array, state: Any, action: Any, params: Any) -> Any:
        result = env.step(key, state, action, params)
        require(
            len(result) == 6,
            f"step returned {len(result)} values, expected 6: obs, state, reward, "
            "terminated, truncated, info.",
        )
        obs, state, *outcome, info = result
        require(
            "final_observation" in info,
            f"info has {sorted(info)}, expected 'final_observation' too: the "
            "observation before the reset.",
        )
        _check_outcome(*outcome, exact=exact)
        return obs, state, info["final_observation"]

    first, state = shapes("reset", reset, key)
    check_member("reset returns an observation", first, space, exact)
    # Where `step_env` differs from a reset, `step` cannot be traced and does not say
    # where; what has a `step` of its own is asked for its values first.
    both = (taken, step) if env.keeps_last_state else (step, taken)
    for function in both if exact else (taken,):
        obs, after, final = shapes("step", function, key, state, action)
        check_member("step returns an observation", obs, space, exact)
        check_member("info['final_observation'] is", final, space, exact)
        check_same("an observation", first, obs)
        check_same("a state", state, after)
        leaves = zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True)
        require(
            not exact or all(x.weak_type == y.weak_type for x, y in leaves),
            "some leaf of the state that reset returns is weakly typed, expected "
            "otherwise: step is traced twice (use jnp.int32(0), not 0).",
        )


def check_member(what: str, obs: Any, space: Any, exact: bool = True) -> None:
    """Require the keys, shapes and dtypes of a space, part by part.

    Args:
        what: Name of the observation in the message.
        obs: The observation, or its shapes.
        space: Space that it is to be a member of.
        exact: Whether the dtype must be the same; without it, one that loses nothing as
            the space's kind of number will do, such as truth values among floats.

    Raises:
        RuleError: with what was seen and what was expected.
    """
    parts = getattr(space, "spaces", None)
    if parts is not None:
        kind = dict if isinstance(parts, dict) else tuple
        known = parts if kind is dict else dict(enumerate(parts))
        given: Any = type(obs).__name__
        if type(obs) is kind:
            given = set(obs if kind is dict else range(len(obs)))
        require(
            given == set(known),
            f"{what} with the parts {given}, expected a {kind.__name__} with those of "
            f"the observation space: {set(known)}.",
        )
        for key, part in known.items():
            check_member(f"{what} at {key!r}", obs[key], part, exact)
        return
    require(
        hasattr(obs, "dtype"),
        f"{what} that is a {type(obs).__name__}, expected an array, as the observation "
        "space says.",
    )
    kind, most = (_KINDS.get(np.dtype(x.dtype).kind, 2) for x in (obs, space))
    # A truth value is no number of a choice: as an index it would be a mask.
    least = int(hasattr(space, "n") or hasattr(space, "nvec"))
    fits = obs.dtype == space.dtype if exact else least <= kind <= most
    require(
        fits and tuple(obs.shape) == tuple(space.shape),
        f"{what} of shape {obs.shape} and dtype {obs.dtype}, expected those of the "
        f"observation space: {space.shape} and {space.dtype}.",
    )


def check_same(what: str, first: Any, later: Any) -> None:
    """Refuse what has other types after a step than after a reset.

    Args:
        what: Name of the two in the message.
        first: Pytree of shapes that reset returns.
        later: Pytree of shapes that a step returns.

    Raises:
        RuleError: with the leaf, and its two types.
    """
    before, now = (
        {jax.tree_util.keystr(path): signature(leaf) for path, leaf in found}
        for found in map(jax.tree_util.tree_leaves_with_path, (first, later))
    )
    require(
        before.keys() == now.keys(),
        f"reset returns {what} with the leaves {', '.join(before)}, and step one with "
        f"{', '.join(now)}, which a loop cannot carry. Give both the same.",
    )
    for name, known in before.items():
        where = f" whose {name.removeprefix('.')} is" if name else " of"
        require(
            now[name] == known,
            f"reset returns {what}{where} {known}, and step one{where} {now[name]}, "
            "which a loop cannot carry. Cast one of the two.",
        )


def _check_outcome(reward: Any, terminated: Any, truncated: Any, exact: bool) -> None:
    """Refuse a reward that is not one number, and a flag that is no truth value."""
    is_number = hasattr(reward, "dtype") or isinstance(reward, int | float)
    kinds = "f" if exact else "biuf"
    require(
        is_number and _kind_of(reward) in kinds and np.shape(reward) == (),
        f"step returns a reward of {_described(reward)}, expected one number, "
        "float32[]. Take one with reward[0], reward.sum() or the like.",
    )
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        # `~False` is -1 in Python; only `terminated` is negated.
        is_jax = hasattr(flag, "dtype") or name == "truncated"
        require(
            is_jax and _kind_of(flag) == "b" and np.shape(flag) == (),
            f"step returns {name} as {_described(flag)}, expected one truth value of "
            f"JAX, bool[], such as state.time >= 10 or jnp.asarray({name}, bool).",
        )


def _kind_of(value: Any) -> str:
    """The kind of a value's dtype as NumPy names kinds; `O` of what is no number."""
    try:
        return "f" if is_float(value) else np.dtype(jnp.result_type(value)).kind
    except TypeError:
        return "O"


def _described(value: Any) -> str:
    """A value in words: `int32[2]` of an array, else its class in Python."""
    is_array = hasattr(value, "dtype")
    return signature(value) if is_array else f"a Python {type(value).__name__}"


def _check_spaces(env: Environment, params: Any) -> None:
    for name in ("action_space", "observation_space"):
        try:
            space = getattr(env, name)(params)
        except (TypeError, AttributeError) as error:
            raise RuleError(
                f"{name}(params) raised {type(error).__name__}: "
                f"{_first_line(error)}; expected a method that takes the parameters "
                "and returns one of envs.spaces."
            ) from error
        for part in ("sample", "contains", "shape", "dtype"):
            require(
                hasattr(space, part),
                f"{name} is {space!r} without `{part}`, expected one of envs.spaces.",
            )
    space = env.action_space(params)
    action = space.sample(jax.random.key(0))
    require(
        space.contains(action),
        f"action_space {space!r} does not contain its own sample {action}.",
    )


def _with_limit(params: Any, steps: Any) -> Any:
    """Parameters with another time limit of the same type."""
    known = jnp.result_type(params.max_steps_in_episode)
    return params.replace(max_steps_in_episode=jnp.asarray(steps, known))


def _check_termination(env: Environment, params: Any, key: Array) -> None:
    """Require that steps at the time limit terminate only where later limits do too."""

    def step(carry: Any, key: Array) -> Any:
        state, time = carry
        key_act, key_step = jax.random.split(key)
        action = env.action_space(params).sample(key_act)
        time = time + env.time_per_step
        at_limit = env.step(key_step, state, action, _with_limit(params, time))[3]
        later = _with_limit(params, LATER_LIMIT)
        _, state, _, terminated, truncated, _ = env.step(key_step, state, action, later)
        after = jnp.where(terminated | truncated, 0, time)
        return (state, after), (time, at_limit, terminated)

    @jax.jit
    def play(key: Array) -> Any:
        key_reset, key_loop = jax.random.split(key)
        _, state = env.reset(key_reset, params)
        keys = jax.random.split(key_loop, TIME_LIMIT)
        return jax.lax.scan(step, (state, jnp.int32(0)), keys)[1]

    for time, at_limit, terminated in zip(*map(np.asarray, play(key)), strict=True):
        require(
            at_limit == terminated,
            f"the same step returns terminated={at_limit} with max_steps_in_episode = "
            f"{time} and {terminated} with {LATER_LIMIT}, expected the same: a learner "
            "takes what follows a termination to be worth nothing. Remove the "
            "comparison of `time` with `max_steps_in_episode` from `step_env`: "
            "`Environment.step` sets `truncated`. Where the time that is left belongs "
            "to the task, put `envs.wrappers.TerminalLimit` around it.",
        )


def _traced(what: str, fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except StepError as error:
        raise EnvCheckError(str(error)) from None
    except _DECISIONS as error:
        raise RuleError(
            f"{what} cannot be traced ({_first_line(error)}): expected pure JAX, "
            "without Python decisions on traced values."
        ) from error
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise RuleError(
            f"{what} cannot be traced, it raised {type(error).__name__}: "
            f"{_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


class PlayedStep(NamedTuple):
    """The outcome of one step; in a rollout every field leads with `[T, B]`."""

    obs: Any
    reward: Array
    terminated: Array
    truncated: Array
    final_obs: Any
    expected_obs: Any  # From `step_env`, the observation before any reset.
    other: Any  # From `step_env` with another key: observation, reward, terminated.
    in_space: Array


def _rollout_fn(env: Environment, num_steps: int) -> Callable[[Array, Any], PlayedStep]:
    """Make a function of key and params that plays `[T, B]` random steps."""

    def play_one(key: Array, params: Any) -> PlayedStep:
        key_reset, key_loop = jax.random.split(key)
        _, state = env.reset(key_reset, params)
        step = partial(_random_step, env, params)
        return jax.lax.scan(step, state, jax.random.split(key_loop, num_steps))[1]

    play = jax.vmap(play_one, in_axes=(0, None), out_axes=1)
    return lambda key, params: play(jax.random.split(key, NUM_ENVS), params)


def _random_step(
    env: Environment, params: Any, state: Any, key: Array
) -> tuple[Any, PlayedStep]:
    """Take one step with a random action; the key is consumed."""
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


def _check_rollout(env: Environment, steps: PlayedStep) -> None:
    """Require finite numbers, exclusive flags, final observations, members."""
    seen = (steps.obs, steps.final_obs)
    for name, values in {"an observation": seen, "a reward": steps.reward}.items():
        require(
            all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(values)),
            f"{name} was infinite or NaN, expected finite numbers.",
        )
    require(
        not jnp.any(steps.terminated & steps.truncated),
        "terminated and truncated were both true in a step, expected never: an episode "
        "that ends by itself terminated.",
    )
    obs, final, expected = map(_rows, (steps.obs, steps.final_obs, steps.expected_obs))
    done = np.asarray(steps.terminated | steps.truncated)
    # Where chance is in the step there is nothing to compare with. But observations
    # that vary cannot all coincide with the first ones of the next episodes.
    varies = np.ptp(obs, axis=(0, 1)).any() and env.stochastic_transitions
    wrong = {
        "it differs from the one that step_env returns": not np.allclose(
            final, expected, atol=1e-5
        ),
        "in the middle of an episode it differs from obs": (
            final[~done] != obs[~done]
        ).any(),
        "it always equals the first one of the next episode": (
            varies and done.any() and np.array_equal(final[done], obs[done])
        ),
    }
    for what, is_wrong in wrong.items():
        require(
            not is_wrong,
            "info['final_observation'] was not the observation before the reset: "
            f"{what}; a learner needs it to bootstrap through time limits.",
        )
    mine = _rows((steps.final_obs, steps.reward, steps.terminated))
    require(
        np.allclose(mine, _rows(steps.other), atol=1e-5),
        "step_env gave another outcome with another key, expected the same: with "
        "stochastic_transitions = False a reset gets the key of the step before; set "
        "it to True where a step draws.",
    )
    require(
        jnp.all(steps.in_space),
        f"{int(jnp.sum(~steps.in_space))} of {steps.in_space.size} steps had an "
        "observation outside the observation space, expected none.",
    )


def _rows(obs: Any) -> np.ndarray:
    """Observations `[T, B, ...]`, of several parts too, as numbers `[T, B, O]`."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(obs)]
    # NumPy takes no differences of truth values.
    leaves = [x.astype(np.uint8) if x.dtype == bool else x for x in leaves]
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in leaves], -1)


def _check_time_limit(env: Environment, steps: PlayedStep) -> None:
    """Require truncation after exactly `TIME_LIMIT` steps, and no longer episode.

    Of steps that bring the limit nearer by more than 1, as many as reach it.
    """
    expected = -(-TIME_LIMIT // env.time_per_step)
    flags = zip(*map(np.asarray, (steps.terminated, steps.truncated)), strict=True)
    length: Any = 0
    for terminated, truncated in flags:
        length = length + np.ones(len(truncated), int)
        wrong = length[(truncated & (length != expected)) | (length > expected)]
        most = max(wrong, default=0)
        require(
            not len(wrong),
            f"with max_steps_in_episode = {TIME_LIMIT} an episode lasted "
            f"{'at least ' * bool(most > expected)}{most} steps, expected truncation "
            f"after exactly {expected}.",
        )
        length = np.where(terminated | truncated, 0, length)


def signature(leaf: Array) -> str:
    """Return the dtype and the shape of an array, such as `float32[4]`."""
    return f"{leaf.dtype}{list(leaf.shape)}"


def is_float(leaf: Any) -> bool:
    """Return whether an array or a number is a floating-point one."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def is_equal(first: Any, second: Any) -> bool:
    """Return whether two pytrees have equal numbers and random keys; NaN is equal."""
    for one, two in zip(*map(jax.tree.leaves, (first, second)), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, two = jax.random.key_data(one), jax.random.key_data(two)
        if not np.array_equal(one, two, equal_nan=is_float(one)):
            return False
    return True
