"""The checks of a loss in a config, made on shapes before anything is traced."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError, how_to_read, is_part, shown
from purerl.losses.extra import terms_of
from purerl.losses.value import ClippedSquaredError


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
    if isinstance(loss, type):
        raise ConfigError(
            f"{name} must be a loss, got the class {loss.__name__}; call it to make "
            f"one, such as {example}."
        )
    if isinstance(loss, str):
        raise ConfigError(
            f"{name} must be a loss, such as {example}, got {loss!r}."
            f"{how_to_read(loss)}"
        )
    if callable(loss) and not _is_struct(loss):
        raise ConfigError(
            f"{name} must be an instance of a flax.struct.dataclass with __call__, "
            f"such as {example}, got {shown(loss)}; see docs/adding-loss.md."
        )
    sample = jax.ShapeDtypeStruct((3,), jnp.float32)
    try:
        result = jax.eval_shape(loss, *[sample] * num_inputs)
    except Exception as error:
        raise ConfigError(
            f"{name} must be a loss of {num_inputs} arrays [N], such as {example}, got "
            f"{shown(loss)}, which failed on them: {error}."
        ) from error
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
        if not is_part(term) or jax.tree_util.all_leaves([term]):
            raise ConfigError(
                f"{where} must be a flax.struct.dataclass with coef and __call__("
                f"params, batch, apply, key), or several of them, got {shown(term)}: a "
                "plain function has no coef. See docs/adding-loss.md."
            )
        coef: Any = getattr(term, "coef", None)
        leaves = [jax.tree_util.keystr(p) for p, _ in jax.tree.leaves_with_path(term)]
        if ".coef" not in leaves or isinstance(coef, bool):
            raise ConfigError(
                f"{where} must have a field coef, its weight in the loss, got "
                f"{shown(term)}; add coef: float = 0.1 to {type(term).__name__}."
            )
        if not isinstance(coef, Tracer) and not np.isfinite(coef).all():
            raise ConfigError(f"{where}.coef must be finite, got {coef}.")


def _is_struct(loss: Any) -> bool:
    """Return whether the loss is a dataclass that JAX knows as a pytree."""
    # A loss without numbers has no leaves, so that its structure looks like one.
    return dataclasses.is_dataclass(loss) and not jax.tree_util.all_leaves([loss])
