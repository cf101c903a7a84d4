"""The measured speed at which a compiled program trains here."""

import time
from collections.abc import Sequence

import jax

from purerl.execution.members import Members
from purerl.execution.programs import Program
from purerl.scale.devices import Worker, run_blocks


def rate(
    program: Program,
    block: Members,
    workers: Sequence[Worker],
    least_seconds: float,
) -> float:
    """Measure environment steps per second with one block on every worker.

    The second half of the run is timed where there is one: a warm-up is cheap.

    Args:
        program: The compiled program, for the devices of `workers`.
        block: A block of members, `[W]`.
        workers: Workers that train the block at the same time.
        least_seconds: Seconds of measurement at the least; one call is timed in any
            case.
    """
    length, total = program.length, program.bound.plan.num_updates
    steps = length * program.bound.plan.steps_per_update * program.lanes

    def work(worker: Worker, _: int) -> float:
        state = jax.block_until_ready(program.init(worker.device, block))
        first = max(0, (total // 2) // length * length)
        state, _records = program.advance(worker.device, state, block.overrides, first)
        began, segments = time.perf_counter(), 0
        while segments == 0 or time.perf_counter() - began < least_seconds:
            state, _records = program.advance(
                worker.device, state, block.overrides, first
            )
            segments += 1
        return segments * steps / (time.perf_counter() - began)

    return float(sum(run_blocks(workers, range(len(workers)), work)))
