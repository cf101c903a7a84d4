"""The fit of a sweep to the machine: bytes per member, blocks at a time, time, lanes.

The compiler says how much memory a block of W lanes needs. Two small widths give the
bytes of one member and of what does not grow with members, from which any width
follows.

On a CPU narrow lanes win, on a GPU wide ones, and past saturation throughput falls. The
width is part of a result's identity, so nothing chooses it behind one's back: it is
measured where it is asked for (`lanes="auto"`, `purerl.find_lanes`).
"""

import contextlib
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import jax

from purerl import serialise
from purerl.atomic import write_atomic
from purerl.config import ConfigError, TrainConfig
from purerl.execution.cache import current_cache
from purerl.execution.dry_run import rate
from purerl.execution.members import Members
from purerl.execution.memory import MemoryModel, device_memory, extrapolate, model_of
from purerl.execution.programs import segment_length
from purerl.precision import in_32_bits
from purerl.scale.devices import MOST_ACCELERATOR_LANES, Worker, make_workers, required
from purerl.storage.files import cache_base
from purerl.storage.folders import versions
from purerl.train import Bound, bind

PROBE_WIDTHS = (1, 2)
# Chunks per worker: few files, yet little to do again after a kill.
CHUNKS_PER_WORKER = 8
# An eighth of a long sweep is too much to lose, or to wait for after Ctrl-C.
CHUNK_SECONDS = 300.0


def probe(bound: Bound, members: Members, length: int, worker: Worker) -> MemoryModel:
    """Compile two small widths, and read their memory."""
    blocks = [members.block(0, width) for width in PROBE_WIDTHS]
    programs = [current_cache().get(bound, b, length, [worker]) for b in blocks]
    return extrapolate([p.memory() for p in programs], PROBE_WIDTHS)


def memory_in_use(workers: Sequence[Worker]) -> float:
    """Return the bytes in use: of the devices where known, else of this process."""
    stats = _device_stats(workers)
    if stats is not None:
        return float(sum(s["bytes_in_use"] for s in stats))
    return _status("VmRSS")


class PeakMemory:
    """The most bytes that were in use inside a `with`; see `memory_in_use`.

    Attributes:
        bytes: The peak; zero before the end.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers
        self.bytes = 0.0

    def __enter__(self) -> Self:
        # A device's peak cannot be reset: what was before counts too.
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the process's peak starts anew
        return self

    def __exit__(self, *error: object) -> None:
        stats = _device_stats(self.workers)
        if stats is not None:
            self.bytes = float(sum(s["peak_bytes_in_use"] for s in stats))
        else:
            self.bytes = _status("VmHWM")


def _device_stats(workers: Sequence[Worker]) -> list[dict[str, int]] | None:
    devices = dict.fromkeys(worker.device for worker in workers)
    stats = [device.memory_stats() for device in devices]
    return None if None in stats else stats


def _status(name: str) -> float:
    """A line of this process's status, in bytes; NaN where there is none."""
    try:
        with open("/proc/self/status") as file:
            values = dict(line.split(":", 1) for line in file)
        return 1024.0 * int(values[name].split()[0])
    except (OSError, KeyError, ValueError):
        return math.nan


def parse_bytes(text: str | float | None) -> float | None:
    """Read bytes from a number or from words such as `2GB`, `512MiB`.

    Raises:
        ConfigError: it cannot be read.
    """
    if text is None:
        return None
    units = {"": 1, "b": 1, "k": 1e3, "kb": 1e3, "kib": 2**10, "m": 1e6, "mb": 1e6}
    units |= {"mib": 2**20, "g": 1e9, "gb": 1e9, "gib": 2**30}
    units |= {"t": 1e12, "tb": 1e12, "tib": 2**40}
    word = str(text).strip()
    number = word.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = word[len(number) :].strip().lower()
    try:
        size = float(number) * units[unit]
    except (ValueError, KeyError):
        size = -1.0
    if not size > 0:
        raise ConfigError(
            f"memory_limit must be a positive number of bytes, got {text!r}; for "
            "example 2GB or 512MiB."
        )
    return size


def worker_limit(memory_limit: str | float | None, workers: Sequence[Worker]) -> float:
    """Return the bytes that a worker may use, its share of `memory_limit` if given."""
    limit = parse_bytes(memory_limit)
    if limit is not None:
        return limit / len(workers)
    return device_memory(workers[0], workers)


def fit_blocks(
    model: MemoryModel, lanes: int, num_members: int, num_workers: int, limit: float
) -> int:
    """Return the blocks of a chunk: what fits, and no more than spreads the work.

    Args:
        model: A model of a worker's bytes.
        lanes: The width of a block, W.
        num_members: The number of members that are to be trained.
        num_workers: The number of workers that share them.
        limit: Bytes that a worker may use.
    """
    num_blocks = -(-num_members // lanes)
    fits = int((limit - model.block(lanes)) // max(lanes * model.state, 1.0)) + 1
    spread = -(-num_blocks // (num_workers * CHUNKS_PER_WORKER))
    return max(1, min(fits, spread))


def blocks_in_time(blocks: int, block_seconds: float) -> int:
    """Return the blocks of a chunk that is trained in about `CHUNK_SECONDS`.

    Args:
        blocks: The number of blocks that fit the memory and spread the work.
        block_seconds: Seconds that a worker takes to train a block.
    """
    return max(1, min(blocks, int(CHUNK_SECONDS / block_seconds)))


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
        memory = model_of(program.memory(), width).block(width)
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


def widths_up_to(most: int) -> list[int]:
    """Return the powers of two up to `most`."""
    return [1 << i for i in range(max(1, most).bit_length())]


MOST_CPU_LANES = 64


@in_32_bits
def find_lanes(
    config: TrainConfig,
    *,
    widths: Sequence[int] | None = None,
    memory_limit: str | float | None = None,
    seconds: float = 2.0,
    remember: bool = True,
) -> list[LaneRate]:
    """Measure training throughput over lane widths, every worker busy.

    The best one is remembered for this device and config, and is what `lanes="auto"`
    of `purerl.sweep` takes from then on.

    Args:
        config: The config to train; only what shapes the program matters.
        widths: Widths to try, ascending; powers of two where not given.
        memory_limit: Bytes for training, as in `purerl.sweep`.
        seconds: Seconds of measurement per width.
        remember: Whether to remember the best width for `lanes="auto"`.

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
    rates = measure_lanes(
        bound, members, length, workers, widths or _widths(workers), limit, seconds
    )
    if remember:
        _remember(_identity(bound, workers), best_of(rates))
    return rates


def find(
    bound: Bound,
    members: Members,
    length: int,
    workers: Sequence[Worker],
    limit: float,
) -> int:
    """Return the best width for a program: the remembered one, or measured now."""
    identity = _identity(bound, workers)
    known = _remembered().get(identity)
    if isinstance(known, int) and known >= 1:
        return known
    rates = measure_lanes(bound, members, length, workers, _widths(workers), limit)
    _remember(identity, best_of(rates))
    return best_of(rates)


def best_of(rates: Sequence[LaneRate]) -> int:
    """Return the width with the highest throughput."""
    return max(rates, key=lambda rate: rate.steps_per_second).lanes


def _widths(workers: Sequence[Worker]) -> list[int]:
    is_cpu = workers[0].device.platform == "cpu"
    return widths_up_to(MOST_CPU_LANES if is_cpu else MOST_ACCELERATOR_LANES)


def cache_file() -> Path | None:
    """Return the path of the file in which widths are remembered, if there is one.

    A user who has no caches (`cache_base`) has no such file.
    """
    base = cache_base()
    return None if base is None else base / "purerl" / "lanes.json"


def _identity(bound: Bound, workers: Sequence[Worker]) -> str:
    """A name for a program on a device: static fields, not numbers or budgets.

    Nor which numbers are overrides: a number per lane or one for all is as fast.
    """
    config = serialise.to_dict(bound.config)
    static = {
        name: value
        for name, value in config.items()
        if not isinstance(value, float) and name != "total_timesteps"
    }
    device = workers[0].device
    about = [
        static,
        f"{device.platform} {device.device_kind} x{len(workers)}",
        versions()["jaxlib"],
    ]
    text = json.dumps(about, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _remembered() -> dict[str, int]:
    path = cache_file()
    if path is None:
        return {}
    try:
        remembered = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return remembered if isinstance(remembered, dict) else {}


def _remember(identity: str, lanes: int) -> None:
    path = cache_file()
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**_remembered(), identity: lanes}, indent=1)
        write_atomic(path, text)
    except OSError:
        return  # A home that cannot be written: it is measured again next time.
