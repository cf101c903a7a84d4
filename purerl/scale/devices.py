"""The local devices and their workers: CPU cores as devices, widths, blocks of work.

The width of a `vmap` changes how batched products round, but at a fixed width a
member's bits depend neither on its lane nor on its neighbours nor on the device. So a
population of any size runs in blocks of `W` lanes of one compiled program.
"""

import contextlib
import operator
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError
from purerl.precision import as_here
from purerl.scale.host import from_host, is_host_key, to_host
from purerl.types import PyTree

DEFAULT_CPU_LANES = 8
# Up to here an accelerator's block is a power of two, so that few widths are compiled;
# above, lanes that only fill a block cost time, and it is a multiple of a quarter.
POWERS_UP_TO = 1_024
# Wider blocks save hardly any kernels, and a kill would cost more agents.
MOST_ACCELERATOR_LANES = 16_384
# XLA's name of LLVM's level of optimisation.
LEVEL = "xla_backend_optimization_level"


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
                "use_all_cores must be called before the first JAX computation, also "
                "of a module that a command imports (--import)."
            ) from None
    return cores


def make_workers(devices: Sequence[Any] | None = None) -> list[Worker]:
    """Make one worker per accelerator, or one per core on a CPU.

    Args:
        devices: Local devices to use; all of the default backend where not given.

    Raises:
        ConfigError: see `chosen_devices`.
    """
    local = jax.local_devices()
    if devices is None and local[0].platform == "cpu":
        # Even where the host is split in several devices: one compilation serves all.
        return [Worker(local[0], i) for i in range(num_cores())]
    return [Worker(device, i) for i, device in enumerate(chosen_devices(devices))]


def chosen_devices(devices: Sequence[Any] | None) -> list[Any]:
    """Return the devices that were asked for, all local ones where none were.

    Args:
        devices: Local devices to use; None for all of the default backend.

    Raises:
        ConfigError: what is no device of JAX, or none at all.
    """
    if devices is None:
        return list(jax.local_devices())
    try:
        found = list(devices)
    except TypeError:
        found = []
    if not found or not all(isinstance(one, jax.Device) for one in found):
        raise ConfigError(
            f"devices must be devices of JAX, one at least, got {devices!r}; for "
            "example jax.local_devices()[:1]."
        )
    return found


def default_lanes(num_members: int, workers: Sequence[Worker]) -> int:
    """Choose a width of blocks: narrow on a CPU, as wide as possible on accelerators.

    On a CPU every worker gets as many lanes as the others, as far as that is possible:
    ten members on two cores are two blocks of five. On an accelerator see
    `accelerator_lanes`. Small populations get narrower blocks, so that no worker idles;
    give `lanes` explicitly where members of different populations must be equal bit for
    bit.
    """
    share = max(1, -(-num_members // len(workers)))
    if workers[0].device.platform != "cpu":
        return accelerator_lanes(share)
    blocks = -(-share // DEFAULT_CPU_LANES)
    return -(-share // blocks)


def accelerator_lanes(share: int) -> int:
    """Return the width of an accelerator's blocks: as few blocks as possible, alike.

    A block of W lanes takes `kernels * t + W * a` seconds: every kernel waits `t` for
    the one before it, whatever W is, and a lane's arithmetic takes `a`. B blocks of
    `M / B` lanes therefore take `B * kernels * t + M * a`, which is least for one.

    Args:
        share: Members of one accelerator. What the memory holds is known later, from
            the compiled program or, before that, from shapes
            (`purerl.execution.memory`).
    """
    most = MOST_ACCELERATOR_LANES
    blocks = -(-share // most)
    width = -(-share // blocks)
    if width <= POWERS_UP_TO:
        return 1 << max(0, (width - 1).bit_length())  # the least power of two
    step = POWERS_UP_TO // 4
    return min(most, -(-width // step) * step)


def as_count(name: str, value: int | None) -> int | None:
    """Return a positive whole number as `required` does; None stays."""
    return value if value is None else required(name, value)


def required(name: str, value: int) -> int:
    """Return a positive whole number, also one of NumPy or JAX, as one of Python.

    Args:
        name: The name of the argument, for the message.
        value: Number to check.

    Raises:
        ConfigError: naming the value, None too.
    """
    number: Any = value
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            number = operator.index(value)
    if type(number) is not int or number < 1:
        raise ConfigError(
            f"{name} must be a positive whole number, got {number!r}; for example 8."
        )
    return number


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
    todo = iter(list(enumerate(items)))  # All threads take from it.
    results: list[Any] = [None] * len(items)
    failed = threading.Event()

    def work(worker: Worker) -> None:
        try:
            for index, item in todo:
                if failed.is_set():
                    return
                results[index] = function(worker, item)
        except BaseException:
            failed.set()
            raise

    used = workers[: max(1, min(len(workers), len(items)))]
    if len(used) == 1:  # The caller's thread may as well do it.
        return [function(used[0], item) for item in items]
    with ThreadPoolExecutor(len(used)) as pool:
        try:
            here = as_here(work)
            for future in [pool.submit(here, worker) for worker in used]:
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
        args_for: Function from a device to arguments that lie on it (arrays or shapes).
    """
    return begin_to_compile(jitted, workers, args_for)()


def begin_to_compile(
    jitted: Any, workers: Sequence[Worker], args_for: Callable[[Any], tuple]
) -> Callable[[], dict[Any, Any]]:
    """Begin what `compile_for` does, and return as soon as the program is traced.

    The compiler does not hold Python's lock, so that another program can be traced
    beside it.

    Args:
        args_for: Function from a device to arguments that lie on it (arrays or shapes).

    Returns:
        A function that waits for the compiler, and returns or raises what it did.
    """
    devices = list(dict.fromkeys(worker.device for worker in workers))
    # Tracing is Python and is cached: once here, not once per thread. JAX's checker of
    # keys takes those that `vmap` transposes for used, and `Program` checks one agent.
    with jax.debug_key_reuse(False):
        lowered = {device: jitted.lower(*args_for(device)) for device in devices}

    def compile_one(device: Any) -> Any:
        return lowered[device].compile(compiler_options(device.platform))

    pool = ThreadPoolExecutor(len(devices))
    futures = [pool.submit(as_here(compile_one), device) for device in devices]
    pool.shutdown(wait=False)  # It takes no more work, and ends when this is done.
    return lambda: {
        device: future.result() for device, future in zip(devices, futures, strict=True)
    }


def compiler_options(platform: str | None = None) -> dict[str, Any]:
    """Return the options with which this library's programs are compiled.

    On a CPU, LLVM optimises at its second level and not at its third, XLA's default:
    compilation takes 0.6 to 0.9 of the time, and the programs are as fast
    (`experiments/benchmarks/compile_options.py` measures both). Pass them where you
    compile a run by yourself: `jax.jit(train, compiler_options=compiler_options())`.

    Args:
        platform: Name of the devices' platform, such as `cpu`; that of JAX's default
            devices where not given.

    Returns:
        Options for `jax.jit` or `Lowered.compile`. They are empty for platforms other
        than a CPU, and where `XLA_FLAGS` or `jax_disable_most_optimizations` chose a
        level already.
    """
    chosen = LEVEL in os.environ.get("XLA_FLAGS", "")
    chosen = chosen or jax.config.read("jax_disable_most_optimizations")
    if chosen or (platform or jax.default_backend()) != "cpu":
        return {}
    return {LEVEL: 2}


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
            tuple with one per argument.
        devices: Local devices to use; all of the default backend where not given.

    Returns:
        A function of the same arguments with a leading axis `[N]`; its results have
        the leading axis `[N]` and lie on the default device.

    Raises:
        ConfigError: `lanes` is no positive number, `devices` holds something that is no
            device, the leading axes differ, or the function that is returned is called
            inside `jax.jit` or `jax.vmap`.
    """
    lanes = as_count("lanes", lanes)
    if devices is not None:
        devices = chosen_devices(devices)
    compiled: dict[Any, Any] = {}

    def mapped(*args: Any) -> PyTree:
        # Blocks are handed to threads, which know nothing of a trace in this one.
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)):
            raise ConfigError(
                "what purerl.pmap returns compiles by itself, and takes no traced "
                "arguments; inside jax.jit, jax.vmap or jax.grad use jax.vmap."
            )
        workers = make_workers(devices)
        leaves, structure = jax.tree.flatten(args)
        axes = _axes_of(in_axes, args)
        size = _leading_size(leaves, axes)
        width = lanes or default_lanes(size, workers)

        def block(start: int) -> tuple[Any, ...]:
            index = np.minimum(np.arange(start, start + width), size - 1)
            picked = [
                jnp.asarray(leaf)[index] if axis == 0 else leaf
                for leaf, axis in zip(leaves, axes, strict=True)
            ]
            return jax.tree.unflatten(structure, picked)

        first = block(0)
        shapes = jax.tree.map(lambda x: (jnp.shape(x), str(jnp.result_type(x))), first)
        used = tuple(worker.device for worker in workers)
        name = (str(axes), structure, str(shapes), used)
        if name not in compiled:
            vmapped = jax.vmap(function, in_axes=jax.tree.unflatten(structure, axes))
            compiled[name] = compile_for(
                jax.jit(vmapped), workers, lambda device: jax.device_put(first, device)
            )
        results = run_blocks(
            workers,
            range(0, size, width),
            lambda worker, start: to_host(
                compiled[name][worker.device](
                    *jax.device_put(block(start), worker.device)
                )
            ),
        )
        return jax.tree.map(
            lambda *leaves: from_host(leaves, size), *results, is_leaf=is_host_key
        )

    return mapped


def _axes_of(in_axes: Any, args: tuple) -> list[int | None]:
    """An axis, 0 or None, for every leaf of the arguments."""
    each = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    if len(each) != len(args) or any(axis not in (0, None) for axis in each):
        raise ConfigError(
            "in_axes must be 0 or None, or have one of these for each argument, got "
            f"{in_axes!r}."
        )
    pairs = zip(each, args, strict=True)
    return [axis for axis, arg in pairs for _ in jax.tree.leaves(arg)]


def _leading_size(leaves: list[Any], axes: list[int | None]) -> int:
    sizes = {
        np.shape(leaf)[0] if np.shape(leaf) else None
        for leaf, axis in zip(leaves, axes, strict=True)
        if axis == 0
    }
    if len(sizes) != 1 or None in sizes or 0 in sizes:
        raise ConfigError(
            "the mapped arguments must share one leading axis of at least 1, got "
            f"sizes {sorted(sizes, key=str)}; use in_axes=None for what is shared."
        )
    return int(sizes.pop() or 0)
