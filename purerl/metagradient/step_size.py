"""The step size of Adam that meta-gradients are moved by: a number, or a function."""

from collections.abc import Callable
from typing import Any

from purerl import schedules
from purerl.config import ConfigError, as_float32

StepSize = float | Callable[[Any], Any]
"""A step size, or a function from the number of steps so far, int32 `[]`, to it."""


def check_step_size(step_size: StepSize) -> None:
    """Refuse a `meta_learning_rate` that is neither positive nor a function of steps.

    Raises:
        ConfigError: naming the value.
    """
    if schedules.is_moving(step_size):
        raise ConfigError(
            f"meta_learning_rate follows the number of steps so far, not the share of "
            f"a run, so it cannot be {step_size!r}; give a number, or a function such "
            "as optax.linear_schedule(3e-3, 0.0, 1_000)."
        )
    if callable(step_size):
        return
    try:
        is_positive = bool(0 < as_float32(step_size) < float("inf"))
    except (TypeError, ValueError):  # Text, None or several numbers.
        is_positive = False
    if not is_positive:
        raise ConfigError(
            "meta_learning_rate must be greater than 0, or a function from the number "
            "of steps so far to such a number, such as optax.linear_schedule(3e-3, "
            f"0.0, 1_000), got {step_size!r}."
        )
