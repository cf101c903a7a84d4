"""The checks of a rule in a config, made on shapes before anything is traced."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, tried
from purerl.registry import check_part
from purerl.rules.known import RuleInputs, Targets

_SHAPE = (3, 2)  # Steps and environments of the rollout that is tried.


def check_rule(rule: Any, prediction_size: int) -> None:
    """Refuse what is no rule: called once on shapes, nothing computed.

    Args:
        rule: Value of the config's field.

    Raises:
        ConfigError: it is no dataclass, cannot be called so, does not return targets of
            the right shapes, or refuses the size of the prediction.
    """
    example = "purerl.rules.ActorCriticRule()"
    check_kind(rule, prediction_size, "__call__(inputs)", example)
    words = f"return targets of a purerl.rules.RuleInputs, as {example} does"
    call = partial(jax.eval_shape, rule, _inputs(prediction_size))
    targets = tried("rule", rule, words, call)
    expected = (_SHAPE, (*_SHAPE, prediction_size))
    is_pair = isinstance(targets, tuple) and len(targets) == len(Targets._fields)
    found = tuple(getattr(x, "shape", None) for x in targets) if is_pair else targets
    check_shapes(rule, "purerl.rules.Targets", found, expected)


def check_kind(rule: Any, prediction_size: int, calls: str, example: str) -> None:
    """Refuse what is no dataclass with certain functions, or is for another size.

    Args:
        rule: Value of the config's field.
        calls: Functions of a rule, as a sentence has them.
        example: A rule, as it is written.
    """
    lacks = "init()" in calls and not hasattr(rule, "init")
    check_part("rule", () if lacks else rule, example, calls)
    size = getattr(rule, "prediction_size", prediction_size)
    if size != prediction_size:
        raise ConfigError(
            f"prediction_size must be that of the rule, {size}, got {prediction_size}; "
            "leave it at auto."
        )


def check_shapes(rule: Any, kind: str, found: Any, expected: Any) -> None:
    """Refuse what a rule returned if it has not the shapes that it must have.

    Args:
        rule: Rule of a config.
        kind: Words for what it must return.
        found: Shapes of what it returned.
        expected: Shapes that these must be.

    Raises:
        ConfigError: they differ.
    """
    if found != expected:
        raise ConfigError(
            f"rule must return {kind} of the shapes {expected}; {type(rule).__name__} "
            f"returned {found}."
        )


def _inputs(size: int) -> RuleInputs:
    def of(shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    number, flag, one = of(_SHAPE), of(_SHAPE, jnp.bool_), of(())
    many = of((*_SHAPE, size))
    return RuleInputs(number, flag, flag, one, number, many, many, one, one)
