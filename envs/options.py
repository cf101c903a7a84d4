"""Checks of names and options, and what was probably meant."""

import difflib
import operator
from collections.abc import Iterable
from typing import Any


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Read an option that is a whole number; 3.0 is one, as files write it.

    Args:
        least: The smallest number that can be.

    Raises:
        ValueError: it is something else.
    """
    number = _whole(value)
    if number is None or number < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {value!r}."
        )
    return number


def two_whole_numbers(name: str, value: Any) -> tuple[int, int]:
    """Read an option that is a pair of whole numbers, such as a size or a cell.

    Raises:
        ValueError: it is something else.
    """
    try:
        first, second = (_whole(one) for one in value)
    except (TypeError, ValueError):
        first = second = None
    if first is None or second is None:
        raise ValueError(
            f"{name} must be two whole numbers, such as (4, 12), got {value!r}."
        )
    return first, second


def one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Refuse an option that is none of the known ones.

    Args:
        known: Values that can be.

    Raises:
        ValueError: it is something else.
    """
    known = list(known)
    if value not in known:
        raise ValueError(
            f"{name} must be one of {', '.join(map(str, known))}, got {value!r}."
        )


def guess(name: Any, known: Iterable[str], most: int = 1) -> str:
    """Return " Did you mean X?", or nothing; capitals and underscores do not matter.

    Args:
        name: Name that is none of the known ones.
        known: Names that there are.
        most: How many of them are named.
    """
    folded = {one.casefold().replace("_", ""): one for one in known}
    asked = str(name).casefold().replace("_", "")
    # `halfcheetah` alone is a likely slip for `brax/halfcheetah`.
    tails = [small for small in folded if small.rpartition("/")[2] == asked]
    near = difflib.get_close_matches(asked, folded, n=most)
    found = [folded[small] for small in dict.fromkeys([*tails, *near])]
    return f" Did you mean {' or '.join(map(repr, found))}?" if found else ""


def _whole(value: Any) -> int | None:
    """A whole number as an `int`; None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return operator.index(value)
    except TypeError:
        return None
