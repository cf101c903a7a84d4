"""Memory: what programs need, as shapes or the compiler say, and what there is."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from purerl.config import ConfigError
from purerl.execution.format import format_bytes, with_noun
from purerl.scale.devices import POWERS_UP_TO, Worker
from purerl.train import Bound, make_segment
from purerl.types import PyTree

# The share of the free memory that is used; the rest is for what the compiler does
# not see.
SHARE = 0.8
# Agents that one call lists: their points and names are Python objects.
MOST_LISTED = 10_000_000
# What one agent costs the host beside its state: a seed, a key, its rows.
HOST_BYTES = 500
# Environment steps per second, to say how long something would take at the least.
FAST = 1e6


class MemoryModel(NamedTuple):
    """Bytes on a device as a function of the width of a block.

    Attributes:
        state: Bytes of one member's state, held from its first update to its last.
        working: Bytes of one member beside its state, while its block is advanced:
            temporaries and records.
        fixed: Bytes that do not grow with the number of members: the program's code.
    """

    state: float
    working: float
    fixed: float

    def block(self, lanes: int) -> float:
        """Return the bytes while one block is trained alone."""
        return self.chunk(lanes, 1)

    def chunk(self, lanes: int, blocks: int, busy: int = 1) -> float:
        """Return the bytes while some blocks are held and some of them are advanced."""
        return self.fixed + lanes * (blocks * self.state + busy * self.working)


def free_memory(worker: Worker) -> float:
    """Return the bytes that are free on a worker's device: of the machine, on a CPU."""
    stats = worker.device.memory_stats() or {}
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return available_memory()


def parse_bytes(text: str | float | None) -> float | None:
    """Read bytes from a number or from words such as `2GB`, `512MiB`.

    Raises:
        ConfigError: it cannot be read.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(.*?)\s*([kmgt]?)(i?)b?", str(text).strip().lower())
    size = -1.0
    if found:
        unit = (1024.0 if found[3] else 1000.0) ** " kmgt".index(found[2] or " ")
        with contextlib.suppress(ValueError):
            size = float(found[1]) * unit
    if not size > 0:
        raise ConfigError(
            f"memory_limit must be a positive number of bytes, got {text!r}; for "
            "example 2GB or 512MiB."
        )
    return size


def worker_limit(memory_limit: str | float | None, workers: Sequence[Worker]) -> float:
    """Return the bytes that a worker may use, its share of `memory_limit` if given."""
    limit = parse_bytes(memory_limit)
    if limit is not None:
        return limit / len(workers)
    sharing = sum(other.device == workers[0].device for other in workers)
    return SHARE * free_memory(workers[0]) / sharing


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
    parameters = getattr(shapes, "params", ())
    return sum(map(num_bytes, jax.tree.leaves((shapes, parameters))))


def require_agent(shapes: PyTree, lanes: int, worker: Worker) -> None:
    """Refuse an agent that does not fit the memory, before anything is compiled.

    Args:
        shapes: The shapes of the states of a block, `[W, ...]`.
        lanes: The width of the block, W.
        worker: The worker whose free memory counts.

    Raises:
        ConfigError: not even one lane fits, with both sizes.
    """
    need, free = least_bytes(shapes) / lanes, free_memory(worker)
    if need <= free:
        return
    raise ConfigError(
        f"memory: one agent needs at least {format_bytes(need)}, and "
        f"{format_bytes(free)} is free. Use a smaller network (hidden_sizes), a "
        "smaller replay buffer (buffer_size) or fewer environments (num_envs)."
    )


def require_together(
    memory: MemoryModel, lanes: int, blocks: int, workers: Sequence[Worker]
) -> None:
    """Refuse agents whose states do not fit the memory all at once.

    Args:
        memory: The bytes that the compiler counted.
        lanes: The width of a block, W.
        blocks: The number of blocks, all of which are held.
        workers: The threads that advance a block each.

    Raises:
        ConfigError: with both sizes.
    """
    need = memory.chunk(lanes, blocks, min(len(workers), blocks))
    by_device = {worker.device: worker for worker in workers}
    if workers[0].device.platform == "cpu":  # one memory, however many devices
        by_device = {workers[0].device: workers[0]}
    free = sum(map(free_memory, by_device.values()))
    if need > free:
        raise ConfigError(
            f"memory: {blocks * lanes:,} agents at once need {format_bytes(need)}, and "
            f"{format_bytes(free)} is free. Use fewer agents (seeds), a smaller "
            "network or replay buffer, or purerl.sweep, which trains them in chunks."
        )


def require_listing(agents: int, steps_each: int) -> None:
    """Refuse a number of agents that the host cannot even list.

    Args:
        agents: The number of agents.
        steps_each: Environment steps of one agent.

    Raises:
        ConfigError: with the number, the bytes, and the hours that they would take.
    """
    need = agents * HOST_BYTES
    free = min(available_memory(), float(MOST_LISTED * HOST_BYTES))
    if need > free:
        hours = agents * steps_each / FAST / 3600
        raise ConfigError(
            f"memory: {agents:,} agents need at least {format_bytes(need)}, and may "
            f"take {format_bytes(free)}. At {FAST:,.0f} environment steps per second "
            f"they would take {hours:,.0f} hours. Use fewer agents (seeds, points)."
        )


def traced_memory(bound: Bound, length: int) -> MemoryModel:
    """Return the bytes of one agent while a segment of its training runs.

    Args:
        bound: Config, environment and plan of the agent.
        length: Updates of a segment, K.
    """
    segment = make_segment(bound)
    state = jax.eval_shape(segment.init, jax.random.key(0))
    closed = jax.make_jaxpr(lambda s, first: segment.advance(s, first, length))(
        state, jax.ShapeDtypeStruct((), jnp.int32)
    )
    state_bytes = sum(map(num_bytes, jax.tree.leaves(state)))
    # The old states are given to the call, which may write the new ones over them.
    return MemoryModel(state_bytes, max(0, peak_bytes(closed.jaxpr) - state_bytes), 0)


def peak_bytes(jaxpr: core.Jaxpr) -> int:
    """Return the most bytes that a program's own arrays take at once.

    Args:
        jaxpr: The program; arguments and constants belong to the caller, and do not
            count.
    """
    last = _last_uses(jaxpr)
    alive: dict[Any, int] = {}
    total = most = 0
    for number, equation in enumerate(jaxpr.eqns):
        inside = max(map(peak_bytes, inner_programs(equation)), default=0)
        read = [v for v in equation.invars if not isinstance(v, core.Literal)]
        ending = [v for v in dict.fromkeys(read) if last[v] == number]
        for out in equation.outvars:
            over = next((v for v in ending if _same_shape(v, out)), None)
            if over is None:
                alive[out] = num_bytes(out.aval)
                total += alive[out]
            else:
                # A caller's array costs nothing here, whatever is written over it.
                ending.remove(over)
                alive[out] = alive.pop(over, 0)
        most = max(most, total + inside)
        ending += [v for v in equation.outvars if v not in last]
        total -= sum(alive.pop(var, 0) for var in ending)
    return most


def _same_shape(one: Any, two: Any) -> bool:
    return (one.aval.shape, one.aval.dtype) == (two.aval.shape, two.aval.dtype)


def _last_uses(jaxpr: core.Jaxpr) -> dict[Any, int]:
    """The number of the last operation that reads an array; results live on."""
    last: dict[Any, int] = {}
    for number, equation in enumerate(jaxpr.eqns):
        read = (v for v in equation.invars if not isinstance(v, core.Literal))
        last.update(dict.fromkeys(read, number))
    results = (v for v in jaxpr.outvars if not isinstance(v, core.Literal))
    last.update(dict.fromkeys(results, len(jaxpr.eqns)))
    return last


def inner_programs(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """Return the programs inside an operation: of loops, branches and calls."""
    for value in equation.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


# Compilers have needed up to twice as much as shapes say beside the states.
UNSEEN = 2.0


def fit_lanes(model: MemoryModel, lanes: int, limit: float, is_fixed: bool) -> int:
    """Return the width, halved until one block fits the memory.

    Args:
        model: A model of a worker's bytes.
        limit: Bytes that a worker may use.
        is_fixed: Whether to refuse a width that does not fit instead of halving it.

    Raises:
        ConfigError: not even one lane fits, or a width that was asked for does not.
    """
    width = lanes
    while model.block(width) > limit and width > 1 and not is_fixed:
        width //= 2
    if model.block(width) > limit:
        raise ConfigError(
            f"memory: a block of {with_noun(width, 'lane')} needs "
            f"{format_bytes(model.block(width))}, and a worker has "
            f"{format_bytes(limit)}; use fewer lanes, a smaller replay buffer or "
            "network, or a higher memory_limit."
        )
    return width


def lanes_by_shapes(
    model: MemoryModel, lanes: int, num_members: int, limit: float
) -> int:
    """Return a width, halved while shapes say that it does not fit.

    It is never narrowed below `POWERS_UP_TO` lanes: there what the compiler counts
    decides, which is exact.

    Args:
        model: A model of a worker's bytes, from shapes.
        num_members: Members whose states the worker holds at once, at least a block.
        limit: Bytes that the worker may use.
    """
    width = lanes
    while width > POWERS_UP_TO:
        states = max(num_members, width) * model.state
        if model.fixed + states + width * model.working <= limit:
            break
        width = max(POWERS_UP_TO, width // 2)
    return width


def fitting_lanes(
    bound: Bound,
    lanes: int,
    num_members: int,
    length: int,
    workers: Sequence[Worker],
    limit: float | None = None,
) -> int:
    """Return a default width of which shapes say that it fits an accelerator.

    Nothing is compiled; on a CPU, and for blocks of up to `POWERS_UP_TO` lanes, nothing
    is traced either.

    Args:
        bound: Config, environment and plan of the members.
        lanes: The width where memory does not matter, W.
        num_members: Members whose states a worker holds at once; a block at the least.
        length: Updates of one call, K.
        workers: Workers of this process.
        limit: Bytes that a worker may use; of what is free where not given.
    """
    if lanes <= POWERS_UP_TO or workers[0].device.platform == "cpu":
        return lanes
    memory = traced_memory(bound, length)
    model = MemoryModel(memory.state, UNSEEN * memory.working, 0.0)
    most = SHARE * free_memory(workers[0]) if limit is None else limit
    return lanes_by_shapes(model, lanes, num_members, most)
