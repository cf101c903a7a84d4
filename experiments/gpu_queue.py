"""The queue for a GPU: what waits for one, in its order, several parts at a time.

    python experiments/gpu_queue.py --list
    python experiments/gpu_queue.py --at-once 8 --minutes 9 --purejaxrl PATH/ppo.py
    RESULTS_TOY=1 python experiments/gpu_queue.py --only dqn-minatar-10m-freeway

A part is a learning row of results_rows.yaml with a place in the queue, trained by
`results.py`, or a part of `benchmarks/gpu_day.py`. A part that has its file is not run
again. Rows are resumable: one that is stopped goes on with the same command. What is
timed has the device for itself, after the rows. With RESULTS_TOY rows train next to
nothing, and no numbers are kept.

Several rows at a time gain most where NVIDIA's multi-process service runs
(`nvidia-cuda-mps-control -d`): kernels of several processes then run side by side.
Replay buffers of images take some GB each, so that a few DQN rows fill a GPU.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import frame
from results import ROWS, TOY

DAY = frame.EXPERIMENTS / "benchmarks" / "gpu_day.py"
KEPT_DAY = frame.RESULTS / "gpu-day"
SHORTEST = 30  # Seconds; with fewer left no part begins.


class Part(NamedTuple):
    """Something that waits.

    Attributes:
        name: Its name.
        what: What it is.
        file: Its file, which is there when it is done.
        command: The command that does it.
        is_timed: Whether it must have the device for itself.
    """

    name: str
    what: str
    file: Path
    command: list[str]
    is_timed: bool


def parts(extra: list[str]) -> dict[str, Part]:
    """Return the parts in their order.

    Args:
        extra: More options of `gpu_day.py`.
    """
    sys.path.insert(0, str(DAY.parent))
    import gpu_day

    found = []
    script = str(frame.EXPERIMENTS / "results.py")
    rows = [(row.queue, name) for name, row in ROWS.items() if row.queue]
    for _, name in sorted(rows, key=lambda pair: pair[0]):
        file = frame.RESULTS / f"{name}.json"
        found.append(Part(name, ROWS[name].title, file, [script, name], False))
    for name, part in gpu_day.PARTS.items():
        command = [str(DAY), f"--out={KEPT_DAY}", *extra, "--only", name]
        found.append(Part(name, part.what, KEPT_DAY / f"{name}.json", command, True))
    return {part.name: part for part in found}


def run(part: Part, until: float, logs: Path) -> str:
    """Do a part, and say how it ended.

    Args:
        part: The part.
        until: The reading of `time.monotonic` at which it is stopped.
        logs: Folder of the output of the parts.
    """
    began, log = time.monotonic(), logs / f"{part.name}.log"
    if until - began < SHORTEST:
        return "no time is left"
    env = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, *part.command], env=env, stdout=file, stderr=file
        )
        try:
            code = process.wait(until - began)
        except subprocess.TimeoutExpired:
            # A run keeps what it has at the first signal.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
            return "stopped; the same command goes on with it"
    seconds = time.monotonic() - began
    return f"done in {seconds:.0f} s" if not code else f"failed, see {log}"


def main() -> None:
    """Do what waits, or list it."""
    asked = frame.options(
        __doc__,
        list=(False, "print what waits, and stop"),
        only=([str], parts([]), "these parts"),
        at_once=(4, "rows that are trained at a time"),
        minutes=(9.0, "of this command, at the most"),
        purejaxrl=(Path, "PureJaxRL's ppo.py"),
    )
    extra = [f"--purejaxrl={asked.purejaxrl}"] if asked.purejaxrl else []
    every = parts(extra)
    names = asked.only or list(every)
    waiting = [every[name] for name in names]
    if TOY not in os.environ:
        waiting = [part for part in waiting if not part.file.exists()]
    if asked.list or not waiting:
        for part in waiting:
            print(f"{part.name:<36} {part.what}")
        print(f"{len(waiting)} of {len(names)} parts wait.")
        return
    until = time.monotonic() + 60 * asked.minutes
    logs = frame.ROOT / "runs" / "queue"
    logs.mkdir(parents=True, exist_ok=True)

    def work(part: Part) -> None:
        print(f"{part.name}: {run(part, until, logs)}", flush=True)

    with ThreadPoolExecutor(asked.at_once) as pool:
        list(pool.map(work, [part for part in waiting if not part.is_timed]))
    for part in waiting:
        if part.is_timed:
            work(part)


if __name__ == "__main__":
    main()
