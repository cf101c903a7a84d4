"""Rungs and brackets of successive halving and Hyperband: arithmetic on the host.

Li et al. 2018 (JMLR 18-185, arXiv:1603.06560), algorithm 1, with updates of training as
the resource. A rung is a number of updates at which members are judged; a bracket is a
number of members that start together, and the first rung at which they are.
"""

import math
from typing import NamedTuple

import numpy as np

from purerl.config import ConfigError
from purerl.scale.devices import Worker, default_lanes

KINDS = ("hyperband", "one")
# Pieces in which a run is cut, so that a kill costs no more than one of them.
PIECES = 20


class Bracket(NamedTuple):
    """Members that start together.

    Attributes:
        size: The number of members that start.
        first_rung: The number of the rung at which they are judged first.
    """

    size: int
    first_rung: int


class HalvingPlan(NamedTuple):
    """The plan of a search: what starts, and when it is judged.

    Attributes:
        eta: The reduction factor: a rung's best `1/eta` go on.
        rungs: Updates at which members are judged, ascending; the last is the end.
        brackets: The brackets, the most aggressive first.
        milestones: Updates at which something is recorded: the rungs, and some between.
    """

    eta: int
    rungs: tuple[int, ...]
    brackets: tuple[Bracket, ...]
    milestones: tuple[int, ...]

    @property
    def size(self) -> int:
        """Members that start, in all brackets."""
        return sum(bracket.size for bracket in self.brackets)

    def bracket_of(self) -> np.ndarray:
        """Return the bracket `[N]` of every member."""
        sizes = [bracket.size for bracket in self.brackets]
        return np.repeat(np.arange(len(sizes)), sizes)

    def survivors(self, bracket: int, rung: int) -> int:
        """Return how many of a bracket's members go on after a rung."""
        size, first = self.brackets[bracket]
        if rung == len(self.rungs) - 1:
            rung -= 1  # The end judges, and drops nobody.
        halvings = max(0, rung - first + 1)
        return max(1, size // self.eta**halvings)

    def alive(self, until: int) -> int:
        """Return how many members train up to an update, if none diverges."""
        passed = [rung for rung, update in enumerate(self.rungs) if update < until]
        last = passed[-1] if passed else -1
        return sum(
            self.survivors(number, last) if passed else bracket.size
            for number, bracket in enumerate(self.brackets)
        )


def check_eta(eta: int) -> None:
    """Refuse what is no reduction factor.

    Raises:
        ConfigError: naming the value.
    """
    if isinstance(eta, bool) or not isinstance(eta, int) or eta < 2:
        raise ConfigError(f"eta must be a whole number of at least 2, got {eta!r}.")


def make_plan(
    num_updates: int,
    min_updates: int,
    eta: int,
    num_points: int | None,
    kind: str,
) -> HalvingPlan:
    """Plan rungs at `min_updates eta^k` below the end, the end, and who starts.

    The last rung is the end of the run, whether or not it is a power away from the one
    before. Bracket `b` of `s + 1` starts with `num_points eta^-b (s + 1) / (s - b + 1)`
    members, rounded up, and is judged first at rung `b`: every bracket trains about as
    many updates. With `num_points = eta^s`, where not given, that is Hyperband.

    Args:
        num_updates: The number of updates of the whole run, U.
        min_updates: The number of updates at the first rung, r.
        eta: The reduction factor, at least 2.
        num_points: The number of members of the first bracket; `eta^s` where not given.
        kind: The kind of plan: `hyperband` for all brackets, `one` for the first alone,
            which is successive halving.

    Raises:
        ConfigError: numbers that leave no rung before the end, and so on.
    """
    if kind not in KINDS:
        raise ConfigError(f"brackets must be one of {', '.join(KINDS)}, got {kind!r}.")
    check_eta(eta)
    if min_updates * eta > num_updates:
        raise ConfigError(
            f"min_updates must leave room for a rung before the end: at most "
            f"{num_updates} / eta = {num_updates // eta}, got {min_updates}. Lower it, "
            "or raise total_timesteps."
        )
    last = 0
    while min_updates * eta ** (last + 1) <= num_updates:
        last += 1
    rungs = (*(min_updates * eta**k for k in range(last)), num_updates)
    first = num_points or eta**last
    brackets = [
        Bracket(math.ceil(first * (last + 1) / (last - b + 1) / eta**b), b)
        for b in range(last + 1 if kind == "hyperband" else 1)
    ]
    milestones = _milestones(rungs, min_updates)
    return HalvingPlan(eta, rungs, tuple(brackets), milestones)


def _milestones(rungs: tuple[int, ...], min_updates: int) -> tuple[int, ...]:
    """The rungs, and what cuts long ways between them; multiples of the first."""
    stride = min_updates * math.ceil(rungs[-1] / (PIECES * min_updates))
    milestones: list[int] = []
    for before, rung in zip((0, *rungs[:-1]), rungs, strict=True):
        milestones += [*range(before + stride, rung, stride), rung]
    return tuple(milestones)


def choose_lanes(plan: HalvingPlan, num_searches: int, workers: list[Worker]) -> int:
    """Return a width at which few lanes are empty once most members are dropped.

    An accelerator's block takes about as long whatever its width, so there it is as
    wide as the whole population asks for. On a CPU its time grows with its lanes: it
    is modelled as `1 + lanes`, and the width with the least time over all rungs is
    taken.

    Args:
        plan: The rungs and brackets of a search.
        num_searches: The number of searches that share the blocks.
        workers: Workers of this process.
    """
    num_members = plan.size * num_searches
    widest = default_lanes(num_members, workers)
    if workers[0].device.platform != "cpu":
        return widest
    ends = np.asarray(plan.rungs)
    spans = np.diff(ends, prepend=0)

    def seconds(width: int) -> float:
        alive = np.asarray([plan.alive(end) for end in ends]) * num_searches
        blocks = np.ceil(alive / width)
        turns = np.ceil(blocks / len(workers))
        return float((turns * (1 + width) * spans).sum())

    widths = [1 << power for power in range(widest.bit_length())]
    return min(reversed(widths), key=seconds)
