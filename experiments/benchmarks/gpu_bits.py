"""A check that a GPU repeats itself to the last bit: four runs of a seed, and a kill.

Every run is a process of its own. The first one compiles and fills a cache; the second
one takes its programs from there; the third one compiles anew, so that the compiler's
choices, which it makes by timing on a GPU, may differ; the fourth one is killed after
its first checkpoint and resumed.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from gpu_parts import Day

from purerl.storage import checkpoint

REAL = ("--seeds", "64")
TOY = (
    *("--seeds", "2", "--total-timesteps", "640", "--num-envs", "2"),
    *("--num-steps", "16", "--hidden-sizes", "8", "--num-minibatches", "2"),
)


def measure_bits(day: Day) -> None:
    """Train, train again, kill and resume; add what was equal."""
    words = [
        *("train", "--preset", "ppo-cartpole", "--num-evaluations", "0"),
        *(TOY if day.is_toy else REAL),
        *("--segment-updates", "4" if day.is_toy else "20"),
        *("--checkpoint-seconds", "0", "--no-progress"),
    ]
    first, cached, anew, killed = (
        day.folder / name for name in ("first", "cached", "anew", "killed")
    )
    cache = {"JAX_COMPILATION_CACHE_DIR": str(day.folder / "cache")}
    for folder, variables in ((first, cache), (cached, cache), (anew, {})):
        began = time.perf_counter()
        wait_for(start([*words, "--out", str(folder)], variables))
        _add(day, folder, first, {"process_seconds": time.perf_counter() - began})
    was_killed = kill(start([*words, "--out", str(killed)], cache), killed)
    if was_killed:
        wait_for(start(["train", "--resume", str(killed)], cache))
    _add(day, killed, first, {"was_killed": was_killed})


def start(words: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start `purerl` with some variables; without a cache where they name none."""
    environment = {**os.environ, "PURERL_COMPILE_CACHE": "off"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-m", "purerl", *words]
    return subprocess.Popen(command, env=environment | variables)


def wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process.

    Raises:
        RuntimeError: it failed.
    """
    if process.wait():
        raise RuntimeError(f"{process.args} ended with {process.returncode}")


def kill(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Kill a run after its first checkpoint; False where it was over before."""
    while process.poll() is None:
        if (folder / "checkpoints").exists() and checkpoint.steps(
            folder / "checkpoints"
        ):
            process.kill()
            process.wait()
            return True
        time.sleep(0.005)
    wait_for(process)
    return False


def _add(day: Day, folder: Path, first: Path, more: dict[str, Any]) -> None:
    updates, state = checkpoint.restore(folder / "checkpoints")
    _, expected = checkpoint.restore(first / "checkpoints")
    differ = [name for name in expected if not _same(expected[name], state[name])]
    row = {"run": folder.name, "updates": updates, "is_equal": not differ}
    day.add(row | {"arrays_that_differ": differ[:8]} | more)


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    return one.dtype == two.dtype and one.tobytes() == two.tobytes()
