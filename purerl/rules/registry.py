"""Rules by name, so that a config can be written as text and read back."""

from purerl.registry import Registry, Table
from purerl.rules.known import ActorCriticRule, ReturnRule
from purerl.rules.learned import LPGRule

RULES: Table[type] = Table(
    {cls.__name__: cls for cls in (ActorCriticRule, ReturnRule, LPGRule)},
    {name: f"purerl.contrib.disco:{name}" for name in ("CMPORule", "DiscoRule")},
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
