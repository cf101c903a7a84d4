"""The GPU's compiler on a machine without a GPU: real programs that never run.

XLA's CUDA plugin compiles for a device that a text describes. The library works without
it; where `jax-cuda12-plugin`, `jax-cuda12-pjrt` and `nvidia-cuda-nvcc-cu12` (or those
of CUDA 13) are installed, what a program needs is read from the compiled program.
"""

import importlib.util
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from purerl.execution.memory import BlockMemory, num_bytes
from purerl.execution.programs import batched
from purerl.hardware.device import Device
from purerl.hardware.kernels import read
from purerl.tracing import traced_for
from purerl.train import Bound

PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
# There is no device on which kernels could be timed, so autotuning is off.
OPTIONS: dict[str, Any] = {"xla_gpu_autotune_level": 0}


class Compiled(NamedTuple):
    """The needs of a compiled segment of a block.

    Attributes:
        kernels: Kernels, one after the other.
        memory: Bytes on the device.
    """

    kernels: int
    memory: BlockMemory


def is_installed() -> bool:
    """Return whether the CUDA plugin of JAX is installed."""
    return any(importlib.util.find_spec(name) is not None for name in PLUGINS)


def allow_without_gpu() -> None:
    """Let JAX load the compiler where there is no GPU, and compute on the CPU itself.

    It changes settings of this process, and must come before the first computation.
    """
    # The plugin looks for a driver unless it is told that there need be none.
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    jax.config.update("jax_platforms", "cpu")


def compile_segment(bound: Bound, lanes: int, length: int, device: Device) -> Compiled:
    """Compile a segment of a block's training for a device, which takes about a minute.

    Args:
        bound: Config, environment and plan of all members.
        lanes: The width of the block, W.
        length: Updates of the segment, K.
        device: The device, which need not be here.

    Raises:
        RuntimeError: the compiler cannot be used here; JAX says why.
    """
    described = topologies.get_topology_desc(
        "1x1x1", platform="cuda", topology="1x1x1", target_config=device.target
    )
    place = SingleDeviceSharding(described.devices[0])
    init, advance = batched(bound, length, None)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), lanes))
    with traced_for("cuda"):
        state = jax.eval_shape(init, keys, {})
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            (state, {}, jax.ShapeDtypeStruct((), jnp.int32)),
        )
        jitted = jax.jit(advance, donate_argnums=0, out_shardings=place)
        lowered = jitted.lower(*shapes)
    compiled = lowered.compile(compiler_options=OPTIONS)
    text, found = compiled.as_text(), compiled.memory_analysis()
    assert text is not None and found is not None
    records = max(0, found.output_size_in_bytes - found.alias_size_in_bytes)
    memory = BlockMemory(
        sum(num_bytes(leaf) for leaf in jax.tree.leaves(state)),
        found.temp_size_in_bytes + records,
        found.generated_code_size_in_bytes,
    )
    return Compiled(read(text).total(), memory)
