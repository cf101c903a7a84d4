"""The checks of a rule of a `DiscoConfig`, on shapes before it is traced."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, is_part, shown
from purerl.rules.disco.inputs import DiscoInputs, DiscoTargets, Outputs, Values

_SHAPE = (3, 2)  # Steps and trajectories that are tried.
_ACTIONS = 4
_EXAMPLE = "purerl.rules.CMPORule()"


def check_disco_rule(rule: Any, prediction_size: int) -> None:
    """Refuse what is no rule: called once on shapes, nothing computed.

    Args:
        rule: Value of the config's field.
        prediction_size: Numbers of the predictions, M.

    Raises:
        ConfigError: it is no such rule, or does not return targets of the right shapes
            and a memory of the shapes that it began with.
    """
    is_rule = is_part(rule) and callable(getattr(rule, "init", None))
    if not is_rule or jax.tree_util.all_leaves([rule]):
        raise ConfigError(
            "rule must be an instance of a flax.struct.dataclass with init() and "
            "__call__(inputs, memory, axis_name), such as "
            f"{_EXAMPLE}, got {shown(rule)}."
        )
    size = getattr(rule, "prediction_size", prediction_size)
    if size != prediction_size:
        raise ConfigError(
            f"prediction_size must be that of the rule, {size}, got {prediction_size}; "
            "leave it at auto."
        )
    name = type(rule).__name__
    try:
        memory = jax.eval_shape(rule.init)
        targets, after = jax.eval_shape(rule, _inputs(prediction_size), memory)
        found = tuple(x.shape for x in DiscoTargets(*targets))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"rule must return targets of a purerl.rules.disco.DiscoInputs, as "
            f"{_EXAMPLE} does; {name} failed on one with prediction_size="
            f"{prediction_size}: {error}."
        ) from error
    expected = ((*_SHAPE, _ACTIONS), *[(*_SHAPE, prediction_size)] * 2)
    if found != expected:
        raise ConfigError(
            f"rule must return DiscoTargets of the shapes {expected} for T = 3, B = 2, "
            f"A = 4 and M = {prediction_size}; {name} returned {found}."
        )
    if _described(memory) != _described(after):
        raise ConfigError(
            "rule must return a memory of the shapes and types with which it begins, "
            f"{_described(memory)}; {name} returned {_described(after)}."
        )


def _described(memory: Any) -> Any:
    return jax.tree.map(lambda x: (tuple(x.shape), str(x.dtype)), memory)


def _inputs(size: int) -> DiscoInputs:
    def of(*more: int, dtype: Any = jnp.float32) -> Any:
        return jax.ShapeDtypeStruct((*_SHAPE, *more), dtype)

    outputs = Outputs(of(_ACTIONS), of(size), of(_ACTIONS, size))
    number, each = of(), of(_ACTIONS)
    values = Values(number, number, each, number, number, each, number, each)
    return DiscoInputs(
        action=of(dtype=jnp.int32),
        reward=number,
        terminated=of(dtype=jnp.bool_),
        truncated=of(dtype=jnp.bool_),
        behaviour=each,
        online=outputs,
        next_online=outputs,
        target=outputs,
        next_target=outputs,
        values=values,
    )
