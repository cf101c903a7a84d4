"""Intervals of means on the host, without a device: for tables and pictures of runs."""

import numpy as np


def bootstrap_mean(
    values: np.ndarray, *, confidence: float = 0.95, samples: int = 2_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap interval of the mean over the first axis (seeds).

    Args:
        values: `[S, ...]`; NaN counts as missing.
        confidence: of the interval.
        samples: bootstrap resamples.
        seed: of the resampling.

    Returns:
        Lower and upper ends, `[...]`.
    """
    rng = np.random.default_rng(seed)
    num = values.shape[0]
    index = rng.integers(0, num, (samples, num))
    # Weights instead of resampled copies: [samples, S] times [S, ...].
    weights = np.stack([np.bincount(row, minlength=num) for row in index])
    flat = values.reshape(num, -1).astype(np.float64)
    known = np.isfinite(flat)
    sums = weights @ np.where(known, flat, 0.0)
    counts = weights @ known
    with np.errstate(invalid="ignore"):
        means = sums / np.where(counts > 0, counts, np.nan)
    tail = (1 - confidence) / 2
    low, high = _quantiles(means, (tail, 1 - tail))
    return low.reshape(values.shape[1:]), high.reshape(values.shape[1:])


def _quantiles(means: np.ndarray, levels: tuple[float, float]) -> np.ndarray:
    ordered = np.sort(means, axis=0)  # NaN sorts last
    counts = np.isfinite(ordered).sum(0)
    ends = []
    for level in levels:
        at = np.clip(np.round(level * (counts - 1)), 0, None).astype(int)
        picked = np.take_along_axis(ordered, at[None], axis=0)[0]
        ends.append(np.where(counts > 0, picked, np.nan))
    return np.stack(ends)


def nanmean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean of what is known; NaN, without a warning, where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
