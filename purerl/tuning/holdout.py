"""Best against default on fresh seeds: the winner of a search is partly lucky."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purerl.report.statistics.missing import lowest_of
from purerl.runner.arguments import NUM_SEEDS
from purerl.tuning.batch import Batch
from purerl.tuning.pool import Pool
from purerl.tuning.result import Holdout, compare


def fresh_seeds(used: Sequence[int], num: int) -> tuple[int, ...]:
    """Return `num` seeds that no trial has had: those that follow, or the smallest."""
    following = itertools.chain(range(max(used) + 1, NUM_SEEDS), range(NUM_SEEDS))
    return tuple(
        itertools.islice((seed for seed in following if seed not in used), num)
    )


def compare_on_fresh_seeds(
    pool: Pool,
    trial: int,
    best: Mapping[str, Any],
    default: Mapping[str, Any],
    num_seeds: int,
) -> Holdout:
    """Train the best point and the config's own values with the same fresh seeds.

    Both by programs of the lanes and segments of the study, as one batch.

    Args:
        pool: The programs and workers of the study.
        trial: The number of the best trial.
        best: The point of the best trial.
        default: The config's own point.
        num_seeds: The number of seeds of the comparison.
    """
    seeds = fresh_seeds(pool.settings.seeds, num_seeds)
    batch = Batch(pool, [best, default], seeds)
    for report in range(1, pool.settings.reports + 1):
        batch.advance(report)
    scores = [batch.score(number).seeds.tolist() for number in (0, 1)]
    unknown = [np.isnan(scores[n]) & ~batch.diverged[n] for n in (0, 1)]
    on_the_way = [
        score
        for n in (0, 1)
        for curve, failed in zip(batch.curves[n], batch.diverged[n], strict=True)
        if not failed
        for score in curve
    ]
    lowest = lowest_of(on_the_way)
    return compare(trial, seeds, *scores, unknown=unknown, lowest=lowest)
