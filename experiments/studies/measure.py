"""Functions by which the studies time programs and write numbers.

Compilation is apart, results are waited for, and of several repeats the median counts.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import purerl


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


def time_agents(
    config: purerl.TrainConfig, agents: int, repeats: int, mapped: str = "vmap"
) -> dict[str, float]:
    """Time a call of so many agents: seconds of compilation and of training.

    Args:
        config: Settings of every agent.
        agents: Number of agents.
        repeats: Number of calls; the median is `train`, and its ends `low` and `high`.
        mapped: `vmap`, or `pmap` for `purerl.pmap`, which cuts the agents into blocks,
            as `purerl.run` does, and uses every core.
    """
    train = purerl.make_train(config)
    keys = jax.random.split(jax.random.key(0), agents)
    call: Callable[..., Any]
    if mapped == "vmap":
        call, compile_seconds = compiled(jax.vmap(train), keys)
        times(call, keys)
    else:
        call = purerl.pmap(train)
        # Enough of them for blocks of the same width, and so for the same program.
        first, second = times(call, keys[:32], repeats=2)
        compile_seconds = first - second
    found = times(call, keys, repeats=repeats)
    ends = {"low": min(found), "high": max(found)}
    return {"compile": compile_seconds, "train": statistics.median(found), **ends}


def train_settings(
    config: purerl.TrainConfig,
    seed: int,
    runs: int,
    numbers: Mapping[str, Sequence[float]],
) -> tuple[dict[str, Any], dict[str, float]]:
    """Train several runs of all settings in one call.

    Args:
        config: What all settings have in common.
        seed: Seed of the keys, which are the same for all settings.
        runs: Runs of each setting.
        numbers: Values of dynamic fields, one for each setting.

    Returns:
        Metrics `[settings, runs, updates]`, and the seconds, `compile` and `train`.
    """
    keys = jax.random.split(jax.random.key(seed), runs)
    train = jax.vmap(purerl.make_train(config), (0, None))
    every = jax.vmap(lambda keys, some: train(keys, some).metrics, (None, 0))
    overrides = {name: jnp.asarray(values) for name, values in numbers.items()}
    call, compile_seconds = compiled(every, keys, overrides)
    began = time.perf_counter()
    metrics = jax.block_until_ready(call(keys, overrides))
    seconds = {"compile": compile_seconds, "train": time.perf_counter() - began}
    return jax.device_get(metrics), seconds


def torch_threads(count: int) -> None:
    """Let PyTorch use so many threads."""
    import torch

    torch.set_num_threads(count)
