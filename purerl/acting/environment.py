"""The door to `envs`: from what the config names to an environment and its numbers."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl import envs
from purerl.config import (
    ConfigError,
    TrainConfig,
    check_mapping,
    how_to_read,
    shortest,
    shown,
    thaw,
)
from purerl.envs.base import EVALUATION_STEPS, StepError, five_values, two_values
from purerl.envs.checker import EnvCheckError, check_member, signatures
from purerl.envs.wrappers import Randomised, RandomisedOnce, Wrapper, distributions
from purerl.randomisation import (
    check_distribution,
    check_groups,
    corners,
    is_distribution,
    is_random,
)
from purerl.types import PyTree, Schedule

Environment = envs.Environment
_TIME_LIMIT = "max_steps_in_episode"


def resolve_env(config: TrainConfig) -> Environment:
    """Make the environment that `config.env` names or is, with its wrappers.

    Raises:
        ConfigError: unknown id (with near names), bad options, an object that does
            not keep the contract, or a wrapper that is unknown or does not fit.
    """
    check_mapping("env_kwargs", config.env_kwargs, '{"backend": "spring"}')
    if isinstance(config.env, str):
        try:
            env = envs.make(config.env, **thaw(config.env_kwargs or {}))
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None
    else:
        if config.env_kwargs:
            raise ConfigError(
                "env_kwargs must be left out where env is an object, got "
                f"{shown(config.env_kwargs)} for {config.env!r}: it is made already."
            )
        try:
            env = envs.adapt(config.env)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"env: {error}") from None
    if env.on_host:
        _check_on_host(config, env)
        return env
    try:
        env = envs.wrap(env, wrappers_of(config))
        if is_random(config.env_params):
            each = config.randomise_per == "environment"
            env = RandomisedOnce(env) if each else Randomised(env)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if config.reset_scheme == "pool" and isinstance(env, RandomisedOnce):
        raise ConfigError(
            "reset_scheme='pool' draws starts that all environments share, which "
            "randomise_per='environment' does not allow. Use reset_scheme='fresh'."
        )
    if config.reset_scheme == "pool" and not steps_without_reset(env):
        raise ConfigError(
            f"reset_scheme='pool' needs an environment with step_env and reset_env, "
            f"but {env.name} only resets by itself. Use reset_scheme='fresh'."
        )
    bind_params(env, config.env_params)
    return env


def _check_on_host(config: TrainConfig, env: Any) -> None:
    """Refuse what only environments inside a compiled program have.

    Args:
        config: Config of the agent.
        env: The environment that it names.

    Raises:
        ConfigError: naming the field and the remedy.
    """
    asked = {
        "env_wrappers": (wrappers_of(config), env.wrapped_by),
        "env_params": (
            config.env_params,
            f"give numbers as env_kwargs, which {env.taken_by} takes",
        ),
        "reset_scheme": (
            config.reset_scheme if config.reset_scheme != "fresh" else None,
            "use reset_scheme='fresh'",
        ),
    }
    for field, (value, remedy) in asked.items():
        if value:
            raise ConfigError(
                f"{field} must be left out with env={config.env!r}, which is stepped "
                f"on the host, got {value!r}; {remedy}."
            )


def wrappers_of(config: TrainConfig) -> tuple[str, ...]:
    """Return the texts of a config's wrappers; one alone may stand as it is.

    Raises:
        ConfigError: they are no texts.
    """
    texts: Any = config.env_wrappers
    texts = (texts,) if isinstance(texts, str) else texts
    if not isinstance(texts, tuple | list) or not all(
        isinstance(text, str) for text in texts
    ):
        raise ConfigError(
            f"env_wrappers must be texts, got {texts!r}; for example "
            '("FrameStack(4)",). A wrapper that is an object goes around env itself.'
        )
    return tuple(texts)


def is_built_in(config: TrainConfig) -> bool:
    """Return whether every process can make a config's environment from its names.

    Not of an object, nor of what this program alone has registered.
    """
    return (
        isinstance(config.env, str)
        and envs.source_of(config.env) != "registered"
        and envs.wrappers.are_built_in(wrappers_of(config))
    )


def check_contract(config: TrainConfig, env: Environment) -> None:
    """Refuse what reset and step return where it is not what training can take.

    Shapes are evaluated, and nothing is computed. An environment that this package
    makes by its name is known to keep its word, and costs nothing here.

    Args:
        config: Config of the agent.
        env: Environment, from `resolve_env`.

    Raises:
        ConfigError: an observation that is not what the environment's own space says,
            a reward that is not one number, a flag that is not one truth value, a step
            of other than five values, a reset of other than two, or an observation or a
            state of other types after a step than after a reset.
    """
    if env.on_host or is_built_in(config):
        return
    params, key = bind_params(env, config.env_params), jax.random.key(0)
    space = env.observation_space(params)

    def step(key: jax.Array, state: PyTree) -> PyTree:
        action = env.action_space(params).sample(key)
        obs, state, reward, *flags = _outcome(env, params, key, state, action)
        _check_reward(env, reward)
        for name, flag in zip(("terminated", "truncated"), flags, strict=True):
            _check_flag(env, name, flag)
        return obs, state

    try:
        found = jax.eval_shape(lambda key: env.reset(key, params), key)
        first, state = two_values(env, found)
        check_member(env, "reset returns an observation", first, space, exact=False)
        later, after = jax.eval_shape(step, key, state)
        check_member(env, "step returns an observation", later, space, exact=False)
    except ConfigError:
        raise
    except StepError as error:
        raise ConfigError(f"env: {error} envs.check(env) tests the rest.") from None
    except EnvCheckError as error:
        raise ConfigError(
            f"env: {error} Change one of the two; envs.check(env) tests the rest."
        ) from None
    except Exception:
        return  # Training in the environment will show its own error.
    _check_same(env, "an observation", first, later)
    _check_same(env, "a state", state, after)


def _check_same(env: Environment, what: str, first: PyTree, later: PyTree) -> None:
    """Refuse what has other types after a step than after a reset."""
    before, now = dict(signatures(first)), dict(signatures(later))
    rest = "which a loop cannot carry. {} envs.check(env) tests the rest."
    if before.keys() != now.keys():
        raise ConfigError(
            f"env: {env.name}: reset returns {what} with the leaves "
            f"{', '.join(before)}, and step one with {', '.join(now)}, "
            f"{rest.format('Give both the same;')}"
        )
    for name, signature in before.items():
        if now[name] != signature:
            where = f" whose {name.removeprefix('.')} is" if name else " of"
            raise ConfigError(
                f"env: {env.name}: reset returns {what}{where} {signature}, and step "
                f"one{where} {now[name]}, {rest.format('Cast one of the two;')}"
            )


def _check_reward(env: Environment, reward: Any) -> None:
    """Refuse a reward that is not a single number."""
    is_real = _kind_of(reward) in "biuf"
    if is_real and np.shape(reward) == ():
        return
    raise ConfigError(
        f"env: {env.name}: step returns a reward of {_described(reward)}, expected one "
        "number, float32[]. Take one with reward[0], reward.sum() or the like; "
        "envs.check(env) tests the rest."
    )


def _check_flag(env: Environment, name: str, flag: Any) -> None:
    """Refuse a flag with which a loop cannot compute as with one truth value."""
    # `~False` is -1 in Python; only `terminated` is negated.
    is_usable = hasattr(flag, "dtype") or name == "truncated"
    if is_usable and _kind_of(flag) == "b" and np.shape(flag) == ():
        return
    raise ConfigError(
        f"env: {env.name}: step returns {name} as {_described(flag)}, expected one "
        f"truth value of JAX, bool[], such as state.time >= 10 or jnp.asarray({name}, "
        "bool). envs.check(env) tests the rest."
    )


def _kind_of(value: Any) -> str:
    """The kind of a value's dtype as NumPy names kinds; `O` of what is no number."""
    try:
        dtype = jnp.result_type(value)
    except TypeError:
        return "O"
    return "f" if jnp.issubdtype(dtype, jnp.floating) else np.dtype(dtype).kind


def _described(value: Any) -> str:
    """Return a value in words: `int32[2]` of an array, else its class in Python."""
    if hasattr(value, "dtype"):
        return f"{value.dtype}{list(np.shape(value))}"
    return f"a Python {type(value).__name__}"


def bind_params(env: Environment, values: Any) -> PyTree:
    """Return the environment's parameters with `values` put in.

    Args:
        env: The environment.
        values: None, a mapping of names to values (nested where the parameters are),
            or a whole parameter structure.

    Raises:
        ConfigError: an unknown name, another shape, choices of one group that have not
            equally many values, a number that a wrapper refuses, or a distribution in
            the place of what was a number when the environment was made.
    """
    defaults = env.default_params
    if not isinstance(env, Randomised) and is_random(values):
        raise ConfigError(
            f"env_params of {env.name} holds a distribution where the config has a "
            "number, and the program is made for numbers. Put the distribution into "
            "the config; its numbers are overridden by name, such as "
            "'env_params.length.low'."
        )
    if values is None:
        return defaults
    if isinstance(values, Mapping):
        check_mapping("env_params", values, '{"length": 0.5}')
    params = _bound(env, defaults, values)
    check_groups(distributions(params), f"env_params of {env.name}")
    _check_wrappers(env, values)
    return params


def _check_wrappers(env: Environment, values: Any) -> None:
    """Refuse numbers of wrappers that these would refuse where they are made."""
    wrapper = env
    while isinstance(wrapper, Wrapper):
        # As they are given: inside a traced program all bound parameters are traced.
        given = {
            name: values.get(name, default)
            if isinstance(values, Mapping)
            else getattr(values, name)
            for name, default in wrapper.numbers().items()
        }
        for numbers in corners(given):
            if any(isinstance(x, Tracer) or np.shape(x) for x in numbers.values()):
                continue
            # Compared and written as training has them, in 32 bits.
            single = {name: shortest(np.float32(x)) for name, x in numbers.items()}
            try:
                wrapper.check_numbers(single)
            except ValueError as error:
                raise ConfigError(f"env_params of {env.name}: {error}") from None
        wrapper = wrapper.env


def _bound(env: Environment, defaults: PyTree, values: Any) -> PyTree:
    """The parameters with the values put in, each of them checked by itself."""
    if not isinstance(values, Mapping):
        given = jax.tree.structure(values, is_leaf=is_distribution)
        if given != jax.tree.structure(defaults):
            raise ConfigError(
                f"env_params must be names and values, or {type(defaults).__name__} as "
                f"{env.name} takes it, got {type(values).__name__}."
            )

        def one(path: Any, default: Any, value: Any) -> Any:
            owner = f"env_params of {env.name}: {_dotted(path)}"
            if is_distribution(value):
                return _fit(default, value, owner)
            _check_limit(value, owner)
            return value

        return jax.tree_util.tree_map_with_path(one, defaults, values)
    return _put_in(defaults, values, f"env_params of {env.name}")


def _dotted(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _put_in(node: Any, values: Mapping[str, Any], owner: str) -> Any:
    if dataclasses.is_dataclass(node):
        known = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
    elif isinstance(node, Mapping):
        known = dict(node)
    else:
        raise ConfigError(f"{owner} is a number, got {shown(values)}.")
    new = {}
    for name, value in values.items():
        if name not in known:
            guess = difflib.get_close_matches(str(name), list(known), n=1)
            hint = f" Did you mean {guess[0]!r}?" if guess else ""
            raise ConfigError(
                f"{owner} has no {name!r}.{hint} Names: {', '.join(sorted(known))}."
            )
        new[name] = _fit(known[name], value, f"{owner}: {name}")
    if isinstance(node, Mapping):
        return {**node, **new}
    return dataclasses.replace(node, **new)  # type: ignore[type-var]


def _fit(default: Any, value: Any, owner: str) -> Any:
    """`value` with the dtype and shape of `default`, or a distribution of such."""
    if is_distribution(value):
        if isinstance(default, bool | str) or np.shape(default) != ():
            raise ConfigError(f"{owner} is no single number, got {value!r}.")
        check_distribution(value, owner)
        for end in value.ends():
            _check_limit(end, owner)
        # Ends that were written as whole numbers become fractions too, because they can
        # move.
        return jax.tree.map(lambda x: x if isinstance(x, Tracer) else float(x), value)
    if isinstance(value, Mapping):
        return _put_in(default, value, owner)
    if isinstance(default, bool | str) or default is None:
        return value  # A static field is no leaf, so it stays as it is.
    if not jax.tree_util.all_leaves([default]):
        _check_shapes(default, value, owner)
        return value  # The value replaces a whole sub-structure.
    if value is None:  # NumPy would read it as NaN.
        raise ConfigError(_no_number(value, owner))
    try:
        if isinstance(value, str):
            value = float(value)
        dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(default))
        number = value if isinstance(value, Tracer) else np.asarray(value, float)
    except (TypeError, ValueError):
        raise ConfigError(_no_number(value, owner)) from None
    _check_number(number, dtype, owner)
    value = jnp.asarray(value, dtype)
    if value.shape != np.shape(default):
        drawn = ""
        if value.shape == (2,) and not isinstance(number, Tracer):
            low, high = map(shortest, np.sort(number))
            drawn = f" To draw a number between two, use Uniform({low}, {high})."
        raise ConfigError(
            f"{owner} has shape {value.shape}, expected {np.shape(default)}. To train "
            "one agent per value, use jax.vmap(train, in_axes=(None, 0))(key, "
            f"overrides).{drawn if np.shape(default) == () else ''}"
        )
    return value


def _no_number(value: Any, owner: str) -> str:
    """The sentence about a parameter that is neither a number nor a distribution."""
    got, rest = repr(value), ""
    if isinstance(value, type):
        call = f"call it to make one: {value.__name__}(...)"
        got = f"the class {value.__name__}; {call}"
    elif isinstance(value, str) and "(" in value:
        rest = how_to_read(value)
    elif isinstance(value, Schedule):
        rest = (
            " What follows the share of the run is trained by purerl.train_schedules "
            'in pieces, such as {"env_params.length": 0.2} from an update on, or by a '
            "loop around make_algorithm(...).step with traced numbers; see "
            "docs/curricula.md, Physics that change along training."
        )
    return (
        f"{owner} must be a number or a distribution, such as Uniform(0.5, 2.0), got "
        f"{got}.{rest}"
    )


def _check_shapes(default: Any, value: Any, owner: str) -> None:
    """Refuse a sub-structure whose arrays do not fit where it is put."""
    expected, given = jax.tree.structure(default), jax.tree.structure(value)
    if expected != given:
        raise ConfigError(
            f"{owner} must be a {type(default).__name__} like the default one, got "
            f"{type(value).__name__}."
        )
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(default),
        jax.tree.leaves(value),
        strict=True,
    )
    for (path, mine), theirs in pairs:
        if np.shape(mine) != np.shape(theirs):
            raise ConfigError(
                f"{owner}{jax.tree_util.keystr(path)} has shape {np.shape(theirs)}, "
                f"expected {np.shape(mine)}."
            )


def _check_number(value: Any, dtype: Any, owner: str) -> None:
    """Refuse NaN, and where a whole number is kept, what is none or does not fit."""
    if isinstance(value, Tracer):
        return
    is_whole = bool(np.all(value == np.round(value)))
    if np.any(np.isnan(value)):
        raise ConfigError(f"{owner} must not be NaN.")
    if not jnp.issubdtype(dtype, jnp.integer):
        return
    if not is_whole:
        raise ConfigError(f"{owner} must be a whole number, got {value}.")
    _check_limit(value, owner)
    least, most = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    if not np.all((least <= value) & (value <= most)):
        raise ConfigError(
            f"{owner} must be a whole number from {least} to {most}, got {value}: it "
            f"is kept as {dtype}. Give a number in this range."
        )


def _check_limit(value: Any, owner: str) -> None:
    """Refuse a time limit that is none, or that a counter of steps does not reach."""
    name = owner.replace(": ", ".").rpartition(".")[2]
    if name != _TIME_LIMIT or isinstance(value, Tracer):
        return
    number = np.asarray(value)
    if number.dtype.kind in "iuf" and not np.all((number >= 1) & (number < 2**31)):
        raise ConfigError(
            f"{owner} must be a number of steps from 1 to {2**31 - 1}, got {value}. "
            "Where nothing should end an episode, give 1000000000; eval_max_steps "
            "bounds the evaluations."
        )


def steps_without_reset(env: Environment) -> bool:
    """Return whether `step_env` and `is_truncated` together are what `step` does.

    Not for adapted wrappers, nor where a subclass has a `step` of its own: that one
    then is the environment.
    """
    return env.steps_without_reset and type(env).step is Environment.step


def keeps_last_state(env: Environment) -> bool:
    """Return whether `step_without_reset` returns the state in which an episode ended.

    Where it does not, nobody but the environment ever sees that state.
    """
    return isinstance(env, RandomisedOnce) or steps_without_reset(env)


def step_without_reset(
    env: Environment, params: PyTree, key: jax.Array, state: PyTree, action: jax.Array
) -> tuple[Any, PyTree, jax.Array, jax.Array, jax.Array]:
    """Take one step of one environment, which leaves an ended episode as it ended.

    An environment that can only step with a reset returns the next episode's state
    with the last one's observation: enough for those who look at nothing after the end,
    and for others see `keeps_last_state`.

    Args:
        env: Environment to step.
        params: Numbers of the environment.
        key: Random key, consumed.
        state: State of the running episode.
        action: Action of the environment.

    Returns:
        `obs, state, reward, terminated, truncated`, the flags never both true.
    """
    obs, state, reward, terminated, truncated = _outcome(
        env, params, key, state, action
    )
    reward = jnp.asarray(reward, jnp.float32)
    return obs, state, reward, terminated, truncated & ~terminated


def _outcome(
    env: Environment, params: PyTree, key: jax.Array, state: PyTree, action: jax.Array
) -> tuple[Any, PyTree, Any, Any, Any]:
    """Take the step of `step_without_reset`, and cast nothing of what it returns."""
    if not keeps_last_state(env):
        _, state, reward, terminated, truncated, info = env.step(
            key, state, action, params
        )
        return info["final_observation"], state, reward, terminated, truncated
    # Of `RandomisedOnce` only the next episode is special. The key is split as in the
    # environment's own `step`.
    if isinstance(env, RandomisedOnce) and env.stochastic_transitions:
        key = jax.random.split(key)[0]
    taken = env.step_env(key, state, action, params)
    obs, state, reward, terminated, _ = five_values(env, taken)
    return obs, state, reward, terminated, env.is_truncated(state, params)


def time_limit(config: TrainConfig, env: Environment) -> int:
    """Return the longest evaluation episode in steps, a number fixed before tracing.

    It is `eval_max_steps`, or else the environment's time limit, `EVALUATION_STEPS` at
    most. Steps are the agent's, of which one may be several of the environment's.

    Raises:
        ConfigError: there are evaluations, and the time limit that bounds them is
            traced, so that nobody knows how long they may be.
    """
    if config.eval_max_steps > 0:
        return config.eval_max_steps
    # Inside a traced program too, a number that is not traced stays a number.
    with jax.ensure_compile_time_eval():
        params = bind_params(env, config.env_params)
        limit: Any = getattr(params, _TIME_LIMIT, None)
        if is_distribution(limit):
            limit = limit.ends()[1]  # Nothing that is drawn is longer.
            limit = limit if isinstance(limit, Tracer) else math.ceil(limit)
    if isinstance(limit, Tracer):
        if config.num_evaluations > 0:
            raise ConfigError(
                "env_params.max_steps_in_episode is traced or vmapped, so the longest "
                "evaluation episode is not known. Set eval_max_steps to the largest "
                "limit, or num_evaluations=0."
            )
        return EVALUATION_STEPS
    if limit is None or int(limit) < 1:
        return EVALUATION_STEPS
    return min(-(-int(limit) // env.time_per_step), EVALUATION_STEPS)
