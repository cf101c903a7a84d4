"""A segment's metrics as one number per member: what is kept of every update."""

import numpy as np

from purerl.types import HostMetrics

COUNTERS = ("env_steps", "gradient_steps")
EPISODE_MEANS = ("episode_return", "episode_length")


def reduce_segment(metrics: HostMetrics) -> HostMetrics:
    """Metrics `[S, K]` of the updates that ran, reduced to `[S]` each.

    Counters as they are at the end, episodes summed, means over episodes weighted by
    their numbers, everything else averaged over the updates that learned: losses are
    undefined in a warm-up. A NaN of an update that learned stays one: it diverged.
    """
    episodes = np.asarray(metrics["episodes"])
    learned = updates_that_learned(metrics)
    reduced: HostMetrics = {}
    for name, values in metrics.items():
        values = np.asarray(values)
        if name in COUNTERS:
            reduced[name] = values[:, -1]
        elif name == "episodes":
            reduced[name] = values.sum(1)
        elif name in EPISODE_MEANS:
            reduced[name] = _weighted(values, episodes)
        else:
            reduced[name] = _weighted(values, learned)
    return reduced


def updates_that_learned(metrics: HostMetrics) -> np.ndarray:
    """Which updates `[S, K]` took gradient steps."""
    episodes = np.asarray(metrics["episodes"])
    return np.asarray(metrics.get("gradient_steps", np.ones_like(episodes))) > 0


def first_bad_update(metrics: HostMetrics) -> np.ndarray:
    """The first update `[S]` of a segment with a number that is not finite, or -1.

    What is undefined does not count: means over no episode, losses of a warm-up.
    """
    learned = updates_that_learned(metrics)
    ended = np.asarray(metrics["episodes"]) > 0
    bad = np.zeros(learned.shape, bool)
    for name, values in metrics.items():
        values = np.asarray(values)
        if not np.issubdtype(values.dtype, np.floating):
            continue
        defined = ended if name in EPISODE_MEANS else learned
        bad |= defined & ~np.isfinite(values)
    return np.where(bad.any(1), bad.argmax(1), -1)


def _weighted(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Means of `[S, K]` over the second axis; NaN where there is no weight.

    Values of weight zero are not looked at.
    """
    total = weights.sum(1)
    known = np.where(weights > 0, values.astype(np.float64), 0.0)
    sums = (known * weights).sum(1)
    return np.where(total > 0, sums / np.maximum(total, 1), np.nan)
