"""Agents of a run whose numbers stopped being finite: said once of each, and kept.

A run's manifest has the entry `diverged`, by seed the first update with a number that
was not finite.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purerl.execution.cohort import Segment
from purerl.execution.format import with_noun
from purerl.execution.reduce import CHECKS, bad_numbers, first_bad_update
from purerl.runner.seeds import seeds_named
from purerl.streams import say

DIVERGED = "diverged"  # The entry of a run's manifest.
MAX_NAMED = 12  # Seeds that a sentence names one by one.
WORTHLESS = "What is learned from there on is worth nothing."
REMEDY = (
    "Lower learning_rate, or look for observations and rewards of the environment that "
    "are not finite."
)


class Divergence:
    """Looks for agents that have diverged, segment by segment.

    Args:
        seeds: Seeds of the agents.

    Attributes:
        diverged_at: The first update `[S]` with a number that is not finite, or -1.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = np.asarray(seeds)
        self.diverged_at = np.full(len(self._seeds), -1)

    def sentence(self, segment: Segment) -> str:
        """Return what there is to say of a segment; empty where no agent diverged.

        Args:
            segment: Records of the agents; those that diverged before are left out.
        """
        first = first_bad_update(segment.metrics)
        new = (first >= 0) & (self.diverged_at < 0)
        if not new.any():
            return ""
        self.diverged_at[new] = segment.first + first[new]
        update = first[new].min()
        names = [
            CHECKS.get(name, name)
            for name, is_bad in bad_numbers(segment.metrics).items()
            if is_bad[new & (first == update), update].any()
        ]
        seeds = self._seeds[new].tolist()
        return (
            f"{with_noun(len(seeds), 'agent')} of {len(self._seeds)} diverged "
            f"({seeds_named(seeds)}): {', '.join(sorted(names))} not finite in update "
            f"{segment.first + update + 1:,}. {WORTHLESS} {REMEDY}"
        )

    @property
    def entry(self) -> dict[str, int]:
        """The entry of the manifest: by seed the update of those that diverged."""
        return entry_of(self._seeds.tolist(), self.diverged_at)


def entry_of(seeds: Sequence[int], diverged_at: np.ndarray) -> dict[str, int]:
    """Return the first bad update of the agents that diverged, by seed, for JSON.

    Args:
        seeds: Seeds of the agents.
        diverged_at: The first bad update of each agent, `[S]`, or -1.
    """
    pairs = zip(seeds, diverged_at, strict=True)
    return {str(seed): int(update) for seed, update in pairs if update >= 0}


def read_diverged_at(
    stored: Mapping[str, Any], seeds: Sequence[int], until: int
) -> np.ndarray:
    """Return the first bad update `[S]` of a stored run's agents, or -1.

    Args:
        stored: The manifest of the run.
        seeds: Seeds of the agents.
        until: The number of finished updates up to which is looked.
    """
    named = stored[DIVERGED]
    found = np.array([named.get(str(seed), -1) for seed in seeds])
    return np.where(found < until, found, -1)


def diverged_words(seeds: Sequence[int], diverged_at: np.ndarray) -> str:
    """Say which agents diverged, and when: `seed 3 diverged in update 4`.

    Args:
        seeds: Seeds of the agents.
        diverged_at: The first bad update of each agent, `[S]`, or -1.

    Returns:
        No sentence but its beginning; empty where no agent diverged.
    """
    is_lost = diverged_at >= 0
    if not is_lost.any():
        return ""
    names = np.asarray(seeds)[is_lost].tolist()
    words = seeds_named(names)
    if len(names) > MAX_NAMED and "," in words:
        words = f"{seeds_named(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} others"
    first = diverged_at[is_lost].min() + 1
    return f"{words} diverged{',' if len(names) > 1 else ''} " + (
        f"the first in update {first:,}" if len(names) > 1 else f"in update {first:,}"
    )


def warn(seeds: Sequence[int], diverged_at: np.ndarray) -> None:
    """Say in a line, on the standard error, which agents diverged, if any did.

    Args:
        seeds: Seeds of the agents.
        diverged_at: The first bad update of each agent, `[S]`, or -1.
    """
    words = diverged_words(seeds, diverged_at)
    if words:
        say(f"{words}. {WORTHLESS}")
