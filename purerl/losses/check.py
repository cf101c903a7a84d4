"""The checks of a loss in a config, made on shapes before anything is traced."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError, shown, tried
from purerl.losses.extra import terms_of
from purerl.losses.value import ClippedSquaredError
from purerl.registry import check_part


def check_loss(name: str, loss: Any, num_inputs: int, example: str) -> None:
    """Refuse what is no loss of its kind: called once on shapes, nothing computed.

    Args:
        name: Name of the config's field.
        loss: Value of the config's field.
        num_inputs: Number of arrays `[N]` that a loss of this kind takes.
        example: Name of a loss that would do, for the message.

    Raises:
        ConfigError: it is no dataclass, cannot be called so, or does not return
            `[N]`.
    """
    check_part(name, loss, example)
    sample = jax.ShapeDtypeStruct((3,), jnp.float32)
    words = f"be a loss of {num_inputs} arrays [N], such as {example}"
    call = partial(jax.eval_shape, loss, *[sample] * num_inputs)
    result = tried(name, loss, words, call)
    if getattr(result, "shape", None) != (3,):
        raise ConfigError(
            f"{name} must return one number per sample [N], such as {example} does; "
            f"{shown(loss)} returned {result!r} for N = 3."
        )


def check_value_loss(loss: Any) -> None:
    """Refuse what is no value loss for values that no rollout has predicted before.

    Args:
        loss: Value of the config's field `value_loss`.

    Raises:
        ConfigError: see `check_loss`; or a loss that keeps values near those of the
            rollout.
    """
    check_loss("value_loss", loss, 3, "SquaredError()")
    if isinstance(loss, ClippedSquaredError):
        raise ConfigError(
            f"value_loss must not be {shown(loss)} here: no rollout has predicted "
            "values to clip to. Use SquaredError() or HuberError()."
        )


def check_terms(config: Any) -> None:
    """Refuse what is no term.

    Raises:
        ConfigError: naming the field, the value, the constraint and the remedy.
    """
    for name, term in terms_of(config).items():
        is_one = not isinstance(config.extra_loss, Mapping)
        where = "extra_loss" if is_one else f"extra_loss.{name}"
        check_part(where, term, "Penalty(coef=0.1)", "coef and __call__")
        coef: Any = getattr(term, "coef", None)
        leaves = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(term)]
        is_number = not isinstance(coef, bool | str) and np.shape(coef) == ()
        if ".coef" not in leaves or not is_number:
            raise ConfigError(
                f"{where} must have a field coef, one number, its weight, got "
                f"{shown(term)}; add coef: float = 0.1 to {type(term).__name__}."
            )
        if not isinstance(coef, Tracer) and not np.isfinite(coef):
            raise ConfigError(f"{where}.coef must be finite, got {coef}.")
