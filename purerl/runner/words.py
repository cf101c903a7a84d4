"""Numbers in words that fit a line."""

import math
from collections.abc import Sequence

from purerl import auto
from purerl.train import Bound
from purerl.types import Overrides


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


def count(number: int, noun: str) -> str:
    """`1 update`, `2 updates`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
