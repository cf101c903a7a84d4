"""Fields of configs: structure or numbers, with a help sentence and a check each.

A field made with `static` fixes shapes or the program and is read before tracing. A
field made with `dynamic` is a leaf: it may be traced, vmapped and overridden by name.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from flax.core import FrozenDict
from jax.core import Tracer

from purerl.errors import check_known, shortest


@jax.tree_util.register_static
class Auto(str):
    """The value of a field that follows the task: see `TrainConfig.automatic`.

    It is the word `auto`, and no leaf: a config that holds it passes through `jax.jit`.
    """


AUTO = Auto("auto")


def is_auto(value: Any) -> bool:
    """Return whether a field's value is `AUTO`, or that word."""
    return isinstance(value, str) and value == AUTO


class Check(NamedTuple):
    """A range check and the sentence that reports its violation."""

    holds: Callable[[Any], bool]
    words: str


POSITIVE = Check(lambda x: x > 0, "must be greater than 0")
NON_NEGATIVE = Check(lambda x: x >= 0, "must be 0 or greater")
FRACTION = Check(lambda x: 0 <= x <= 1, "must lie between 0 and 1")
DECAY = Check(lambda x: 0 <= x < 1, "must be 0 or greater and less than 1")
NAMES = Check(
    lambda x: isinstance(x, tuple) and all(isinstance(n, str) and n for n in x),
    'must be names, such as ("torso",)',
)
FUNCTIONS = Check(
    lambda x: (
        isinstance(x, tuple)
        and all(
            ":" in f
            if isinstance(f, str)
            else getattr(f, "__name__", "").isidentifier()
            for f in x
        )
    ),
    "must be functions of your own that have a name, or their import paths, such as "
    '("lab:mean_action",)',
)
WIDTH = Check(lambda x: 0 < x <= 2**20, "must be between 1 and 1,048,576")
FEW = Check(lambda x: 0 < x <= 2**10, "must be between 1 and 1,024")
POSITIVE_OR_NONE = Check(lambda x: x is None or x > 0, POSITIVE.words)
SIZES = Check(
    lambda x: isinstance(x, tuple) and all(type(n) is int and 0 < n < 2**31 for n in x),
    "must be positive whole numbers, such as (64, 64)",
)
LAYERS = Check(
    lambda x: bool(x) and SIZES.holds(x),
    "must be positive whole numbers, at least one, such as (64, 64)",
)


def one_of(*choices: str) -> Check:
    """Make a check that the value is one of `choices`."""
    return Check(
        lambda x: isinstance(x, str) and x in choices,
        f"must be one of {', '.join(choices)}",
    )


def static(default: Any, help: str, check: Check | None = None) -> Any:
    """Declare a field that is structure: it fixes shapes or the program."""
    return _field(default, help, check, pytree_node=False)


def dynamic(
    default: Any,
    help: str,
    check: Check | None = None,
    *,
    moves: bool = True,
    stays: bool = False,
) -> Any:
    """Declare a field that is a number (or a pytree of numbers): it can be vmapped.

    Args:
        moves: Whether the number may be a schedule; False for one that says itself how
            something moves. Numbers that no update reads are found by tracing:
            `train.read_by_updates`.
        stays: Whether the number must be the same in a whole run, because what was
            learned means something else with another one.
    """
    more = {"moves": moves and not stays, "stays": stays}
    return _field(default, help, check, pytree_node=True, **more)


def by_actions(
    field: Callable[..., Any],
    discrete: Any,
    continuous: Any,
    help: str,
    check: Check | None = None,
) -> Any:
    """Declare a field that is `auto`, and then takes a value by the kind of actions.

    Args:
        field: `static` or `dynamic`.
        discrete: Value where actions are discrete.
        continuous: Value where they are continuous.
        help: Sentence for command lines and documentation, to which both are added.
    """
    words = f"{help} auto takes {discrete} (discrete actions) or {continuous}."
    declared = field(AUTO, words, check)
    values = {"discrete": discrete, "continuous": continuous}
    declared.metadata = {**declared.metadata, "by_actions": values}
    return declared


def values_by_actions(config: Any, kind: str) -> dict[str, Any]:
    """Return what the fields made with `by_actions` take, by name.

    Args:
        config: Config with such fields.
        kind: `discrete` or `continuous`.
    """
    return {
        field.name: field.metadata["by_actions"][kind]
        for field in dataclasses.fields(config)
        if "by_actions" in field.metadata
    }


def _field(default: Any, help: str, check: Check | None, **more: bool) -> Any:
    return _declared(default, {"help": help, "check": check, **more})


def _declared(default: Any, metadata: Mapping[str, Any]) -> Any:
    if type(default).__hash__ is None or dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _equal(config: Any, other: Any) -> bool:
    """Return whether two configs are of one class and have equal fields.

    What dataclasses compare with raises an error where a part holds arrays.
    """
    if type(config) is not type(other):
        return NotImplemented
    names = field_names(config)
    return all(_same(getattr(config, name), getattr(other, name)) for name in names)


def _same(value: Any, other: Any) -> bool:
    """Return whether two values of a field are equal, in every number of an array."""
    if value is other:
        return True
    leaves, structure = jax.tree.flatten(value)
    others, of_other = jax.tree.flatten(other)
    if structure != of_other:
        return False
    return all(
        x is y or (np.shape(x) == np.shape(y) and np.all(x == y))
        for x, y in zip(leaves, others, strict=True)
    )


ConfigT = TypeVar("ConfigT")


@dataclass_transform(frozen_default=True)
def config_dataclass(cls: type[ConfigT]) -> type[ConfigT]:
    """Apply `flax.struct.dataclass`, but keep the config's own `replace`.

    A plain default, such as `num_envs: int = 8`, keeps what the class above says of the
    field: whether it is structure, its help and its check. A name that is no field gets
    the sentence of `replace`, with a guess at what was meant.
    """
    above = {
        field.name: field
        for base in reversed(cls.__mro__[1:])
        for field in getattr(base, "__dataclass_fields__", {}).values()
    }
    for name in inspect.get_annotations(cls):
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if name in above and not isinstance(default, dataclasses.Field):
            setattr(cls, name, _declared(default, above[name].metadata))
    replace = cls.replace  # type: ignore[attr-defined]
    cls = struct.dataclass(cls)
    cls.replace = replace  # type: ignore[attr-defined]
    cls.__eq__ = _equal  # The hash stays that of the fields.
    make = cls.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **fields: Any) -> None:
        for name in fields:
            check_known(name, field_names(cls), cls.__name__)
        make(self, *args, **fields)

    cls.__init__ = init
    return cls


def static_fields(config: Any) -> list[dataclasses.Field]:
    """Return the fields that are structure."""
    return [
        field
        for field in dataclasses.fields(config)
        if not field.metadata.get("pytree_node", True)
    ]


def field_names(config: Any) -> list[str]:
    """Return names of all fields of a config (or config class)."""
    return [field.name for field in dataclasses.fields(config)]


def is_number(field: dataclasses.Field) -> bool:
    """Return whether a field is a number with a fraction, or such a number or None."""
    return field.type in (float, "float") or may_be_none(field)


def may_be_none(field: dataclasses.Field) -> bool:
    """Return whether a field is a number with a fraction or None."""
    return field.type in (float | None, "float | None")


# Kinds of parts that a field may hold.
PART_KINDS = ("loss", "optimiser", "rule")


def part_kind(name: str) -> str | None:
    """Return what kind of part a field holds by its name, None for a plain field.

    The kinds are those of `PART_KINDS`.

    Args:
        name: Name of a config's field, such as `policy_loss` or `actor_optimiser`.
    """
    last = name.split("_")[-1]
    is_kind = name.endswith("_loss") or last in ("optimiser", "rule")
    return last if is_kind else None


def is_part(value: Any) -> bool:
    """Return whether a value is a callable dataclass: loss, optimiser or schedule."""
    is_instance = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_instance and callable(value)


_SINGLE = (int, float, bool, "int", "float", "bool")
_SEVERAL = (tuple[int, ...], "tuple[int, ...]")


def as_python(value: Any, field: dataclasses.Field) -> Any:
    """Return what a field of plain numbers was given by NumPy or JAX as Python has it.

    Structure is hashed, compared and written to files, which arrays cannot be.

    Args:
        value: Anything; what is no number, or no whole numbers where a field holds
            several, stays.
        field: Field that is structure.
    """
    if field.type in _SINGLE and is_real(value) and np.shape(value) == ():
        is_fraction = jnp.issubdtype(value.dtype, jnp.floating)
        return shortest(value) if is_fraction else np.asarray(value).item()
    if field.type not in _SEVERAL:
        return value
    if is_real(value) and np.ndim(value) == 1:
        return tuple(np.asarray(value).tolist())
    if isinstance(value, list | tuple):
        return tuple(int(n) if isinstance(n, np.integer) else n for n in value)
    return value


def as_float32(value: Any) -> np.float32:
    """Return the number that programs compute with, of a number of Python.

    What is too large for a float32 is infinite there, and what is too small is 0, as
    processors take it.

    Raises:
        TypeError: it is text, which NumPy would read as a number.
    """
    if isinstance(value, str):
        raise TypeError(f"{value!r} is no number.")
    try:
        with np.errstate(all="ignore"):
            number = np.float32(value)
    except OverflowError:  # A whole number that no fraction holds.
        return np.float32(np.copysign(np.inf, 1 if value > 0 else -1))
    return np.float32(0) if abs(number) < np.finfo(np.float32).tiny else number


def is_real(value: Any) -> bool:
    """Return whether a value holds real numbers, or truth values, of NumPy or JAX."""
    if isinstance(value, Tracer) or not isinstance(
        value, np.generic | np.ndarray | jax.Array
    ):
        return False
    kinds = (np.bool_, jnp.integer, jnp.floating)
    return any(jnp.issubdtype(value.dtype, kind) for kind in kinds)


def as_tuples(value: Any) -> Any:
    """Return a value with tuples for its lists and frozen dicts for its dicts.

    So it can be hashed, and is the same whether Python or a file wrote it.

    Args:
        value: Anything; what is neither a list, a plain tuple nor a mapping stays.
    """
    if type(value) in (list, tuple):  # A named tuple keeps its names.
        return tuple(map(as_tuples, value))
    if isinstance(value, dict | FrozenDict):
        return FrozenDict({name: as_tuples(inner) for name, inner in value.items()})
    return value


def thaw(value: Any) -> Any:
    """Return a value with lists for its tuples and dicts for its frozen dicts.

    So others get what a file would have given them; the inverse of `as_tuples`.
    """
    if type(value) in (list, tuple):
        return list(map(thaw, value))
    if isinstance(value, dict | FrozenDict):
        return {name: thaw(inner) for name, inner in value.items()}
    return value
