"""Memory: what agents need at the least, and what there is."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from purerl.config import ConfigError
from purerl.execution.format import format_bytes
from purerl.scale.devices import Worker
from purerl.train import Bound, make_segment
from purerl.types import PyTree

# The share of the free memory that is used; the rest is for what the compiler does
# not see.
SHARE = 0.8
# A larger number of agents is checked before any of them is made.
MANY = 10_000
# Agents that one sweep lists: their points and names are Python objects.
MOST_LISTED = 10_000_000
# What one agent costs the host beside its state: a seed, a key, its rows.
HOST_BYTES = 500
# Environment steps per second, to say how long something would take at the least.
FAST = 1e6


class BlockMemory(NamedTuple):
    """Bytes on the device.

    Attributes:
        state: Bytes of a block's states, held from its first update to its last.
        working: Bytes beside the states while the block is advanced: temporaries and
            records.
        code: Bytes of the program.
    """

    state: int
    working: int
    code: int


def device_memory(worker: Worker, workers: Sequence[Worker]) -> float:
    """Return the bytes that a worker may use, its share of the device or machine."""
    sharing = sum(other.device == worker.device for other in workers)
    return SHARE * free_memory(worker) / sharing


def free_memory(worker: Worker) -> float:
    """Return the bytes that are free on a worker's device: of the machine, on a CPU."""
    stats = worker.device.memory_stats() or {}
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return available_memory()


def all_free_memory(workers: Sequence[Worker]) -> float:
    """Return the bytes that are free on all devices of some workers."""
    if workers[0].device.platform == "cpu":  # one memory, however many devices
        return free_memory(workers[0])
    by_device = {worker.device: worker for worker in workers}
    return sum(free_memory(worker) for worker in by_device.values())


def available_memory() -> float:
    """Return the bytes of main memory that are free for this process."""
    limits = []
    try:
        with open("/proc/meminfo") as file:
            values = dict(line.split(":", 1) for line in file)
        limits.append(1024.0 * int(values["MemAvailable"].split()[0]))
    except (OSError, KeyError, ValueError):
        limits.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            with open(limit) as most, open(used) as now:
                limits.append(float(most.read()) - float(now.read()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return max(0.0, min(limits))


def num_bytes(leaf: Any) -> int:
    """Return the bytes of an array or of what has its shape, random keys included."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return leaf.size * leaf.dtype.itemsize


def least_bytes(shapes: PyTree) -> int:
    """Return the bytes that training needs at the least: the states and gradients.

    Args:
        shapes: The shapes of the states of one or several agents. Gradients are as
            large as the parameters, where a state has any under that name.
    """
    leaves = [*jax.tree.leaves(shapes), *jax.tree.leaves(_parameters(shapes))]
    return sum(map(num_bytes, leaves))


def _parameters(shapes: PyTree) -> PyTree:
    return getattr(shapes, "params", ())


def require_agent(shapes: PyTree, lanes: int, worker: Worker) -> None:
    """Refuse an agent that does not fit the memory, before anything is compiled.

    Args:
        shapes: The shapes of the states of a block, `[W, ...]`.
        lanes: The width of the block, W.
        worker: The worker whose free memory counts.

    Raises:
        ConfigError: not even one lane fits, with both sizes and the largest array.
    """
    need, free = least_bytes(shapes) / lanes, free_memory(worker)
    if need <= free:
        return
    leaves, _ = jax.tree_util.tree_flatten_with_path(shapes)
    path, largest = max(leaves, key=lambda entry: num_bytes(entry[1]))
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    raise ConfigError(
        f"memory: one agent needs at least {format_bytes(need)}, and "
        f"{format_bytes(free)} is free; its "
        f"largest array ({name}) has {largest.size // lanes:,} numbers. Use a smaller "
        "network (hidden_sizes), a smaller replay buffer (buffer_size) or fewer "
        "environments (num_envs)."
    )


def require_together(
    memory: BlockMemory, lanes: int, blocks: int, workers: Sequence[Worker]
) -> None:
    """Refuse agents whose states do not fit the memory all at once.

    Args:
        memory: The bytes that the compiler counted for a block.
        lanes: The width of a block, W.
        blocks: The number of blocks, all of which are held.
        workers: The threads that advance a block each.

    Raises:
        ConfigError: with both sizes.
    """
    busy = min(len(workers), blocks)
    need = blocks * memory.state + busy * memory.working + memory.code
    free = all_free_memory(workers)
    if need > free:
        raise ConfigError(
            f"memory: {blocks * lanes:,} agents at once need {format_bytes(need)}, and "
            f"{format_bytes(free)} is free. Use fewer agents (seeds), a smaller "
            "network or replay buffer, or purerl.sweep, which trains them in chunks."
        )


def require_number(bound: Bound, agents: int, workers: Sequence[Worker]) -> None:
    """Refuse a number of agents whose states cannot be held, before any is made.

    Args:
        bound: Config, environment and plan of the agents.
        agents: The number of agents, all of which train side by side.
        workers: The threads that train them.

    Raises:
        ConfigError: with the number, the bytes, and the hours that they would take.
    """
    if agents <= MANY:
        return
    shapes = jax.eval_shape(make_segment(bound).init, jax.random.key(0))
    bytes_each = HOST_BYTES + sum(map(num_bytes, jax.tree.leaves(shapes)))
    steps = bound.plan.num_updates * bound.plan.steps_per_update
    _refuse(agents, steps, bytes_each, all_free_memory(workers), "is free")


def require_listing(agents: int, steps_each: int) -> None:
    """Refuse a number of agents that the host cannot even list.

    Args:
        agents: The number of agents, which train a few at a time.
        steps_each: Environment steps of one agent.

    Raises:
        ConfigError: see `require_number`.
    """
    free = min(available_memory(), float(MOST_LISTED * HOST_BYTES))
    _refuse(agents, steps_each, HOST_BYTES, free, "may hold the list of a sweep's")


def _refuse(
    agents: int, steps_each: int, bytes_each: int, free: float, what: str
) -> None:
    if agents * bytes_each <= free:
        return
    hours = agents * steps_each / FAST / 3600
    raise ConfigError(
        f"memory: {agents:,} agents need at least {format_bytes(agents * bytes_each)} "
        f"({format_bytes(bytes_each)} each), and {format_bytes(free)} {what}. At "
        f"{FAST:,.0f} environment steps per second they would take {hours:,.0f} hours. "
        "Use fewer agents (seeds, points)."
    )
