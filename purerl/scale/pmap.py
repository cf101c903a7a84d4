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
        names = sorted(arg) if isinstance(arg, dict) else None
        if names != sorted(spec):
            has = f"has {', '.join(names)}" if names else "is no such dictionary"
            raise ConfigError(
                f"in_axes names {', '.join(sorted(spec))}, and the argument {has}; "
                "give 0 or None for each of its names."
            )
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
