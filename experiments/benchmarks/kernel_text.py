"""The kernels of a compiled program, read from its text.

With small networks the time of a GPU is that of kernels which wait for one another, so
their number is the figure to bring down, and it has no noise.

This module imports nothing but the standard library: programs of peers are read with
it in environments without the packages of purerl.
"""

import re
from typing import NamedTuple

# Instructions in the text of a program that launch no kernel.
FREE = {
    *("parameter", "tuple", "get-tuple-element", "bitcast", "constant", "after-all"),
    *("partition-id", "replica-id", "async-done", "optimization-barrier"),
    *("all-reduce-done", "all-gather-done", "collective-permute-done", "copy-done"),
}
# Instructions with which devices wait for one another.
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][a-z\-0-9]*)\(")


class Kernel(NamedTuple):
    """One kernel, or a copy.

    Attributes:
        op: Operation that the kernel computes.
        shape: Shape of what the kernel writes.
        source: The operation of JAX that it came from.
    """

    op: str
    shape: str
    source: str


class Loop(NamedTuple):
    """The program itself, a loop in it, or one side of a branching.

    Attributes:
        trips: Number of times that its body runs each time that it is reached; 1 for
            the program and for a side, None where that is not known when it is
            compiled.
        kernels: Kernels of one pass, without those of loops and branchings inside it.
        inner: Loops inside it.
        branchings: Sides of each branching inside it, of which one runs.
    """

    trips: int | None
    kernels: tuple[Kernel, ...]
    inner: tuple["Loop", ...]
    branchings: tuple[tuple["Loop", ...], ...] = ()

    def total(self) -> int:
        """Return the kernels in all, as if every branching took its larger side.

        A loop of unknown length counts as run once.
        """
        own = len(self.kernels) + sum(loop.total() for loop in self.inner)
        own += sum(max(side.total() for side in sides) for sides in self.branchings)
        return own * (self.trips or 1)

    def collectives(self) -> int:
        """Return the collective operations in all, counted as `total` does."""
        own = sum(kernel.op.startswith(COLLECTIVES) for kernel in self.kernels)
        own += sum(loop.collectives() for loop in self.inner)
        for sides in self.branchings:
            own += max(sides, key=Loop.total).collectives()
        return own * (self.trips or 1)


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


def _loop(parts: dict[str, list[str]], name: str, trips: int | None) -> Loop:
    kernels: list[Kernel] = []
    inner: list[Loop] = []
    branchings: list[tuple[Loop, ...]] = []
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
            sides = tuple(_loop(parts, each, 1) for each in _branches(line))
            branchings.append(sides)
        elif op in ("call", "async-start"):
            called = _loop(parts, _named(line, "(?:to_apply|calls)"), 1)
            kernels += called.kernels
            inner += called.inner
            branchings += called.branchings
        elif op not in FREE:
            source = re.search(r'op_name="([^"]*)"', line)
            kernels.append(
                Kernel(op, match.group(2)[:60], source.group(1) if source else "")
            )
    return Loop(trips, tuple(kernels), tuple(inner), tuple(branchings))


def _named(line: str, what: str) -> str:
    found = re.search(rf"{what}=%?([\w.\-]+)", line)
    assert found is not None, line
    return found.group(1)


def _branches(line: str) -> list[str]:
    found = re.search(r"branch_computations=\{([^}]*)\}", line)
    if found:
        return [name.strip().lstrip("%") for name in found.group(1).split(",")]
    return re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line)


def lines(loop: Loop, is_listed: bool = False, what: str = "", depth: int = 0) -> list:
    """Return a loop as lines of text, indented by depth.

    Args:
        loop: The loop.
        is_listed: Whether to name every kernel.
        what: What it is, in words; the number of its turns where not given.
    """
    turns = "? x" if loop.trips is None else f"{loop.trips:,} x"
    found = [f"{'  ' * depth}{what or turns} {len(loop.kernels)} kernels"]
    for k in loop.kernels if is_listed else ():
        found.append(f"{'  ' * (depth + 2)}{k.op} {k.shape} <- {k.source[-90:]}")
    for each in loop.inner:
        found += lines(each, is_listed, "", depth + 1)
    for sides in loop.branchings:
        for side in sides:
            found += lines(side, is_listed, f"one of {len(sides)} sides:", depth + 1)
    return found
