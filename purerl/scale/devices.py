"""Blocks of lanes over the local devices: `pmap`, and the CPU cores as devices.

The width of a `vmap` changes how batched products round, but at a fixed width a
member's bits depend neither on its lane nor on its neighbours nor on the device. So a
population of any size runs in blocks of `W` lanes of one compiled program.
"""

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.config import ConfigError
from purerl.scale.host import from_host, is_host_key, to_host
from purerl.types import PyTree

DEFAULT_CPU_LANES = 8
DEFAULT_ACCELERATOR_LANES = 1024


class Worker(NamedTuple):
    """A thread that runs blocks on a device.

    On CPU one device serves a thread per core: calls of one executable from several
    threads run side by side, each on about one core. On accelerators a device has one.
    """

    device: Any
    index: int


def num_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_all_cores() -> int:
    """Make every CPU core a JAX device, for `jax.pmap` and `purerl.data_parallel`.

    `purerl.pmap` and `purerl.run` use all cores without it. It changes a global
    setting of JAX, so it must come before the first computation.

    Returns:
        The number of CPU devices.

    Raises:
        ConfigError: JAX has computed something already.
    """
    cores = num_cores()
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:
        if len(jax.devices("cpu")) != cores:
            raise ConfigError(
                "use_all_cores must be called before the first JAX computation; move "
                "it to the top of the script, right after the imports."
            ) from None
    return cores


def make_workers(devices: Sequence[Any] | None = None) -> list[Worker]:
    """Make one worker per accelerator, or one per core on a CPU.

    Args:
        devices: Local devices to use; all of the default backend where not given.
    """
    local = jax.local_devices()
    if devices is None and local[0].platform == "cpu":
        # Even where the host is split in several devices: one compilation serves all.
        return [Worker(local[0], i) for i in range(num_cores())]
    return [Worker(device, i) for i, device in enumerate(devices or local)]


def default_lanes(num_members: int, workers: Sequence[Worker]) -> int:
    """Choose a width of blocks: narrow on a CPU, wide on accelerators.

    On a CPU every worker gets as many lanes as the others, as far as that is possible:
    ten members on two cores are two blocks of five. On an accelerator, where empty
    lanes cost nothing, it is a power of two. Small populations get narrower blocks, so
    that no worker idles; give `lanes` explicitly where members of different populations
    must be equal bit for bit.
    """
    if workers[0].device.platform != "cpu":
        return min(DEFAULT_ACCELERATOR_LANES, widest_of_use(num_members, workers))
    share = max(1, -(-num_members // len(workers)))
    blocks = -(-share // DEFAULT_CPU_LANES)
    return -(-share // blocks)


def widest_of_use(num_members: int, workers: Sequence[Worker]) -> int:
    """Return the power of two at which every worker has one block.

    Wider blocks would be padding.
    """
    share = -(-num_members // len(workers))
    return 1 << max(0, (share - 1).bit_length())


def check_count(name: str, value: int | None) -> None:
    """Refuse what is neither None nor a positive whole number.

    Raises:
        ConfigError: naming the value.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{name} must be a positive whole number, got {value!r}; for example 8."
        )


def pmap(
    function: Callable[..., PyTree],
    *,
    lanes: int | None = None,
    in_axes: Any = 0,
    devices: Sequence[Any] | None = None,
) -> Callable[..., PyTree]:
    """Map a function over a leading axis of any size, on every local device.

    Members run in blocks of `lanes` under `jax.vmap`, the last block padded, and every
    block by the same executable: at one width a member's result is the same bits
    whatever the number of members, their order, the devices.

    Args:
        function: Pure function, such as `make_train(config)`.
        lanes: Width W of a block; where not given, see `default_lanes`.
        in_axes: Axes as in `jax.vmap`, with 0 or None: one for all arguments, or a
            tuple with one (or a pytree of them) per argument.
        devices: Local devices to use; all of the default backend where not given.

    Returns:
        A function of the same arguments with a leading axis `[N]`; its results have
        the leading axis `[N]` and lie on the default device.

    Raises:
        ConfigError: `lanes` is no positive number, or the leading axes differ.
    """
    check_count("lanes", lanes)
    compiled: dict[Any, Any] = {}

    def mapped(*args: Any) -> PyTree:
        workers = make_workers(devices)
        axes = _broadcast_axes(in_axes, args)
        size = _leading_size(args, axes)
        width = lanes or default_lanes(size, workers)
        vmapped = jax.vmap(function, in_axes=_as_vmap_axes(axes, args))
        jitted = compiled.setdefault(
            ("jit", str(axes), jax.tree.structure(args), width), jax.jit(vmapped)
        )

        def block(start: int) -> tuple[Any, ...]:
            index = np.minimum(np.arange(start, start + width), size - 1)
            return _take(args, axes, index)

        programs = _compile_all(jitted, block(0), workers, compiled, width)
        results = run_blocks(
            workers,
            range(0, size, width),
            lambda worker, start: to_host(
                programs[worker.device](*jax.device_put(block(start), worker.device))
            ),
        )
        return jax.tree.map(
            lambda *leaves: from_host(leaves, size), *results, is_leaf=is_host_key
        )

    return mapped


def run_blocks(
    workers: Sequence[Worker],
    items: Sequence[Any],
    function: Callable[[Worker, Any], Any],
) -> list[Any]:
    """Call `function(worker, item)` for every item, each worker taking the next one.

    Args:
        workers: Threads to use.
        items: Items to work on, in the order in which they are handed out.
        function: Function that is called from the worker's thread.

    Returns:
        Results in the order of `items`. The first error stops the rest and is raised.
    """
    todo: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    for pair in enumerate(items):
        todo.put(pair)
    results: list[Any] = [None] * len(items)
    failed = threading.Event()

    def work(worker: Worker) -> None:
        while not failed.is_set():
            try:
                index, item = todo.get_nowait()
            except queue.Empty:
                return
            try:
                results[index] = function(worker, item)
            except BaseException:
                failed.set()
                raise

    used = workers[: max(1, min(len(workers), len(items)))]
    if len(used) == 1:  # The caller's thread may as well do it.
        return [function(used[0], item) for item in items]
    with ThreadPoolExecutor(len(used)) as pool:
        try:
            for future in [pool.submit(work, worker) for worker in used]:
                future.result()
        except BaseException:
            failed.set()  # Also after Ctrl-C: blocks under way finish, no other starts.
            raise
    return results


def compile_for(
    jitted: Any, workers: Sequence[Worker], args_for: Callable[[Any], tuple]
) -> dict[Any, Any]:
    """Compile one program for every device of the workers, in parallel.

    Args:
        jitted: A `jax.jit` function.
        workers: Workers for whose devices to compile.
        args_for: Function from a device to arguments that lie on it (arrays or shapes).
    """
    devices = list(dict.fromkeys(worker.device for worker in workers))
    # Tracing is Python and is cached: once here, not once per thread.
    lowered = {device: jitted.lower(*args_for(device)) for device in devices}
    with ThreadPoolExecutor(len(devices)) as pool:
        built = pool.map(lambda device: lowered[device].compile(), devices)
        return dict(zip(devices, built, strict=True))


def _compile_all(
    jitted: Any, example: tuple, workers: Sequence[Worker], cache: dict, width: int
) -> dict[Any, Any]:
    shapes = jax.tree.map(lambda x: (jnp.shape(x), str(jnp.result_type(x))), example)
    name = (str(shapes), width, tuple(worker.device for worker in workers))
    if name not in cache:
        cache[name] = compile_for(
            jitted, workers, lambda device: jax.device_put(example, device)
        )
    return cache[name]


def _broadcast_axes(in_axes: Any, args: tuple) -> tuple[Any, ...]:
    """An axis (0 or None) for every leaf of every argument, as tuples of lists."""
    specs = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    if len(specs) != len(args):
        raise ConfigError(
            f"in_axes has {len(specs)} entries for {len(args)} arguments; give one "
            "for each."
        )
    return tuple(_leaf_axes(spec, arg) for spec, arg in zip(specs, args, strict=True))


def _leaf_axes(spec: Any, arg: Any) -> list[int | None]:
    if isinstance(spec, dict):
        return [
            axis for name in sorted(arg) for axis in _leaf_axes(spec[name], arg[name])
        ]
    if spec not in (0, None):
        raise ConfigError(f"in_axes must be 0 or None, got {spec!r}.")
    return [spec] * len(jax.tree.leaves(arg))


def _as_vmap_axes(axes: tuple, args: tuple) -> tuple[Any, ...]:
    return tuple(
        jax.tree.unflatten(jax.tree.structure(arg), leaf_axes)
        for arg, leaf_axes in zip(args, axes, strict=True)
    )


def _leading_size(args: tuple, axes: tuple) -> int:
    sizes = {
        np.shape(leaf)[0] if np.shape(leaf) else None
        for arg, leaf_axes in zip(args, axes, strict=True)
        for leaf, axis in zip(jax.tree.leaves(arg), leaf_axes, strict=True)
        if axis == 0
    }
    if len(sizes) != 1 or None in sizes or 0 in sizes:
        raise ConfigError(
            "the mapped arguments must share one leading axis of at least 1, got "
            f"sizes {sorted(sizes, key=str)}; use in_axes=None for what is shared."
        )
    return int(sizes.pop() or 0)


def _take(args: tuple, axes: tuple, index: np.ndarray) -> tuple[Any, ...]:
    taken = []
    for arg, leaf_axes in zip(args, axes, strict=True):
        leaves, structure = jax.tree.flatten(arg)
        picked = [
            jnp.asarray(leaf)[index] if axis == 0 else leaf
            for leaf, axis in zip(leaves, leaf_axes, strict=True)
        ]
        taken.append(jax.tree.unflatten(structure, picked))
    return tuple(taken)
