"""Parts of a config by name: losses, optimisers, schedules, distributions in text.

A part is a callable pytree in a field of a config. Each kind has a `Registry`, which
the package of the kind makes and fills. The functions at the end look in all of them.
"""

import dataclasses
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

import jax

from purerl.config import ConfigError, how_to_read, is_part, shown
from purerl.envs.adapters.packages import object_at
from purerl.envs.options import guess

ON_COMMAND_LINE = "On a command line, --import MODULE imports the module that does so."

_REGISTRIES: list["Registry"] = []
T = TypeVar("T")


class Table(dict[str, T]):
    """Values by name, some of which are imported when they are first read.

    Args:
        known: Values by name.
        lazily: Texts `module:attribute` by name, of what `purerl.contrib` holds.
    """

    def __init__(
        self, known: Mapping[str, T], lazily: Mapping[str, str] | None = None
    ) -> None:
        super().__init__({**known, **(lazily or {})})  # type: ignore[dict-item]

    def __getitem__(self, name: str) -> T:
        """Return the value of a name."""
        value: Any = super().__getitem__(name)
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            value = self[name] = getattr(import_module(module), attribute)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name, or a default where there is none."""
        return self[name] if name in self else default

    def values(self) -> list[T]:
        """Return all values."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, T]]:
        """Return all names with their values."""
        return [(name, self[name]) for name in self]


def loaded(values: dict[str, T]) -> dict[str, T]:
    """Return those values of a table whose modules have been imported, by whomever."""
    found = {}
    for name, value in dict.items(values):
        if isinstance(value, str):
            module, _, attribute = value.partition(":")
            value = getattr(sys.modules.get(module), attribute, None)
        if value is not None:
            found[name] = value
    return found


def check_part(name: str, part: Any, example: str, calls: str = "__call__") -> None:
    """Refuse what is no callable dataclass: a class, text, a function.

    Args:
        name: Field of the config that holds it.
        part: Value of the field.
        example: A part of its kind, as it is written.
        calls: Functions that it must have, for the sentence.
    """
    if isinstance(part, type):
        raise ConfigError(
            f"{name} must be an instance, got the class {part.__name__}; call it to "
            f"make one, such as {example}."
        )
    # A part without numbers has no leaves, so that its structure looks like one.
    if not is_part(part) or jax.tree_util.all_leaves([part]):
        raise ConfigError(
            f"{name} must be an instance of a flax.struct.dataclass with {calls}, such "
            f"as {example}, got {shown(part)}.{how_to_read(part)}"
        )


class Registry:
    """The classes of one kind of part, by name.

    Args:
        kind: Noun of the kind, such as `loss`.
        plural: Plural of the noun.
        call: Name of the function by which users register a class, such as
            `purerl.losses.register`.
        classes: Classes by name; `register` adds to this dictionary.
        base: Base class of all registered classes, if any.
    """

    def __init__(
        self,
        kind: str,
        plural: str,
        call: str,
        classes: dict[str, type],
        base: type = object,
    ) -> None:
        self.kind, self.plural, self.call = kind, plural, call
        self.classes, self.base = classes, base
        _REGISTRIES.append(self)

    def register(self, name: str, cls: type) -> None:
        """Let configs with a part of class `cls` be written to files and read back.

        The same class under the same name may be registered again, as when a
        notebook's cell runs twice: the new one takes the old one's place.

        Args:
            name: Name in files and on command lines, such as `"KLDrift"`.
            cls: Class to register, a `flax.struct.dataclass` with `__call__`.

        Raises:
            ConfigError: no such class, no name, or either is taken.
        """
        if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
            raise ConfigError(
                f"{self.kind} {name!r} must be a class made with "
                f"flax.struct.dataclass, got {cls!r}."
            )
        if not issubclass(cls, self.base):
            where = self.call.rpartition(".")[0]
            raise ConfigError(
                f"{self.kind} {name!r} must derive from {where}.{self.base.__name__}, "
                f"got {cls!r}."
            )
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(
                f"the name of a class of {self.plural} must read like {cls.__name__!r},"
                f" got {name!r}."
            )
        for registry in _REGISTRIES:
            known = registry.classes.get(name)
            if known is not None and qualified(known) != qualified(cls):
                raise ConfigError(
                    f"{self.kind} {name!r} of {qualified(cls)}: {qualified(known)} is "
                    "registered under that name; choose another."
                )
        self.classes[name] = cls

    def find(self, name: Any) -> type | None:
        """Return the class that `name_of` named; None where there is none.

        Capitals do not matter where no other name has the same letters.
        """
        if isinstance(name, str) and name in self.classes:
            return self.classes[name]
        alike = [k for k in self.classes if k.lower() == str(name).lower()]
        return self.classes[alike[0]] if len(alike) == 1 else None


def name_of(cls: type) -> str:
    """Return what files call a class of parts: its name, or else its import path."""
    for registry in _REGISTRIES:
        for name, known in loaded(registry.classes).items():
            if cls is known:
                return name
    return f"{cls.__module__}:{cls.__qualname__}"


def kind_of(cls: type) -> str:
    """Return the noun of a registered class's kind, such as `loss`; else nothing."""
    kinds = (r.kind for r in _REGISTRIES if cls in loaded(r.classes).values())
    return next(kinds, "")


def class_of(name: Any, kind: str = "") -> type:
    """Return the class that `name_of` named.

    Args:
        name: Name, as `name_of` returns it.
        kind: Noun of the kind of part; without one every kind is looked through, as for
            a part inside a part.

    Raises:
        ConfigError: there is no such part; the message lists those of the kind.
    """
    asked = [registry for registry in _REGISTRIES if kind in (registry.kind, "")]
    for registry in asked:
        found = registry.find(name)
        if found is not None:
            return found
    if ":" in str(name):
        is_one = len(asked) == 1
        return _imported(str(name), kind or "part", asked[0].base if is_one else object)
    known = [name for one in asked for name in one.classes]
    words = f"{asked[0].plural.capitalize()}: {', '.join(known)}. " if kind else ""
    calls = " or ".join(f"{registry.call}(name, cls)" for registry in asked)
    raise ConfigError(
        f"there is no {kind or 'part'} {name!r}.{guess(name, known)} {words}{calls} "
        "adds one; an import path such as mypackage.parts:Mine is one too. "
        f"{ON_COMMAND_LINE}"
    )


def _imported(path: str, kind: str, base: type = object) -> type:
    """Return the class of an import path, such as `mypackage.terms:Smooth`.

    Raises:
        ConfigError: its module has not been imported, or there is no part.
    """
    try:
        found = object_at(kind, path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    is_class = isinstance(found, type) and issubclass(found, base)
    if not (is_class and dataclasses.is_dataclass(found) and "__call__" in dir(found)):
        raise ConfigError(
            f"the {kind} {path} must be a flax.struct.dataclass with __call__, got "
            f"{found!r}."
        )
    return found  # type: ignore[return-value]


def is_known(name: str) -> bool:
    """Return whether a part of any kind has a name."""
    return any(one.find(name) is not None for one in _REGISTRIES)


def qualified(cls: type) -> str:
    """Return module and name of a class, which tell it from others of its name."""
    return f"{cls.__module__}.{cls.__qualname__}"
