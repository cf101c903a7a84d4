"""Losses: callable pytrees, so that a loss can be vmapped, evolved and configured."""

from purerl.losses.learned import MLPDrift as MLPDrift
from purerl.losses.learned import MLPValueLoss as MLPValueLoss
from purerl.losses.policy import ClipDrift as ClipDrift
from purerl.losses.policy import DPODrift as DPODrift
from purerl.losses.policy import surrogate as surrogate
from purerl.losses.value import ClippedSquaredError as ClippedSquaredError
from purerl.losses.value import HuberError as HuberError
from purerl.losses.value import SquaredError as SquaredError

POLICY_LOSSES = {cls.__name__: cls for cls in (ClipDrift, DPODrift, MLPDrift)}
VALUE_LOSSES = {
    cls.__name__: cls
    for cls in (SquaredError, ClippedSquaredError, HuberError, MLPValueLoss)
}
LOSSES = POLICY_LOSSES | VALUE_LOSSES
