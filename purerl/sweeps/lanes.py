"""The width of blocks that trains fastest, measured.

On a CPU narrow lanes win, on a GPU wide ones, and past saturation throughput falls. The
width is part of a result's identity, so nothing chooses it behind one's back: it is
measured where it is asked for (`lanes="auto"`, `purerl.find_lanes`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax

from purerl.config import ConfigError, TrainConfig
from purerl.execution.cache import current_cache
from purerl.execution.dry_run import rate
from purerl.execution.members import Members
from purerl.execution.memory import worker_limit
from purerl.execution.programs import segment_length
from purerl.precision import in_32_bits
from purerl.scale.devices import MOST_ACCELERATOR_LANES, Worker, make_workers, required
from purerl.train import Bound, bind

MOST_CPU_LANES = 64


class LaneRate(NamedTuple):
    """Throughput at one width, all workers busy.

    Attributes:
        lanes: The width of a block, W.
        steps_per_second: Environment steps per second of all workers.
        compile_seconds: Seconds of compilation.
        memory: Bytes of a worker while it trains one block.
    """

    lanes: int
    steps_per_second: float
    compile_seconds: float
    memory: float


def measure_lanes(
    bound: Bound,
    members: Members,
    length: int,
    workers: Sequence[Worker],
    widths: Sequence[int],
    limit: float,
    least_seconds: float = 2.0,
) -> list[LaneRate]:
    """Measure steps per second over widths, until memory ends or throughput falls.

    Args:
        bound: Config, environment and plan of the members.
        members: Examples of the members, at least one; repeated to fill the lanes.
        length: Updates per call, K.
        workers: Workers, all of which are kept busy with a block each.
        widths: Widths to try, ascending.
        limit: Bytes per worker.
        least_seconds: Seconds of measurement per width at the least.
    """
    rates: list[LaneRate] = []
    for width in widths:
        block = members.block(0, width)
        program = current_cache().get(bound, block, length, workers)
        memory = program.memory().block(width)
        if memory > limit:
            break
        speed = rate(program, block, workers, least_seconds)
        rates.append(LaneRate(width, speed, program.compile_seconds, memory))
        best = max(entry.steps_per_second for entry in rates)
        if len(rates) >= 3 and rates[-2].steps_per_second < 0.7 * best > 0:
            if speed < 0.7 * best:
                break  # Two widths far below the best one: it is past saturation.
    if not rates:
        raise ConfigError(
            f"memory: not even {widths[0]} lanes fit {limit / 2**20:,.0f} MiB."
        )
    return rates


@in_32_bits
def find_lanes(
    config: TrainConfig,
    *,
    widths: Sequence[int] | None = None,
    memory_limit: str | float | None = None,
    seconds: float = 2.0,
) -> list[LaneRate]:
    """Measure training throughput over lane widths, every worker busy.

    The best one is what `lanes="auto"` of `purerl.sweep` takes: it measures too.

    Args:
        config: The config to train; only what shapes the program matters.
        widths: Widths to try, ascending; powers of two where not given.
        memory_limit: Bytes for training, as in `purerl.sweep`.
        seconds: Seconds of measurement per width.

    Returns:
        An entry per width: lanes, environment steps per second over all workers,
        seconds of compilation, bytes of a worker.

    Raises:
        ConfigError: a config that cannot be trained, or no width fits the memory.
    """
    if widths is not None:
        widths = [required("widths", width) for width in widths]
    bound = bind(config)
    workers = make_workers()
    limit = worker_limit(memory_limit, workers)
    length = segment_length(bound)
    members = Members(jax.random.split(jax.random.key(0), 1), {})
    return measure_lanes(
        bound, members, length, workers, widths or _widths(workers), limit, seconds
    )


def find(
    bound: Bound,
    members: Members,
    length: int,
    workers: Sequence[Worker],
    limit: float,
) -> int:
    """Return the width that trains a program fastest, measured."""
    widths = _widths(workers)
    return best_of(measure_lanes(bound, members, length, workers, widths, limit))


def best_of(rates: Sequence[LaneRate]) -> int:
    """Return the width with the highest throughput."""
    return max(rates, key=lambda rate: rate.steps_per_second).lanes


def _widths(workers: Sequence[Worker]) -> list[int]:
    is_cpu = workers[0].device.platform == "cpu"
    most = MOST_CPU_LANES if is_cpu else MOST_ACCELERATOR_LANES
    return [1 << power for power in range(most.bit_length())]
