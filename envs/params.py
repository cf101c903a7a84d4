"""Numbers put into an environment's parameters by name, each of them checked."""

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .base import Environment
from .options import guess
from .wrappers import Distribution, Wrapper

TIME_LIMIT = "max_steps_in_episode"
# What checks a distribution where one may stand for a number: `(distribution, owner)`.
Drawn = Callable[[Distribution, str], None]


def put_in(params: Any, values: Any, owner: str, drawn: Drawn | None = None) -> Any:
    """Return parameters with values put in.

    Args:
        params: Parameters, a dataclass or a mapping, which may be nested.
        values: Names and values, nested where the parameters are, or a whole
            structure like `params`.
        drawn: Check of distributions; where not given, they are refused.

    Raises:
        ValueError: an unknown name, no number, another shape, NaN, a fraction of what
            is whole, a number that its type does not hold, or a time limit below 1.
    """
    if isinstance(values, Mapping):
        return _put_in(params, values, owner, drawn)
    is_leaf = None if drawn is None else lambda x: isinstance(x, Distribution)
    if jax.tree.structure(values, is_leaf=is_leaf) != jax.tree.structure(params):
        raise ValueError(
            f"{owner} must be names and values, or a whole {type(params).__name__}, "
            f"got {type(values).__name__}."
        )

    def one(path: Any, default: Any, value: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if drawn is not None and isinstance(value, Distribution):
            return _draw(default, value, f"{owner}: {name}", drawn)
        check_limit(value, f"{owner}: {name}")
        return value

    return jax.tree_util.tree_map_with_path(one, params, values)


def _put_in(node: Any, values: Mapping, owner: str, drawn: Drawn | None) -> Any:
    if dataclasses.is_dataclass(node):
        known = {f.name: getattr(node, f.name) for f in dataclasses.fields(node)}
    elif isinstance(node, Mapping):
        known = dict(node)
    else:
        raise ValueError(f"{owner} is a number, got {reprlib.repr(values)}.")
    new = {}
    for name, value in values.items():
        if name not in known:
            raise ValueError(
                f"{owner} has no {name!r}.{guess(name, known)} Names: "
                f"{', '.join(sorted(known))}."
            )
        new[name] = _fit(known[name], value, f"{owner}: {name}", drawn)
    if isinstance(node, Mapping):
        return {**node, **new}
    return dataclasses.replace(node, **new)  # type: ignore[type-var]


def _fit(default: Any, value: Any, owner: str, drawn: Drawn | None) -> Any:
    """`value` with the dtype and shape of `default`, or what stands in its place."""
    if drawn is not None and isinstance(value, Distribution):
        return _draw(default, value, owner, drawn)
    if isinstance(value, Mapping):
        return _put_in(default, value, owner, drawn)
    if isinstance(default, bool | str) or default is None:
        return value  # A static field is no leaf, so it stays as it is.
    if not jax.tree_util.all_leaves([default]):  # A whole structure inside.
        if jax.tree.map(np.shape, value) != jax.tree.map(np.shape, default):
            raise ValueError(
                f"{owner} must be a {type(default).__name__} with arrays of the shapes "
                f"of the default one, got {reprlib.repr(value)}."
            )
        return value
    try:
        given = float(value) if isinstance(value, str) else value
        number = given if isinstance(given, Tracer) else np.asarray(given, float)
        if value is None:  # NumPy reads it as NaN.
            raise TypeError
    except (TypeError, ValueError):
        what = "a number"
        if drawn is not None:
            what += " or a distribution, such as purerl.randomisation.Uniform(0.5, 2.0)"
        raise ValueError(f"{owner} must be {what}, got {value!r}.") from None
    dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(default))
    if not isinstance(number, Tracer):
        if np.any(np.isnan(number)):
            raise ValueError(f"{owner} must not be NaN.")
        check_limit(number, owner)
        if jnp.issubdtype(dtype, jnp.integer):
            least, most = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
            is_within = (least <= number) & (number <= most)
            if not np.all(is_within & (number == np.round(number))):
                raise ValueError(
                    f"{owner} must be a whole number from {least} to {most}, got "
                    f"{number}."
                )
    fitted = jnp.asarray(given, dtype)
    if fitted.shape != np.shape(default):
        raise ValueError(
            f"{owner} has shape {fitted.shape}, expected {np.shape(default)}. To train "
            "one agent per value, use jax.vmap(train, in_axes=(None, 0))(key, "
            "overrides)."
        )
    return fitted


def _draw(default: Any, distribution: Any, owner: str, drawn: Drawn) -> Any:
    """A distribution in the place of a number, checked, its numbers fractions."""
    if isinstance(default, bool | str) or np.shape(default) != ():
        raise ValueError(f"{owner} is no single number, got {distribution!r}.")
    drawn(distribution, owner)
    for end in distribution.ends():
        check_limit(end, owner)
    # Ends that were written as whole numbers become fractions too, because they can
    # move.
    return jax.tree.map(
        lambda x: x if isinstance(x, Tracer) else float(x), distribution
    )


def check_limit(value: Any, owner: str) -> None:
    """Refuse a time limit that is none, or that a counter of steps does not reach.

    Args:
        value: Value of a parameter.
        owner: Name of the parameter, which ends in that of the field.

    Raises:
        ValueError: naming the numbers that can be.
    """
    name = owner.replace(": ", ".").rpartition(".")[2]
    if name != TIME_LIMIT or isinstance(value, Tracer):
        return
    number = np.asarray(value)
    if number.dtype.kind in "iuf" and not np.all((number >= 1) & (number < 2**31)):
        raise ValueError(
            f"{owner} must be a number of steps from 1 to {2**31 - 1}, got {value}."
        )


def check_wrappers(env: Environment, params: Any, owner: str) -> None:
    """Refuse numbers of wrappers that these would refuse where they are made.

    Args:
        env: Environment, with its wrappers.
        params: Its parameters; numbers that are traced or drawn are not looked at.
        owner: Name of the parameters, for the message.

    Raises:
        ValueError: the sentence of the wrapper.
    """
    while isinstance(env, Wrapper):
        numbers = {name: getattr(params, name) for name in env.numbers()}
        if not any(isinstance(x, Tracer | Distribution) for x in numbers.values()):
            try:
                env.check_numbers(numbers)
            except ValueError as error:
                raise ValueError(f"{owner}: {error}") from None
        env = env.env
