"""Losses: callable pytrees, so that a loss can be vmapped, evolved and configured."""

from typing import Any

from purerl.losses.learned import MLPDrift as MLPDrift
from purerl.losses.learned import MLPValueLoss as MLPValueLoss
from purerl.losses.learned import TemporalDrift as TemporalDrift
from purerl.losses.policy import AsymmetricClipDrift as AsymmetricClipDrift
from purerl.losses.policy import ClipDrift as ClipDrift
from purerl.losses.policy import DPODrift as DPODrift
from purerl.losses.policy import surrogate as surrogate
from purerl.losses.registry import LOSSES as LOSSES
from purerl.losses.registry import POLICY_LOSSES as POLICY_LOSSES
from purerl.losses.registry import VALUE_LOSSES as VALUE_LOSSES
from purerl.losses.registry import register as register
from purerl.losses.value import ClippedSquaredError as ClippedSquaredError
from purerl.losses.value import HuberError as HuberError
from purerl.losses.value import RobustError as RobustError
from purerl.losses.value import SquaredError as SquaredError
from purerl.losses.value import value_error as value_error


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name == "FormulaDrift":
        return LOSSES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
