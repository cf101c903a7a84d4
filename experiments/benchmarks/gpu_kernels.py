"""The kernels of a GPU program, counted on a machine that has no GPU.

XLA's CUDA plugin compiles ahead of time for a device that is described by a file
(`h200.txtpb`); nothing runs. It shows the program that
such a device would execute. With small networks its time is that of kernels which wait
for one another, so their number is the figure to bring down, and it has no noise. The
autotuner needs a device and is off, so times of compilation lack it.

It takes nothing of purerl: peers are counted with it in their own environments. It must
be imported before jax computes anything.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu,cuda"
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from kernel_text import Loop, read
from kernel_text import lines as lines

TARGET = Path(__file__).resolve().with_name("h200.txtpb")


class Program(NamedTuple):
    """A compiled program.

    Attributes:
        loop: Its kernels.
        temporaries: Bytes of temporary memory.
        results: Bytes of its results.
        trace_seconds: Seconds to trace and lower it.
        compile_seconds: Seconds to compile it.
        collectives: Collective operations that are run, in all.
    """

    loop: Loop
    temporaries: int
    results: int
    trace_seconds: float
    compile_seconds: float
    collectives: int


def devices(count: int = 1) -> list[Any]:
    """Return devices that are described, not there."""
    shape = f"1x1x{count}"
    description = TARGET.read_text()
    return list(
        topologies.get_topology_desc(
            shape, platform="cuda", topology=shape, target_config=description
        ).devices
    )


def compile_for_gpu(
    function: Callable[..., Any], *args: Any, over: list[Any] | None = None
) -> Program:
    """Compile a function for one such device.

    Args:
        function: A function of arrays.
        *args: Shapes of its arguments, such as `jax.eval_shape` gives.
        over: Devices that the function itself spreads its work over; each has all of
            the arguments and of the results. One device where not given.
    """
    place: Any = SingleDeviceSharding(devices()[0])
    if over is not None:
        place = NamedSharding(Mesh(np.asarray(over), ("devices",)), PartitionSpec())
    shapes = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place), args
    )
    began = time.perf_counter()
    lowered = jax.jit(function, in_shardings=place, out_shardings=place).lower(*shapes)
    traced = time.perf_counter()
    compiled = lowered.compile()
    ended = time.perf_counter()
    text, memory = compiled.as_text(), compiled.memory_analysis()
    assert text is not None and memory is not None
    loop = read(text)
    return Program(
        loop,
        memory.temp_size_in_bytes,
        memory.output_size_in_bytes,
        round(traced - began, 1),
        round(ended - traced, 1),
        loop.collectives(),
    )


def side_by_side(
    train: Callable[[jax.Array], Any], make_key: Callable[[int], jax.Array], agents: int
) -> tuple[Callable[[jax.Array], Any], jax.ShapeDtypeStruct]:
    """Return the training of some agents, and the shape of its keys.

    Args:
        train: The training of one.
        make_key: Function from a seed to a key.
        agents: Agents that `jax.vmap` trains; with 0 one without it.
    """
    if agents == 0:
        return train, jax.eval_shape(lambda: make_key(0))
    split = jax.eval_shape(lambda: jax.random.split(make_key(0), agents))
    return jax.vmap(train), split


def numbers(program: Program) -> dict[str, Any]:
    """Return what is kept of a program, as plain values."""
    kept = program._asdict()
    loop = kept.pop("loop")
    return {"kernels": loop.total(), **kept, "loops": lines(loop)}
