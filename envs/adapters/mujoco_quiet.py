"""Keep MuJoCo from printing what no user of an environment can mend.

Importing `mujoco.mjx` prints that Warp is missing, though the physics of JAX needs
none, and brax's HalfCheetah is a file with an attribute that MuJoCo calls deprecated:
once for every environment that is made.
"""

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Drop what modules print to the standard output while they are imported."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Drop MuJoCo's notes about deprecated attributes while a model is loaded.

    All its other warnings reach the handler that was there, or the standard error.
    """
    import mujoco

    module: Any = mujoco  # Pyright does not see what its compiled part has.
    before = module.get_mju_user_warning()

    def warn(message: str) -> None:
        if "deprecated" in message:
            return
        if before is not None:
            before(message)
        else:
            print(f"WARNING: {message}", file=sys.stderr)

    module.set_mju_user_warning(warn)
    try:
        yield
    finally:
        module.set_mju_user_warning(before)
