"""The time of `purerl.run` with its progress bar and without, in turns.

The bar is drawn for a terminal only, so the runs have a process of their own whose
standard error is a pseudo-terminal, and nobody looks at it.
"""

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import purerl
from purerl import TrainConfig, serialise

ROUNDS = 5


def times_of(config: TrainConfig) -> dict[str, list[float]]:
    """Time one agent's runs in turns, five of each kind.

    Args:
        config: The config of the run.

    Returns:
        Seconds of training, compilation apart: `shown` with the bar, `hidden` without.
    """
    master, terminal = pty.openpty()
    # A terminal that nobody reads fills up, and whoever writes to it waits.
    reader = threading.Thread(target=_drain, args=(master,), daemon=True)
    reader.start()
    try:
        text = subprocess.run(
            [sys.executable, Path(__file__), json.dumps(serialise.to_dict(config))],
            stdout=subprocess.PIPE,
            stderr=terminal,
            check=True,
            env=os.environ | {"TERM": "xterm-256color"},
        ).stdout
    finally:
        os.close(terminal)
    reader.join()
    os.close(master)
    return json.loads(text)


def _drain(master: int) -> None:
    """Read what is written to a terminal until nobody can write to it any more."""
    try:
        while os.read(master, 65_536):
            pass
    except OSError:  # Linux says so in this way.
        pass


def _in_turns(config: TrainConfig) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"shown": [], "hidden": []}
    purerl.run(config, seeds=1, progress=False)  # The first run is slower.
    for number in range(ROUNDS):
        for kind in sorted(found, reverse=number % 2 == 0):
            result = purerl.run(config, seeds=1, progress=kind == "shown")
            found[kind].append(result.train_seconds)
    return found


if __name__ == "__main__":
    print(json.dumps(_in_turns(serialise.from_dict(json.loads(sys.argv[1])))))
