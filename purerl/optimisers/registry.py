"""Optimisers by name, so that a config can be written as text and read back."""

from purerl.optimisers.first_order import SGD, Adam, AdamW, Lion, RAdam, RMSProp
from purerl.optimisers.learned import LearnedOptimiser
from purerl.optimisers.muon import Muon
from purerl.registry import Registry, Table

_OWN = (Adam, AdamW, SGD, RMSProp, RAdam, Lion, Muon, LearnedOptimiser)
OPTIMISERS: Table[type] = Table(
    {cls.__name__: cls for cls in _OWN},
    {"OpenOptimiser": "purerl.contrib.open:OpenOptimiser"},
)
_registry = Registry(
    "optimiser", "optimisers", "purerl.optimisers.register", OPTIMISERS
)


def register(name: str, cls: type) -> None:
    """Let configs with an optimiser of class `cls` be written to files and read back.

    Args:
        name: Name in files and on command lines, such as `"SignDescent"`.
        cls: Class to register, a `flax.struct.dataclass` with
            `__call__(learning_rate)`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    _registry.register(name, cls)
