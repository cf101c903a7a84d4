"""Losses by name, so that a config can be written as text and read back."""

from purerl.losses.learned import MLPDrift, MLPValueLoss, TemporalDrift
from purerl.losses.policy import AsymmetricClipDrift, ClipDrift, DPODrift
from purerl.losses.value import (
    ClippedSquaredError,
    HuberError,
    RobustError,
    SquaredError,
)
from purerl.registry import Registry, Table

_POLICY = (ClipDrift, AsymmetricClipDrift, DPODrift, MLPDrift, TemporalDrift)
_VALUE = (SquaredError, ClippedSquaredError, HuberError, RobustError, MLPValueLoss)
_LAZILY = {"FormulaDrift": "purerl.contrib.formula:FormulaDrift"}
POLICY_LOSSES: Table[type] = Table({cls.__name__: cls for cls in _POLICY}, _LAZILY)
VALUE_LOSSES: Table[type] = Table({cls.__name__: cls for cls in _VALUE})
LOSSES: Table[type] = Table({cls.__name__: cls for cls in (*_POLICY, *_VALUE)}, _LAZILY)

_registry = Registry("loss", "losses", "purerl.losses.register", LOSSES)


def register(name: str, cls: type) -> None:
    """Let configs with a loss of class `cls` be written to files and read back.

    The same class under the same name may be registered again, as when a notebook's
    cell runs twice: the new one takes the old one's place.

    Args:
        name: Name in files and on command lines, such as `"KLDrift"`.
        cls: Class to register, a `flax.struct.dataclass` with `__call__`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    _registry.register(name, cls)
