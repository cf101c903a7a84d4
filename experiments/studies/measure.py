"""Functions by which the studies time programs and write numbers.

Compilation is apart, results are waited for, and of several repeats the median counts.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from purerl.report.statistics import mean_interval


def compiled(function: Callable[..., Any], *args: Any) -> tuple[Callable, float]:
    """Compile a function for its arguments.

    Returns:
        What calls the compiled program, and the seconds of tracing and compiling.
    """
    began = time.perf_counter()
    program = jax.jit(function).lower(*args).compile()
    return program, time.perf_counter() - began


def times(call: Callable[..., Any], *args: Any, repeats: int = 1) -> list[float]:
    """Return the seconds of every repeat of a call whose results are waited for."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call(*args))
        seconds.append(time.perf_counter() - began)
    return seconds


def timed(call: Callable[..., Any], *args: Any, repeats: int = 1) -> float:
    """Return the median seconds of a call whose results are waited for."""
    return statistics.median(times(call, *args, repeats=repeats))


def torch_threads(count: int) -> None:
    """Let PyTorch use so many threads."""
    import torch

    torch.set_num_threads(count)


def one_torch_thread() -> None:
    """Let PyTorch use one thread, as its layers are small."""
    torch_threads(1)


def interval_text(values: Any, digits: int = 1) -> str:
    """Return the mean of runs with its 95% interval, or their range, in words."""
    values = np.asarray(values, float)
    found = mean_interval(values)
    return f"{values.mean():,.{digits}f} ({found.text(digits)})"


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Average along the last axis over the last updates.

    Args:
        values: `[..., U]` metric of each update, NaN before an episode has ended.
        window: Updates that are averaged.
    """
    found = np.full(values.shape, np.nan)
    for i in range(values.shape[-1]):
        part = values[..., max(0, i - window + 1) : i + 1]
        known = ~np.isnan(part)
        count = known.sum(-1)
        total = np.where(known, part, 0).sum(-1)
        found[..., i] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return found
