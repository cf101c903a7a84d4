"""The kernels of a GPU program, counted on a machine that has no GPU.

XLA's CUDA plugin compiles ahead of time for a device that is described by a file
(`h200.txtpb`); nothing runs. What comes out is the program that such a device would
execute. With small networks its time is that of kernels which wait for one another, so
their number is the figure to bring down, and it has no noise. The autotuner needs a
device and is off, so times of compilation lack it.

This module imports no purerl: peers are counted with it in their own environments. It
must be imported before jax computes anything.
"""

import os
import re
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
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

HERE = Path(__file__).parent
# What is in the text of a program and launches nothing.
FREE = {
    *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all"),
    *("partition-id", "replica-id", "async-done", "optimization-barrier"),
}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z\-0-9]*)\(")


class Kernel(NamedTuple):
    """One kernel, or a copy.

    Attributes:
        op: Its operation.
        shape: What it writes.
        source: The operation of JAX that it came from.
    """

    op: str
    shape: str
    source: str


class Loop(NamedTuple):
    """The program itself, a loop in it, or a branch.

    Attributes:
        trips: How often its body runs each time that it is reached; 1 for the program
            and for branches, None where that is not known when it is compiled.
        kernels: Kernels of one pass, without those of loops inside it.
        inner: Loops inside it.
        is_branch: Whether it is one of several branches, of which one runs.
    """

    trips: int | None
    kernels: tuple[Kernel, ...]
    inner: tuple["Loop", ...]
    is_branch: bool = False

    def total(self) -> int:
        """Return the kernels in all; a loop of unknown length and a branch run once."""
        own = len(self.kernels) + sum(loop.total() for loop in self.inner)
        return own * (self.trips or 1)


class Program(NamedTuple):
    """A compiled program.

    Attributes:
        loop: Its kernels.
        temporaries: Bytes of temporary memory.
        results: Bytes of its results.
        trace_seconds: Seconds to trace and lower it.
        compile_seconds: Seconds to compile it.
        collectives: Collective operations in its text.
        command_buffers: Parts that are captured and launched as one graph.
    """

    loop: Loop
    temporaries: int
    results: int
    trace_seconds: float
    compile_seconds: float
    collectives: int
    command_buffers: int


def devices(count: int = 1) -> list[Any]:
    """Return devices that are described, not there."""
    shape = f"1x1x{count}"
    description = (HERE / "h200.txtpb").read_text()
    return list(
        topologies.get_topology_desc(
            shape, platform="cuda", topology=shape, target_config=description
        ).devices
    )


def compile_for_gpu(function: Callable[..., Any], *args: Any) -> Program:
    """Compile a function for one such device.

    Args:
        function: A function of arrays.
        *args: Shapes of its arguments, such as `jax.eval_shape` gives.
    """
    place = SingleDeviceSharding(devices()[0])
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
    return Program(
        read(text),
        memory.temp_size_in_bytes,
        memory.output_size_in_bytes,
        round(traced - began, 1),
        round(ended - traced, 1),
        sum(len(re.findall(rf" {name}(?:-start)?\(", text)) for name in COLLECTIVES),
        len(re.findall(r"^%?command_buffer[\w.\-]* .*\{\s*$", text, re.M)),
    )


def read(text: str) -> Loop:
    """Read the kernels of a compiled program from its text."""
    parts: dict[str, list[str]] = {}
    entry = current = ""
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head and not line.startswith("  "):
            current = head.group(2)
            entry = current if head.group(1) else entry
            parts[current] = []
        elif current and line.startswith("  "):
            parts[current].append(line)
    return _loop(parts, entry, 1)


def _loop(
    parts: dict[str, list[str]], name: str, trips: int | None, is_branch: bool = False
) -> Loop:
    kernels: list[Kernel] = []
    inner: list[Loop] = []
    for line in parts.get(name, ()):
        match = _LINE.search(line)
        if match is None:
            continue
        op = match.group(3)
        if op == "while":
            count = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            body = _named(line, "body")
            inner.append(_loop(parts, body, int(count.group(1)) if count else None))
        elif op == "conditional":
            inner += [_loop(parts, each, 1, True) for each in _branches(line)]
        elif op in ("call", "async-start"):
            called = _loop(parts, _named(line, "(?:to_apply|calls)"), 1)
            kernels += called.kernels
            inner += called.inner
        elif op not in FREE:
            source = re.search(r'op_name="([^"]*)"', line)
            kernels.append(
                Kernel(op, match.group(2)[:60], source.group(1) if source else "")
            )
    return Loop(trips, tuple(kernels), tuple(inner), is_branch)


def _named(line: str, what: str) -> str:
    found = re.search(rf"{what}=%?([\w.\-]+)", line)
    assert found is not None, line
    return found.group(1)


def _branches(line: str) -> list[str]:
    found = re.search(r"branch_computations=\{([^}]*)\}", line)
    if found:
        return [name.strip().lstrip("%") for name in found.group(1).split(",")]
    return re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line)


def lines(loop: Loop, is_listed: bool = False, depth: int = 0) -> list[str]:
    """Return a loop as lines of text, indented by depth.

    Args:
        loop: The loop.
        is_listed: Whether to name every kernel.
        depth: How deep it lies.
    """
    trips = "?" if loop.trips is None else f"{loop.trips:,}"
    what = "branch of" if loop.is_branch else f"{trips} x"
    found = [f"{'  ' * depth}{what} {len(loop.kernels)} kernels"]
    if is_listed:
        found += [
            f"{'  ' * (depth + 2)}{k.op} {k.shape} <- {k.source[-90:]}"
            for k in loop.kernels
        ]
    for each in loop.inner:
        found += lines(each, is_listed, depth + 1)
    return found
