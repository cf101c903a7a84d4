"""Fields of epsilon-greedy exploration, of every algorithm that explores so."""

from typing import Any

from purerl.acting import exploration
from purerl.config import AUTO, FRACTION, POSITIVE, dynamic, one_of, static


def schedule_field() -> Any:
    """Declare the field `epsilon_schedule`."""
    return static(
        "linear", "Form of the decay of exploration.", one_of(*exploration.SCHEDULES)
    )


def start_field() -> Any:
    """Declare the field `epsilon_start`."""
    return dynamic(1.0, "Share of random actions at first.", FRACTION)


def end_field(default: float) -> Any:
    """Declare the field `epsilon_end`."""
    return dynamic(
        default, "Share of random actions at the end of the decay.", FRACTION
    )


def fraction_field(default: float) -> Any:
    """Declare the field `epsilon_fraction`."""
    return dynamic(
        default,
        "Share of the run over which exploration decays.",
        exploration.SHARE,
        moves=False,
    )


def steps_field() -> Any:
    """Declare the field `epsilon_steps`."""
    return dynamic(
        AUTO,
        "Environment steps of the linear decay, or that halve the inverse-time one; "
        "auto takes epsilon_fraction of total_timesteps.",
        POSITIVE,
        moves=False,
    )
