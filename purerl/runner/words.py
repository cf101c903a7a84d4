"""Numbers in words that fit a line."""

import math


def si(number: float) -> str:
    """A number with k, M or G."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{letter}"
    return f"{number:.3g}"


def clock(seconds: float) -> str:
    """Seconds as `m:ss` or `h:mm:ss`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(number: float) -> str:
    """Bytes with KiB, MiB or GiB."""
    for limit, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= limit:
            return f"{number / limit:,.3g} {unit}"
    return f"{number:.0f} B"
