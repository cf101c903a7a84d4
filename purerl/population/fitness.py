"""The comparison of members: scores, unknown ones, divergence, and ranks."""

from typing import NamedTuple

import numpy as np

from purerl.execution.curves import weighted_mean
from purerl.search.fitness import EVALUATION, FINAL_RETURN
from purerl.search.protocol import Outcome

KINDS = (FINAL_RETURN, EVALUATION)


class Fitness(NamedTuple):
    """Scores of members, `[...]` each.

    Attributes:
        score: The score of each member, greater is better; NaN where nothing is known,
            or where the member diverged.
        diverged: Whether a number of the member was not finite after the milestone
            before.
    """

    score: np.ndarray
    diverged: np.ndarray


def measure(outcome: Outcome, kind: str) -> Fitness:
    """Return the fitness of members at a milestone.

    Args:
        outcome: The outcome since the milestone before, of `[N]` members.
        kind: The kind of fitness. `evaluation`: fresh episodes of the deterministic
            policy, the same ones for all members of a search. `final_return`: the last
            evaluation that the config planned in the outcome; else the mean return of
            the episodes that ended in training, or the last known one where none did.
    """
    if kind == EVALUATION:
        assert outcome.fresh is not None
        score = outcome.fresh.episode_return.astype(np.float64)
    elif "episode_return" in outcome.evaluation:
        score = outcome.evaluation["episode_return"][:, -1].mean(-1, dtype=np.float64)
    else:
        # Nothing is counted of a member that has diverged.
        episodes = np.nan_to_num(outcome.train["episodes"].astype(np.float64))
        returns = outcome.train["episode_return"]
        has_new = episodes.any(1)
        score = np.where(has_new, weighted_mean(returns, episodes), returns[:, -1])
    diverged = outcome.diverged
    if kind == EVALUATION or "episode_return" in outcome.evaluation:
        # An evaluation always has a return: one that is no number is a bad sign.
        diverged = diverged | ~np.isfinite(score)
    return Fitness(np.where(diverged, np.nan, score), diverged)


def ranking(fitness: Fitness) -> np.ndarray:
    """Return places in an array `[P]`, the best first.

    Those of whom nothing is known come after the others, the diverged ones last. Equals
    are ranked by their number: the same input has one ranking.
    """
    status = np.where(fitness.diverged, 2, np.where(np.isnan(fitness.score), 1, 0))
    score = np.where(status == 0, fitness.score, 0.0)
    return np.lexsort((np.arange(len(score)), -score, status))
