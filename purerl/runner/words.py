"""Numbers in words that fit a line."""

import math
from collections.abc import Sequence

from purerl import auto
from purerl.train import Bound
from purerl.types import Overrides


def si(number: float) -> str:
    """A number with three digits and k, M, G or T."""
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


def count(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 agent`, `2 agents`, `3 losses`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def clock(seconds: float) -> str:
    """Seconds as `m:ss` or `h:mm:ss`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(number: float) -> str:
    """Bytes with KiB, MiB, GiB, TiB or PiB."""
    return _with_unit(number, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB", " PiB"))


def evaluations(bound: Bound) -> str:
    """How many evaluations a run has, and why there are fewer than were asked for."""
    config, planned = bound.config, len(bound.plan.evaluate_after)
    episodes = count(config.eval_episodes, "episode")
    words = f"{count(planned, 'evaluation')} of {episodes}"
    if planned == config.num_evaluations:
        return words
    reason = (
        "an update each"
        if planned == bound.plan.num_updates
        else f"{planned} affordable within eval_share={config.eval_share:g}"
    )
    return f"{words} ({config.num_evaluations} asked for, {reason})"


def notes(bound: Bound, overrides: Sequence[Overrides] = ()) -> list[str]:
    """What a person should know of a training before it begins, a line each.

    Args:
        bound: config, environment and plan.
        overrides: with which it is trained, of some of its members.
    """
    each = [auto.values(bound.asked, bound.at(values)) for values in overrides or [{}]]
    named = {name for values in overrides for name in values}
    words = [
        f"{name}={_plain(value)}"
        for name, value in each[0].items()
        # What the members differ in is said by their axes.
        if name not in named and all(other.get(name) == value for other in each)
    ]
    found = [f"auto: {', '.join(words)}"] if words else []
    return [*found, bound.env.note] if bound.env.note else found


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
