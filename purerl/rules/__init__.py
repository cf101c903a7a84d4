"""Rules of learning: from a rollout to what policy and prediction shall become.

A rule is a callable pytree, as a loss is: it can be vmapped, evolved and configured.
"""

from purerl.rules.disco import CMPORule as CMPORule
from purerl.rules.disco import DiscoRule as DiscoRule
from purerl.rules.inputs import RuleInputs as RuleInputs
from purerl.rules.inputs import Targets as Targets
from purerl.rules.known import ActorCriticRule as ActorCriticRule
from purerl.rules.known import ReturnRule as ReturnRule
from purerl.rules.learned import LPGRule as LPGRule
from purerl.rules.registry import RULES as RULES
from purerl.rules.registry import register as register
