"""Rules of learning: from a rollout to what policy and prediction shall become.

A rule is a callable pytree, as a loss is: it can be vmapped, evolved and configured.
"""

from typing import Any

from purerl.rules.inputs import RuleInputs as RuleInputs
from purerl.rules.inputs import Targets as Targets
from purerl.rules.known import ActorCriticRule as ActorCriticRule
from purerl.rules.known import ReturnRule as ReturnRule
from purerl.rules.learned import LPGRule as LPGRule
from purerl.rules.registry import RULES as RULES
from purerl.rules.registry import register as register


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name in ("CMPORule", "DiscoRule"):
        return RULES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
