"""Agents of a run whose numbers stopped being finite: said once of each."""

from collections.abc import Sequence

import numpy as np

from purerl.execution.cohort import Segment
from purerl.execution.format import with_noun
from purerl.execution.reduce import PARAMETERS_FINITE, bad_numbers, first_bad_update
from purerl.runner.seeds import seeds_named

REMEDY = (
    "What is learned from there on is worth nothing. Lower learning_rate, or look for "
    "observations and rewards of the environment that are not finite."
)


class Divergence:
    """Looks for agents that have diverged, segment by segment.

    Args:
        seeds: Seeds of the agents.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = np.asarray(seeds)
        self._is_known = np.zeros(len(self._seeds), bool)

    def sentence(self, segment: Segment) -> str:
        """Return what there is to say of a segment; empty where no agent diverged.

        Args:
            segment: Records of the agents; those that diverged before are left out.
        """
        first = first_bad_update(segment.metrics)
        new = (first >= 0) & ~self._is_known
        if not new.any():
            return ""
        self._is_known |= new
        update = first[new].min()
        names = [
            "parameters" if name == PARAMETERS_FINITE else name
            for name, is_bad in bad_numbers(segment.metrics).items()
            if is_bad[new & (first == update), update].any()
        ]
        seeds = self._seeds[new].tolist()
        return (
            f"{with_noun(len(seeds), 'agent')} of {len(self._seeds)} diverged "
            f"({seeds_named(seeds)}): {', '.join(sorted(names))} not finite in update "
            f"{segment.first + update + 1:,}. {REMEDY}"
        )
