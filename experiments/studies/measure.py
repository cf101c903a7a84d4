"""Functions by which the studies time programs and write numbers.

Compilation is apart, results are waited for, and of several repeats the median counts.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


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
