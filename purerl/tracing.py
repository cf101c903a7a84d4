"""The platform that a program is traced for, where that decides how it is written.

An accelerator with small networks spends its time on starting kernels, so there a
program is written so that it has few of them; a CPU would only have more to do.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import jax

# The platform that programs are traced for; None for that of JAX's default devices.
_platform: ContextVar[str | None] = ContextVar("platform", default=None)


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """Trace programs for a platform that is not that of JAX's default devices.

    Args:
        platform: The platform, such as `cpu` or `cuda`.
    """
    before = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(before)


def traced_for_cpu() -> bool:
    """Return whether programs are traced for a CPU, where small kernels cost little."""
    return (_platform.get() or jax.default_backend()) == "cpu"
