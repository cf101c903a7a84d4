"""Numbers as text that fits a line, and paths as a shell takes them."""

import math
import shlex
from collections.abc import Sequence


def format_count(number: float) -> str:
    """Return a number with three digits and k, M, G or T."""
    return _with_unit(number, 1000.0, ("", "k", "M", "G", "T"))


def _with_unit(number: float, base: float, units: Sequence[str]) -> str:
    """A number in the largest unit of which it has at least one, to three digits."""
    if not math.isfinite(number):
        return f"{number}{units[0]}"
    power = 0
    # What would be written as a whole unit is one: 999,999 is 1M, and not 1000k.
    while power < len(units) - 1 and abs(number) >= base - 0.5:
        number, power = number / base, power + 1
    digits = f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"
    return f"{digits}{units[power]}"


def quoted(path: object) -> str:
    """Return a path as it stands in a command for a shell, in quotes where it must."""
    return shlex.quote(str(path))


def with_noun(number: int, noun: str, nouns: str = "") -> str:
    """Return a number and its noun: `1 agent`, `2 agents`, `3 losses`.

    Args:
        number: The number.
        noun: The noun in the singular.
        nouns: The noun in the plural; with an added `s` where not given.
    """
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Return seconds as `m:ss` or `h:mm:ss`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_bytes(number: float) -> str:
    """Return bytes with KiB, MiB, GiB, TiB or PiB."""
    return _with_unit(number, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))
