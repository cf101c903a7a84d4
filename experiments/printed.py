"""The machine, versions, date and load of kept numbers, in words."""

from collections.abc import Mapping
from typing import Any


def printed_on(numbers: Mapping[str, Any]) -> str:
    """Return where numbers were printed, and when.

    Args:
        numbers: Kept numbers, with the fields of `results.hardware` and `load_before`.
    """
    return (
        f"{numbers['hardware']}, jax {numbers['jax']}, Python {numbers['python']}, "
        f"{numbers['date']}, load {numbers['load_before']} before"
    )
