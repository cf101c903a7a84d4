"""Losses by name, so that a config can be written as text and read back."""

import dataclasses
import difflib
from typing import Any

from purerl.config import ConfigError
from purerl.losses.learned import MLPDrift, MLPValueLoss
from purerl.losses.policy import ClipDrift, DPODrift
from purerl.losses.value import ClippedSquaredError, HuberError, SquaredError

POLICY_LOSSES: dict[str, type] = {
    cls.__name__: cls for cls in (ClipDrift, DPODrift, MLPDrift)
}
VALUE_LOSSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (SquaredError, ClippedSquaredError, HuberError, MLPValueLoss)
}
LOSSES: dict[str, type] = POLICY_LOSSES | VALUE_LOSSES


def register(name: str, cls: type) -> None:
    """Let configs with a loss of class `cls` be written to files and read back.

    The same class under the same name may be registered again, as when a notebook's
    cell runs twice: the new one takes the old one's place.

    Args:
        name: Name in files and on command lines, such as `"KLDrift"`.
        cls: A `flax.struct.dataclass` with `__call__`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise ConfigError(
            f"loss {name!r} must be a class made with flax.struct.dataclass, got "
            f"{cls!r}."
        )
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(
            f"the name of a loss must read like that of a class, got {name!r}; for "
            f"example {cls.__name__!r}."
        )
    for known, other in LOSSES.items():
        is_rerun = qualified(cls) == qualified(other)
        if (name == known and not is_rerun) or (name != known and cls is other):
            raise ConfigError(
                f"loss {name!r} of {qualified(cls)}: {known!r} of {qualified(other)} "
                "is registered already; choose another name, or another class."
            )
    LOSSES[name] = cls


def name_of(cls: type) -> str:
    """Return what files call a class of losses: its name, or else `<module.Class>`."""
    for name, known in LOSSES.items():
        if cls is known:
            return name
    return f"<{qualified(cls)}>"


def class_of(name: Any) -> type:
    """Return the class that `name_of` named.

    Raises:
        ConfigError: no such loss.
    """
    for known, cls in LOSSES.items():
        if name in (known, f"<{qualified(cls)}>"):
            return cls
    listed = f"Losses: {', '.join(LOSSES)}."
    if str(name).startswith("<"):
        raise ConfigError(
            f"the loss {name} was not registered when it was written. Call "
            "purerl.losses.register with a name and its class before reading, or pass "
            f"the config as an object. {listed}"
        )
    guess = difflib.get_close_matches(str(name), list(LOSSES), n=1)
    hint = f" Did you mean {guess[0]!r}?" if guess else ""
    raise ConfigError(
        f"there is no loss {name!r}.{hint} {listed} "
        "purerl.losses.register(name, cls) adds one."
    )


def qualified(cls: type) -> str:
    """Return module and name of a class, which tell it from others of its name."""
    return f"{cls.__module__}.{cls.__qualname__}"
