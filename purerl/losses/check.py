"""What a loss in a config must be, checked on shapes before anything is traced."""

from typing import Any

import jax
import jax.numpy as jnp

from purerl.config import ConfigError


def check_loss(name: str, loss: Any, num_inputs: int, example: str) -> None:
    """Refuse what is no loss of its kind: called once on shapes, nothing computed.

    Args:
        name: of the config's field.
        loss: what is in it.
        num_inputs: arrays `[N]` that a loss of this kind takes.
        example: of one that would do, for the message.

    Raises:
        ConfigError: it cannot be called so, or does not return `[N]`.
    """
    sample = jax.ShapeDtypeStruct((3,), jnp.float32)
    try:
        result = jax.eval_shape(loss, *[sample] * num_inputs)
    except Exception as error:
        raise ConfigError(
            f"{name} must be a loss of {num_inputs} arrays [N], such as {example}, got "
            f"{loss!r}, which failed on them: {error}."
        ) from error
    if getattr(result, "shape", None) != (3,):
        raise ConfigError(
            f"{name} must return one number per sample [N], such as {example} does; "
            f"{loss!r} returned {result!r} for N = 3."
        )
