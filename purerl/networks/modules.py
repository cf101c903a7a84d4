"""Modules of the user's own in a config: read, written, checked, and called.

A field of a config that takes a network holds a name or a flax module. In a file a
module is its import path and its fields, `{"type": "mypackage.nets:MyTorso",
"features": 64}`; on a command line it is `mypackage.nets:MyTorso(features=64)`. An
environment object is written and read in the same way.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict

from purerl.config import ConfigError, check_known
from purerl.envs.adapters.packages import imported, main_name, object_at, read_call
from purerl.envs.base import is_env, is_env_class
from purerl.networks import observe
from purerl.types import Array, PyTree

# The fields of configs that hold a network.
FIELDS = ("torso", "actor", "critic", "memory")
# Packages from which objects that have moved within them can be imported for good.
_PUBLIC = ("flax.linen", "jax.nn", "jax.numpy", "purerl.envs", "purerl.envs.wrappers")
_MAKE = "purerl.envs:make"  # What an environment of another package is made with.
# Packages in which the bare name of a class is looked for, by field.
_HOMES = {"memory": "purerl.networks.memories"}
IMPORT = "import"  # The key of a function or a class among a module's fields.
_EXAMPLE = "mypackage.nets:MyTorso(features=64)"


class Batched(nn.Module):
    """A module of the user's own, which sees one batch axis whatever comes before.

    Rollouts, whole batches of rollouts and single observations have other leading axes.
    These are flattened into one before the module, and put back after it.

    Attributes:
        module: Module that maps `[N, *obs_shape]`, or a pytree of such arrays, and
            whatever comes with it `[N, A]`, to arrays `[N, ...]`.
        obs_ndim: Number of axes of one observation, of a pytree of its first array.
        finish: Function of what the module returned, such as the one that makes it the
            parameters of a distribution.
    """

    module: nn.Module
    obs_ndim: int
    finish: Callable[[Any], Any] | None = None

    def __call__(self, obs: PyTree, *more: Array) -> Any:
        """Outputs `[..., ...]` of observations `[..., *obs_shape]`."""
        first = jax.tree.leaves(obs)[0]
        lead = first.shape[: first.ndim - self.obs_ndim]
        rows = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[len(lead) :]), (obs, *more)
        )
        found = jax.tree.map(
            lambda x: x.reshape(*lead, *x.shape[1:]), self.module(*rows)
        )
        return found if self.finish is None else self.finish(found)


def parse(field: str, value: Any) -> Any:
    """Read a network's field of a config: text and mappings that name a module.

    Args:
        field: Name of the field, for messages.
        value: A name such as `mlp`, a module, `package.module:Class(field=value)`, or
            the mapping that `plain` made. Anything else is returned as it is.

    Raises:
        ConfigError: there is no such class, it is no module, or its fields do not fit.
    """
    if isinstance(value, type) and issubclass(value, nn.Module):
        raise ConfigError(
            f"{field}: got the class {value.__name__}; call it to make a module."
        )
    if isinstance(value, str) and "(" in value and ":" not in value:
        value = _with_home(field, value)
    if isinstance(value, str) and ":" in value:
        value = _read_text(field, value)
    if isinstance(value, Mapping) and "type" in value:
        value = _read(field, value)
    if not isinstance(value, nn.Module):
        return value
    value = copied(value)
    try:
        hash(value)
    except TypeError:
        raise ConfigError(
            f"{field} must be a module whose fields can be hashed, got {text(value)}; "
            "make arrays in its __call__."
        ) from None
    return value


def copied(module: nn.Module) -> nn.Module:
    """Return an equal module that shares nothing with this one; lists become tuples.

    flax takes one module object in two places of a network for one set of parameters.
    """
    names = [field.name for field in _parameters(type(module))]
    values = {name: _copied(getattr(module, name)) for name in names}
    return module.clone(parent=None, **values)


def _copied(value: Any) -> Any:
    if isinstance(value, nn.Module):
        return copied(value)
    if isinstance(value, list) or type(value) is tuple:
        return tuple(map(_copied, value))
    if isinstance(value, Mapping):
        return FrozenDict({name: _copied(inner) for name, inner in value.items()})
    return value


def plain(module: Any, where: str) -> dict[str, Any]:
    """Return a module or an environment as plain values: import path, and fields.

    Args:
        where: Name of the config's field, for messages.

    Raises:
        ConfigError: the class, or a value of a field, that no other program could
            import.
    """
    cls = type(module)
    if made_as := getattr(module, "made_as", None):
        return {"type": _MAKE, **_written(made_as, where)}
    if not is_importable(cls):
        raise ConfigError(
            f"{where} is {path_of(cls)}, a class that no other program can import: "
            "define it at the top level of a module."
        )
    found: dict[str, Any] = {"type": path_of(cls)}
    if is_module(module) and module.name is not None:
        found["name"] = module.name
    for field in _parameters(type(module)):
        value = getattr(module, field.name)
        # A default that is a function or a module comes back with the class.
        if _is_simple(value) or not _is_default(field, value):
            found[field.name] = _written(value, f"{where}.{field.name}")
    return found


def text(module: nn.Module) -> str:
    """Write a module as the command line does, without fields at their defaults."""
    parts = []
    for field in _parameters(type(module)):
        value = getattr(module, field.name)
        if not _is_default(field, value):
            parts.append(f"{field.name}={_text(value)}")
    bracket = f"({', '.join(parts)})" if parts else ""
    return f"{path_of(type(module))}{bracket}"


def is_module(value: Any) -> bool:
    """Return whether a value of a config is a flax module."""
    return isinstance(value, nn.Module)


def is_written(value: Any) -> bool:
    """Return whether a value is a mapping that `plain` made."""
    return isinstance(value, Mapping) and ":" in str(value.get("type", ""))


def check(
    field: str,
    module: nn.Module,
    inputs: Sequence[Any],
    outputs: Any,
    words: str,
) -> None:
    """Refuse a module that does not fit, before anything is traced or computed.

    Args:
        field: Name of the config's field.
        inputs: Shape of each input, without the batch axis, or a pytree of shapes.
        outputs: Shapes that it must return, without the batch axis: a shape, or a pair
            of them; None in a shape stands for any number.
        words: Words for the outputs in the message.

    Raises:
        ConfigError: the module fails, holds more than float32 parameters, or returns
            other shapes.
    """
    size = 3
    arrays = [
        observe.map_shape(
            lambda one: jax.ShapeDtypeStruct((size, *one), jnp.float32), shape
        )
        for shape in inputs
    ]
    shapes = " and ".join(str(jax.tree.map(lambda x: x.shape, x)) for x in arrays)
    name = f"{field} {text(module)}"
    found = tried(name, module, f"float32 inputs {shapes} to {words}", *arrays)
    pair = isinstance(outputs, list)
    expected = [(size, *shape) for shape in (outputs if pair else [outputs])]
    given = list(found) if pair and isinstance(found, tuple | list) else [found]
    if len(given) != len(expected) or not all(map(_fits, given, expected)):
        # Any number of features is written as F.
        wanted = " and ".join(str(shape).replace("None", "F") for shape in expected)
        returned = [f"{leaf.dtype} {leaf.shape}" for leaf in jax.tree.leaves(found)]
        raise ConfigError(
            f"{name} must map inputs {shapes} to float32 {wanted} ({words}), but it "
            f"returned {' and '.join(returned) or repr(found)}."
        )


def tried(name: str, module: nn.Module, words: str, *inputs: PyTree) -> Any:
    """Return the shapes of what a module makes of inputs; refuse it if it cannot.

    Args:
        name: Name of the module in messages.
        words: What it must map to what, for the message.
        *inputs: Inputs that the module is called with, or their shapes.

    Raises:
        ConfigError: it fails, also where it has its parameters and nothing else: no
            statistics of batches, no random numbers.
    """

    def made(*inputs: PyTree) -> Any:
        variables: Any = copied(module).init(jax.random.key(0), *inputs)
        return copied(module).apply({"params": variables.get("params", {})}, *inputs)

    try:
        return jax.eval_shape(made, *inputs)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{name} must map {words} with parameters alone, no random numbers and no "
            f"statistics of batches, but it failed: {type(error).__name__}: {first}"
        ) from error


def _fits(found: Any, shape: tuple[Any, ...]) -> bool:
    actual = getattr(found, "shape", None)
    if actual is None or len(actual) != len(shape) or found.dtype != jnp.float32:
        return False
    return all(b in (None, a) for a, b in zip(actual, shape, strict=True))


def _parameters(cls: type) -> list[inspect.Parameter]:
    """What a class is called with, without what flax adds."""
    found = inspect.signature(cls).parameters.values()
    added = ("parent", "name") if issubclass(cls, nn.Module) else ()
    return [one for one in found if one.name not in added]


def _is_default(field: inspect.Parameter, value: Any) -> bool:
    try:
        return bool(value == field.default)
    except ValueError:  # An array is equal element by element.
        return False


def path_of(value: Any) -> str:
    """Return the import path of a class or a function, its public one if it has one."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    for public in _PUBLIC:
        if getattr(sys.modules.get(public), name, None) is value:
            return f"{public}:{name}"
    module = getattr(value, "__module__", "")
    return f"{main_name() if module == '__main__' else module}:{name}"


def is_importable(value: Any) -> bool:
    """Return whether another program finds a class or a function at its path."""
    with contextlib.suppress(ValueError):
        return object_at("", path_of(value)) is value
    return False


def _is_simple(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_simple, value))
    return value is None or isinstance(value, bool | int | float | str)


def _written(value: Any, where: str) -> Any:
    """A value of a module's field as plain Python."""
    if is_module(value) or is_env(value):
        return plain(value, where)
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return np.asarray(value).tolist()
    if type(value) in (tuple, list):
        return [_written(inner, where) for inner in value]
    if _is_simple(value):
        return value
    if isinstance(value, Mapping):
        return {str(n): _written(inner, f"{where}.{n}") for n, inner in value.items()}
    if is_importable(value):
        return {IMPORT: path_of(value)}
    raise ConfigError(
        f"{where} is {value!r}, which no file can hold: give a number, a word, a "
        "module, or a function that is defined at the top level of a module."
    )


def _read(field: str, values: Mapping[str, Any]) -> Any:
    """The module or the environment that `plain` wrote."""
    values = dict(values)
    path = str(values.pop("type"))
    cls = _class_at(field, path)
    if path != _MAKE:
        known = [n for n in inspect.signature(cls).parameters if n != "parent"]
        for name in values:
            check_known(name, known, f"{field} {path}")
    try:
        return cls(**{name: _value(field, inner) for name, inner in values.items()})
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{field}: cannot make {path}: {error}.") from None


def _value(field: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(field, inner) for inner in value)
    if not isinstance(value, Mapping):
        return value
    if "type" in value:
        return _read(field, value)
    if set(value) == {IMPORT}:
        return imported_at(field, str(value[IMPORT]))
    return FrozenDict({name: _value(field, inner) for name, inner in value.items()})


def _class_at(field: str, path: str) -> Any:
    found = imported_at(field, path)
    is_module_class = isinstance(found, type) and issubclass(found, nn.Module)
    if is_module_class or is_env_class(found) or path == _MAKE:
        return found
    kind = "environments" if field == "env" else "flax modules"
    raise ConfigError(f"{field} must name a class of {kind}, and {path} is {found!r}.")


def imported_at(field: str, path: str, example: str = _EXAMPLE) -> Any:
    """Return the object of an import path.

    Args:
        field: Name of the field that names it, for messages.
        example: What such a name looks like, for messages.

    Raises:
        ConfigError: its module has not been imported or has no such name, or it is of
            Python's own library and none of its numbers.
    """
    try:
        found = object_at(field, path, example)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    # A flax module calls what stands in its fields, and a file must not reach os.abort.
    home = str(getattr(found, "__module__", "")).partition(".")[0]
    is_number = found in (bool, int, float, complex)
    if home in sys.stdlib_module_names and not is_number:
        raise ConfigError(
            f"{field} names {path}, which is of Python's own library; for example "
            f"{example}."
        )
    return found


def _with_home(field: str, value: str) -> str:
    """The text with the import path before the name of a class of this package."""
    home = _HOMES.get(field)
    if home is None:
        return value
    name, bracket, inside = value.strip().partition("(")
    for known, cls in vars(imported(home)).items():
        is_module = isinstance(cls, type) and issubclass(cls, nn.Module)
        if is_module and known.lower() == name.strip().lower():
            return f"{home}:{known}{bracket}{inside}"
    return value


def _read_text(field: str, value: str) -> dict[str, Any]:
    try:
        path, unnamed, values = read_call(field, value, _EXAMPLE)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if unnamed:
        raise ConfigError(
            f"{field}: the fields of a module are named, and {path} was given "
            f"{', '.join(map(repr, unnamed))} without a name."
        )
    return {"type": path, **values}


def _text(value: Any) -> str:
    if isinstance(value, nn.Module):
        return text(value)
    if type(value) is tuple:
        inner = ", ".join(map(_text, value))
        return f"({inner}{',' if len(value) == 1 else ''})"
    return path_of(value) if callable(value) else repr(value)
