"""The checks of a rule in a config, made on shapes before anything is traced."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, how_to_read, is_part, shown
from purerl.rules.known import RuleInputs, Targets
from purerl.tracing import read_by

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
    targets = tried(
        rule,
        lambda: jax.eval_shape(rule, _inputs(prediction_size)),
        f"a purerl.rules.RuleInputs, as {example} does",
        prediction_size,
    )
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

    Raises:
        ConfigError: naming what was given.
    """
    if isinstance(rule, type):
        raise ConfigError(
            f"rule must be an instance of a rule, got the class {rule.__name__}; call "
            f"it to make one, such as {example}."
        )
    lacks = "init()" in calls and not callable(getattr(rule, "init", None))
    # A rule without numbers has no leaves, so that its structure looks like one.
    if lacks or not is_part(rule) or jax.tree_util.all_leaves([rule]):
        raise ConfigError(
            f"rule must be an instance of a flax.struct.dataclass with {calls}, such "
            f"as {example}, got {shown(rule)}.{how_to_read(rule)}"
        )
    size = getattr(rule, "prediction_size", prediction_size)
    if size != prediction_size:
        raise ConfigError(
            f"prediction_size must be that of the rule, {size}, got {prediction_size}; "
            "leave it at auto."
        )


def tried(rule: Any, call: Callable[[], Any], words: str, prediction_size: int) -> Any:
    """Return what a rule makes of shapes; refuse it if it fails.

    Args:
        rule: Rule of a config.
        call: Function that calls it.
        words: What it is called with.

    Raises:
        ConfigError: it failed.
    """
    try:
        return call()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"rule must return targets of {words}; {type(rule).__name__} failed on "
            f"one with {prediction_size=}: {error}."
        ) from error


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


def moves_policy(rule: Any, part: str, prediction_size: int) -> bool:
    """Return whether the target of the policy depends on a part of a rule.

    Args:
        rule: Rule of a config, without schedules.
        part: Dotted name of the part.
    """
    leaves, structure = jax.tree.flatten_with_path(rule)
    named = {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in leaves
    }

    def policy(numbers: dict[str, Any], inputs: RuleInputs) -> Any:
        made = structure.unflatten([numbers[name] for name in named])
        return made(inputs).policy

    read = read_by(policy, named, _inputs(prediction_size))
    return any(f"{name}.".startswith(f"{part}.") for name in read)


def _inputs(size: int) -> RuleInputs:
    def of(shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    number, flag, one = of(_SHAPE), of(_SHAPE, jnp.bool_), of(())
    many = of((*_SHAPE, size))
    return RuleInputs(number, flag, flag, one, number, many, many, one, one)
