"""Optimisers: callable pytrees, whose numbers can be swept, evolved and configured."""

from typing import Any

from purerl.optimisers.first_order import SGD as SGD
from purerl.optimisers.first_order import Adam as Adam
from purerl.optimisers.first_order import AdamW as AdamW
from purerl.optimisers.first_order import Lion as Lion
from purerl.optimisers.first_order import RAdam as RAdam
from purerl.optimisers.first_order import RMSProp as RMSProp
from purerl.optimisers.learned import LearnedOptimiser as LearnedOptimiser
from purerl.optimisers.muon import Muon as Muon
from purerl.optimisers.registry import OPTIMISERS as OPTIMISERS
from purerl.optimisers.registry import register as register


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name == "OpenOptimiser":
        return OPTIMISERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
