"""A segment's metrics as one number per member: what is kept of every update."""

from collections.abc import Mapping

import numpy as np

from purerl.metrics import HELD, PER_UPDATE, SINCE_START, count_of, is_defined
from purerl.types import HostMetrics

# Names of metrics that segments report beside the algorithm's, and that are in no row:
# whether all parameters were finite after the segment's last update, and whether bad
# transitions are as few as `max_bad_transitions` allows.
PARAMETERS_FINITE = "parameters_finite"
FEW_BAD = "few_bad_transitions"
# Health check -> what a sentence says was not finite where it fails.
CHECKS = {
    PARAMETERS_FINITE: "parameters",
    FEW_BAD: "more transitions than max_bad_transitions allows",
}


def reduce_segment(
    metrics: HostMetrics, before: Mapping[str, np.ndarray]
) -> HostMetrics:
    """Reduce metrics `[S, K]` of the updates that ran to a row, `[S]` each.

    Counts since the start of the run as they are at the end, counts of updates summed,
    averages weighted by their counts (see `purerl.metrics`): by episodes, by policy
    steps, and by 1 in the updates that took gradient steps. NaN where the count is 0
    in all of them; a NaN where it is positive stays one: the member has diverged.

    Args:
        metrics: The metrics.
        before: The row before, from which those of `purerl.metrics.HELD` are taken
            where no episode ended; empty where this is the first.
    """
    reduced: HostMetrics = {}
    for name, values in metrics.items():
        values = np.asarray(values)
        if name in CHECKS:
            continue
        if name in SINCE_START:
            reduced[name] = values[:, -1]
        elif name in PER_UPDATE:
            reduced[name] = values.sum(1)
        else:
            reduced[name] = weighted_mean(values, _weights(name, metrics))
    for name in set(HELD) & set(before):
        reduced[name] = np.where(reduced["episodes"] > 0, reduced[name], before[name])
    return reduced


def _weights(name: str, metrics: HostMetrics) -> np.ndarray:
    """Return the weights of the updates `[S, K]` in the average of a metric."""
    count = count_of(name, metrics)
    if count in PER_UPDATE:
        return np.asarray(metrics[count])
    return np.broadcast_to(is_defined(name, metrics), np.shape(metrics["episodes"]))


def first_bad_update(metrics: HostMetrics) -> np.ndarray:
    """Return a segment's first update `[S]` with a number that is not finite, or -1."""
    bad = np.zeros(np.shape(metrics["episodes"]), bool)
    for is_bad in bad_numbers(metrics).values():
        bad |= is_bad
    return np.where(bad.any(1), bad.argmax(1), -1)


def bad_numbers(metrics: HostMetrics) -> dict[str, np.ndarray]:
    """Return where metrics are not finite, bool `[S, K]`, of those that ever are not.

    What is undefined does not count: see `purerl.metrics`. What no metric shows yet,
    parameters that broke in the very last gradient step, does.
    """
    flags = {}
    for name, values in metrics.items():
        values = np.asarray(values)
        if name in CHECKS:
            bad = ~values
        elif np.issubdtype(values.dtype, np.floating):
            bad = np.asarray(is_defined(name, metrics)) & ~np.isfinite(values)
        else:
            continue
        if bad.any():
            flags[name] = bad
    return flags


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return means of `[S, K]` over the second axis; NaN where there is no weight.

    Values of weight zero are not looked at.
    """
    total = weights.sum(1)
    known = np.where(weights > 0, values.astype(np.float64), 0.0)
    sums = (known * weights).sum(1)
    return np.where(total > 0, sums / np.maximum(total, 1), np.nan)
