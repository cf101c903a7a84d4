"""The checks of a loss in a config, made on shapes before anything is traced."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError, how_to_read, shown
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
            f"such as {example}, got {shown(loss)}: a plain function cannot be "
            "vmapped, written to a file or compared on resume. See docs/adding-loss.md."
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
            f"value_loss must not be {shown(loss)} here: no rollout has predicted the "
            "values to which it clips, so that nothing would be clipped. Use "
            "SquaredError() or HuberError()."
        )


def _is_struct(loss: Any) -> bool:
    """Return whether the loss is a dataclass that JAX knows as a pytree."""
    # A loss without numbers has no leaves, so that its structure looks like one.
    return dataclasses.is_dataclass(loss) and not jax.tree_util.all_leaves([loss])
