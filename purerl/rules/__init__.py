"""Rules of learning: from a rollout to what policy and prediction shall become.

A rule is a callable pytree, as a loss is: it can be vmapped, evolved and configured.
"""

from typing import Any

from purerl.registry import Registry, Table
from purerl.rules.known import ActorCriticRule as ActorCriticRule
from purerl.rules.known import ReturnRule as ReturnRule
from purerl.rules.known import RuleInputs as RuleInputs
from purerl.rules.known import Targets as Targets
from purerl.rules.learned import LPGRule as LPGRule

_CONTRIB = {x: f"purerl.contrib.disco:{x}" for x in ("CMPORule", "DiscoRule")}
RULES: Table[type] = Table(
    {cls.__name__: cls for cls in (ActorCriticRule, ReturnRule, LPGRule)}, _CONTRIB
)
_registry = Registry("rule", "rules", "purerl.rules.register", RULES)


def register(name: str, cls: type) -> None:
    """Let configs with a rule of class `cls` be written to files and read back.

    The same class under the same name may be registered again, as when a notebook's
    cell runs twice: the new one takes the old one's place.

    Args:
        name: Name in files and on command lines, such as `"MyRule"`.
        cls: Class to register, a `flax.struct.dataclass` with `__call__(inputs) ->
            Targets`.

    Raises:
        ConfigError: no such class, no name, or either is taken.
    """
    _registry.register(name, cls)


def __getattr__(name: str) -> Any:
    """Load what `purerl.contrib` has, when it is first used."""
    if name in _CONTRIB:
        return RULES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
