"""Losses: callable pytrees, so that a loss can be vmapped, evolved and configured."""

from typing import Any

from purerl.losses.learned import MLPDrift as MLPDrift
from purerl.losses.learned import MLPValueLoss as MLPValueLoss
from purerl.losses.learned import TemporalDrift as TemporalDrift
from purerl.losses.policy import AsymmetricClipDrift as AsymmetricClipDrift
from purerl.losses.policy import ClipDrift as ClipDrift
from purerl.losses.policy import DPODrift as DPODrift
from purerl.losses.value import ClippedSquaredError as ClippedSquaredError
from purerl.losses.value import HuberError as HuberError
from purerl.losses.value import RobustError as RobustError
from purerl.losses.value import SquaredError as SquaredError
from purerl.losses.value import value_error as value_error
from purerl.registry import Registry, Table

_OWN = (
    *(ClipDrift, AsymmetricClipDrift, DPODrift, MLPDrift, TemporalDrift),
    *(SquaredError, ClippedSquaredError, HuberError, RobustError, MLPValueLoss),
)
_CONTRIB = {"FormulaDrift": "purerl.contrib.formula:FormulaDrift"}
LOSSES: Table[type] = Table({cls.__name__: cls for cls in _OWN}, _CONTRIB)
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


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name in _CONTRIB:
        return LOSSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
