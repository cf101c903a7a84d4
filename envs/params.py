"""Numbers put into an environment's parameters by name, each of them checked."""

import dataclasses
import difflib
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .base import Environment
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
            guess = difflib.get_close_matches(str(name), list(known), n=1)
            hint = f" Did you mean {guess[0]!r}?" if guess else ""
            raise ValueError(
                f"{owner} has no {name!r}.{hint} Names: {', '.join(sorted(known))}."
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
    if not jax.tree_util.all_leaves([default]):
        _check_shapes(default, value, owner)
        return value  # The value replaces a whole sub-structure.
    try:
        if value is None:  # NumPy would read it as NaN.
            raise TypeError
        given = float(value) if isinstance(value, str) else value
        dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(default))
        number = given if isinstance(given, Tracer) else np.asarray(given, float)
    except (TypeError, ValueError):
        raise ValueError(_no_number(value, owner, drawn is not None)) from None
    _check_number(number, dtype, owner)
    fitted = jnp.asarray(given, dtype)
    if fitted.shape == np.shape(default):
        return fitted
    between = ""
    if fitted.shape == (2,) and np.shape(default) == () and drawn is not None:
        low, high = ("low", "high")
        if not isinstance(number, Tracer):
            low, high = map(shortest, np.sort(number))
        between = f" To draw a number between two, use Uniform({low}, {high})."
    raise ValueError(
        f"{owner} has shape {fitted.shape}, expected {np.shape(default)}. To train one "
        f"agent per value, use jax.vmap(train, in_axes=(None, 0))(key, overrides)."
        f"{between}"
    )


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


def _no_number(value: Any, owner: str, may_be_drawn: bool) -> str:
    """The sentence about a parameter that is no number."""
    needed = "a number"
    if may_be_drawn:
        needed += " or a distribution, such as Uniform(0.5, 2.0)"
    got, rest = repr(value), ""
    if isinstance(value, type):
        call = f"call it to make one: {value.__name__}(...)"
        got = f"the class {value.__name__}; {call}"
    elif isinstance(value, str) and "(" in value:
        rest = (
            " Text is for files and command lines: "
            f"purerl.serialise.parse_part({value!r}) reads it."
        )
    elif callable(value):
        rest = (
            " What follows the share of the run is trained by purerl.train_schedules "
            'in pieces, such as {"env_params.length": 0.2} from an update on, or by a '
            "loop around make_algorithm(...).step with traced numbers; see "
            "docs/curricula.md, Physics that change along training."
        )
    return f"{owner} must be {needed}, got {got}.{rest}"


def _check_shapes(default: Any, value: Any, owner: str) -> None:
    """Refuse a sub-structure whose arrays do not fit where it is put."""
    if jax.tree.structure(default) != jax.tree.structure(value):
        raise ValueError(
            f"{owner} must be a {type(default).__name__} like the default one, got "
            f"{type(value).__name__}."
        )
    mine = jax.tree_util.tree_leaves_with_path(default)
    for (path, expected), given in zip(mine, jax.tree.leaves(value), strict=True):
        if np.shape(expected) != np.shape(given):
            raise ValueError(
                f"{owner}{jax.tree_util.keystr(path)} has shape {np.shape(given)}, "
                f"expected {np.shape(expected)}."
            )


def _check_number(value: Any, dtype: Any, owner: str) -> None:
    """Refuse NaN, and where a whole number is kept, what is none or does not fit."""
    if isinstance(value, Tracer):
        return
    if np.any(np.isnan(value)):
        raise ValueError(f"{owner} must not be NaN.")
    if not jnp.issubdtype(dtype, jnp.integer):
        return
    if not np.all(value == np.round(value)):
        raise ValueError(f"{owner} must be a whole number, got {value}.")
    check_limit(value, owner)
    least, most = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max
    if not np.all((least <= value) & (value <= most)):
        raise ValueError(
            f"{owner} must be a whole number from {least} to {most}, got {value}: it "
            f"is kept as {dtype}. Give a number in this range."
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
            f"{owner} must be a number of steps from 1 to {2**31 - 1}, got {value}. "
            "Where nothing should end an episode, give 1000000000; eval_max_steps "
            "bounds the evaluations."
        )


def check_wrappers(
    env: Environment,
    given: Callable[[str, Any], Any],
    owner: str,
    corners: Callable[[dict[str, Any]], Iterable[dict[str, Any]]] = lambda x: [x],
) -> None:
    """Refuse numbers of wrappers that these would refuse where they are made.

    Args:
        env: Environment, with its wrappers.
        given: Function from the name and the default of a number to its value.
        corners: Function from numbers, which may be distributions, to their extremes.

    Raises:
        ValueError: the sentence of the wrapper.
    """
    wrapper = env
    while isinstance(wrapper, Wrapper):
        mine = {
            name: given(name, x)
            for name, x in wrapper.numbers().items()
            if jax.tree_util.all_leaves([x])
        }
        for numbers in corners(mine):
            if any(isinstance(x, Tracer) or np.shape(x) for x in numbers.values()):
                continue
            # Compared and written as training has them, in 32 bits.
            single = {name: shortest(np.float32(x)) for name, x in numbers.items()}
            try:
                wrapper.check_numbers(single)
            except ValueError as error:
                raise ValueError(f"{owner}: {error}") from None
        wrapper = wrapper.env


def shortest(number: Any) -> float:
    """Return the number of the fewest digits that is the same one in 32 bits."""
    return float(str(np.float32(number)))
