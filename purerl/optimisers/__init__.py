"""Optimisers: callable pytrees, whose numbers can be swept, evolved and configured."""

from typing import Any

from purerl.optimisers.first_order import SGD as SGD
from purerl.optimisers.first_order import Adam as Adam
from purerl.optimisers.first_order import AdamW as AdamW
from purerl.optimisers.first_order import Lion as Lion
from purerl.optimisers.first_order import Muon as Muon
from purerl.optimisers.first_order import RAdam as RAdam
from purerl.optimisers.first_order import RMSProp as RMSProp
from purerl.optimisers.learned import LearnedOptimiser as LearnedOptimiser
from purerl.registry import Registry, Table

_OWN = (Adam, AdamW, SGD, RMSProp, RAdam, Lion, Muon, LearnedOptimiser)
_CONTRIB = {"OpenOptimiser": "purerl.contrib.open:OpenOptimiser"}
OPTIMISERS: Table[type] = Table({cls.__name__: cls for cls in _OWN}, _CONTRIB)
_registry = Registry(
    "optimiser", "optimisers", "purerl.optimisers.register", OPTIMISERS
)


def register(name: str, cls: type) -> None:
    """Let configs with an optimiser of class `cls` be written to files and read back.

    The same class under the same name may be registered again, as when a notebook's
    cell runs twice: the new one takes the old one's place.

    Args:
        name: Name in files and on command lines, such as `"SignDescent"`.
        cls: Class to register, a `flax.struct.dataclass` with
            `__call__(learning_rate)`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    _registry.register(name, cls)


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name in _CONTRIB:
        return OPTIMISERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
