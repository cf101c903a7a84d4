"""Several processes, each with its own devices: the door to `jax.distributed`.

Every process runs the same command. Each trains its own members and writes its own
files; what is sent between them is a few small arrays on which all must agree.
"""

import itertools
import os
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from purerl.config import ConfigError
from purerl.execution.format import say

ASK_MILLISECONDS = 10_000
_barriers = itertools.count()
# What SLURM and Open MPI set for each process they start.
_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process: int | None = None,
) -> None:
    """Join the other processes of this job, before the first computation.

    Args:
        coordinator: `host:port` of process 0; not needed under SLURM or Open MPI.
        num_processes: Number of processes in all; not needed under SLURM or Open MPI.
        process: Number of this process; not needed under SLURM or Open MPI.

    Raises:
        ConfigError: only some of the three are given, or they cannot be, or JAX has
            computed already.
    """
    given = [x is not None for x in (coordinator, num_processes, process)]
    if not any(given) and not launched():
        return
    if any(given):
        is_place = re.fullmatch(r".+:\d+", str(coordinator))
        if not is_place or process not in range(num_processes or 0):
            raise ConfigError(
                "coordinator must be host:port of process 0, such as node1:12345, and "
                "process one of 0 to num_processes - 1 (under SLURM or Open MPI leave "
                f"all out), got {coordinator!r}, {process} and {num_processes}."
            )
    if jax.distributed.is_initialized():
        return
    # Collectives between CPU processes; ignored where there are accelerators.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(coordinator, num_processes, process)
    except (RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(
            f"cannot join the other processes ({type(error).__name__}: {error}); give "
            "--coordinator HOST:PORT, --num-processes and --process."
        ) from None


def require_one(what: str, remedy: str) -> None:
    """Refuse to go on where this is one of several processes.

    Args:
        what: Words for what runs in one process, with an article.
        remedy: A sentence that says what to do instead.

    Raises:
        ConfigError: there are several.
    """
    if count() > 1:
        raise ConfigError(f"{what} runs in one process, here are {count()}. {remedy}")


def launched() -> bool:
    """Return whether SLURM or Open MPI started more than one process of this job."""
    return any(
        rank in os.environ and os.environ.get(size, "1") != "1"
        for rank, size in _LAUNCHERS
    )


def count() -> int:
    """Return the number of processes of this job."""
    return jax.process_count()


def index() -> int:
    """Return the number of this process."""
    return jax.process_index()


def broadcast(tree: Any) -> Any:
    """Return what process 0 has of a pytree of host arrays of at most 32 bits."""
    tree = jax.tree.map(np.asarray, tree)
    if count() == 1:
        return tree
    from jax.experimental import multihost_utils

    return jax.tree.map(np.asarray, multihost_utils.broadcast_one_to_all(tree))


def all_any(flags: np.ndarray) -> np.ndarray:
    """Return for every flag `[N]` whether any process has it set."""
    return np.asarray(_gathered(np.asarray(flags, bool)).any(0))


def all_min(numbers: Any) -> np.ndarray:
    """Return the least over all processes of numbers of one shape."""
    return _gathered(np.asarray(numbers)).min(0)


def all_max(numbers: Any) -> np.ndarray:
    """Return the most over all processes of numbers of one shape."""
    return _gathered(np.asarray(numbers)).max(0)


def all_sum(numbers: Any) -> np.ndarray:
    """Return the sum over all processes of numbers of one shape, in their own type.

    Whole numbers are summed exactly, and so are floats of which every entry is zero in
    all processes but one.
    """
    numbers = np.asarray(numbers)
    return _gathered(numbers).sum(0, dtype=numbers.dtype)


def _gathered(numbers: np.ndarray) -> np.ndarray:
    """Gather the numbers of all processes, `[P, ...]`.

    They are sent as bytes, because JAX would cut them to 32 bits.
    """
    if count() == 1:
        return numbers[None]
    from jax.experimental import multihost_utils

    raw = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    everywhere = np.ascontiguousarray(multihost_utils.process_allgather(raw))
    return everywhere.view(numbers.dtype).reshape(count(), *numbers.shape)


def barrier() -> None:
    """Return when every process has called this, however long that takes.

    A collective of CPU processes gives up after half an hour, and hosts may have more
    unequal work than that. So the others are waited for at the coordinator first. One
    that has died is noticed there by its missing heartbeats, and JAX ends the rest.
    """
    if count() > 1:
        client, name = _client(), f"purerl/barrier/{next(_barriers)}"
        client.key_value_set(f"{name}/{index()}", "here")
        for other in range(count()):
            while not _is_there(client, f"{name}/{other}"):
                pass  # Python hears signals between two questions.


def _client() -> Any:
    """The connection to the coordinator; JAX has no public name for it."""
    from jax._src import distributed

    return distributed.global_state.client


def _is_there(client: Any, name: str) -> bool:
    """Return whether another process sets a name within some seconds."""
    try:
        client.blocking_key_value_get(name, ASK_MILLISECONDS)
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" in str(error):
            return False
        raise
    return True


def run_on_all(function: Callable[[], Any]) -> Any:
    """Run a function in every process, and return its result in this one.

    Where it fails in one process it fails in all: none waits for one that is gone.

    Raises:
        ConfigError: it failed in another process; here, what it raised.
    """
    result, error = None, None
    try:
        result = function()
    except Exception as caught:
        error = caught
        if count() > 1:  # The others may work for long: say it now.
            say(f"process {index()}: {caught}")
    barrier()
    has_failed = all_any(np.array([error is not None]))[0]
    if error is not None:
        raise error
    if has_failed:
        raise ConfigError("another process of this job failed; see what it says.")
    return result
