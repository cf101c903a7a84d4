"""SIGKILL a sweep at ten random moments, and finish it: the same bits, little redone.

python experiments/sweep_kills.py [--kills 10]

Every attempt is a process of its own that is killed a random time after a random number
of further chunks. Printed: finished chunks after every kill, chunks that were
started in all (an attempt loses at most one per worker), and whether every array of the
result equals the uninterrupted sweep's, bit for bit.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from frame import cores, options, use_cache

import purerl
from purerl.sweeps import loop


def sweep(out: str, journal: str) -> None:
    """Sweep in a folder, with a line in a journal for every chunk that is started."""
    use_cache()
    curves_of = loop.curves_of

    def counted(*arguments: Any, **settings: Any) -> Any:
        with Path(journal).open("a") as file:
            file.write("chunk\n")
        return curves_of(*arguments, **settings)

    loop.curves_of = counted
    purerl.sweep(
        purerl.PPOConfig(total_timesteps=20_480, num_evaluations=2),
        {"learning_rate": [1e-4, 1e-3, 1e-2]},
        seeds=64,
        out=out,
        lanes=4,
        chunk_blocks=1,
        progress=False,
    )


def start(out: Path, journal: Path) -> subprocess.Popen:
    """Start the sweep in a process of its own; it writes its chunks into `journal`."""
    return subprocess.Popen(
        [sys.executable, __file__, "--child", str(out), str(journal)]
    )


def _wait(folder: Path, chunks: int, child: subprocess.Popen) -> None:
    """Until there are more than so many chunks."""
    while len(list(folder.glob("chunks/*.npz"))) <= chunks and child.poll() is None:
        time.sleep(0.002)


def main() -> None:
    """Kill, count, compare and print."""
    args = options(__doc__, kills=10, seed=0)
    draw = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp())
    whole, killed = folder / "whole", folder / "killed"
    began = time.perf_counter()
    assert start(whole, folder / "whole.log").wait() == 0
    seconds = time.perf_counter() - began
    chunks = len(list(whole.glob("chunks/*.npz")))
    print(f"uninterrupted: {chunks} chunks of 4 members in {seconds:.1f} s")

    journal = folder / "killed.log"
    journal.touch()
    kills, lost = 0, 0
    while kills < args.kills:
        before = len(journal.read_text().split())
        done = len(list(killed.glob("chunks/*.npz")))
        child = start(killed, journal)
        _wait(killed, done + draw.randrange(5), child)
        time.sleep(draw.uniform(0.0, 0.2))
        if child.poll() is not None:
            break  # it finished before it could be killed
        child.send_signal(signal.SIGKILL)
        child.wait()
        kills += 1
        now = len(list(killed.glob("chunks/*.npz")))
        started = len(journal.read_text().split()) - before
        lost = max(lost, started - (now - done))
        print(f"kill {kills}: {now} of {chunks} chunks are there, {started} started")
    assert start(killed, journal).wait() == 0
    started = len(journal.read_text().split())
    print(
        f"{started} chunks started for {chunks}; at most {lost} lost per kill, "
        f"{cores()} workers"
    )
    one, two = purerl.load_sweep(whole), purerl.load_sweep(killed)
    same = all(
        np.array_equal(one[name].values, two[name].values, equal_nan=True)
        for name in one.names
    )
    print(f"{len(one.names)} arrays of {len(one.seeds) * 3} members equal: {same}")
    assert same and lost <= cores()


if __name__ == "__main__":
    sweep(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main()
