"""The memory mappings of this process, which bound how many programs it can hold.

XLA loads every kernel of a CPU program by itself, in two or three mappings of memory:
a small program takes hundreds of them, and one with brax's physics thousands. Linux
allows a process 65,530 (`vm.max_map_count`), however much memory is free. Beyond them
LLVM prints "Cannot allocate memory", and the process dies. So whoever holds many
programs asks here whether there is room for more, and lets go of some where there is
not.
"""

from pathlib import Path

_MAPPINGS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
# Of the other half, programs that are compiled side by side take their mappings.
SHARE = 0.5


def is_nearly_full() -> bool:
    """Return whether this process has used up half of the mappings that it may have.

    It is False on systems other than Linux, which do not count them.
    """
    try:
        limit = int(_LIMIT.read_text())
        with _MAPPINGS.open("rb") as file:
            return sum(1 for _ in file) > SHARE * limit
    except (OSError, ValueError):
        return False
