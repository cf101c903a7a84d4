"""One call for any number of members: blocks of one width over all workers."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from purerl.config import ConfigError
from purerl.scale.devices import (
    Worker,
    as_count,
    chosen_devices,
    compile_for,
    default_lanes,
    make_workers,
    run_blocks,
)
from purerl.scale.host import from_host, is_host_key, to_host
from purerl.types import PyTree


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
                "purerl.pmap compiles by itself, and what it returns cannot be called "
                "inside jax.jit, jax.vmap or jax.grad, got traced arguments. Call it "
                "without, or map by jax.vmap(function) there."
            )
        workers = make_workers(devices)
        leaves, structure = jax.tree.flatten(args)
        axes = _axes_of(in_axes, args)
        size = _leading_size(leaves, axes)
        width = lanes or default_lanes(size, workers)
        vmapped = jax.vmap(function, in_axes=jax.tree.unflatten(structure, axes))
        jitted = compiled.setdefault(
            ("jit", str(axes), structure, width), jax.jit(vmapped)
        )

        def block(start: int) -> tuple[Any, ...]:
            index = np.minimum(np.arange(start, start + width), size - 1)
            picked = [
                jnp.asarray(leaf)[index] if axis == 0 else leaf
                for leaf, axis in zip(leaves, axes, strict=True)
            ]
            return jax.tree.unflatten(structure, picked)

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


def _axes_of(in_axes: Any, args: tuple) -> list[int | None]:
    """An axis, 0 or None, for every leaf of the arguments."""

    def is_none(x: Any) -> bool:
        return x is None

    each = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    try:
        whole = jax.tree.broadcast(each, args, is_leaf=is_none)
    except ValueError:
        raise ConfigError(
            "in_axes must be 0 or None, or have these for each argument or its parts, "
            f"got {in_axes!r} for {jax.tree.structure(args)}."
        ) from None
    axes = jax.tree.leaves(whole, is_leaf=is_none)
    if any(axis not in (0, None) for axis in axes):
        raise ConfigError(f"in_axes must be 0 or None, got {in_axes!r}.")
    return axes


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
