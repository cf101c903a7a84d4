"""Scripts of experiments find one another by their folders, as when they are run."""

import os
import subprocess
import sys

from tests.docs.pages import ROOT

FOLDER = ROOT / "experiments"
sys.path[:0] = [str(FOLDER / name) for name in ("studies", "benchmarks", "")]


def run_script(path, *words):
    """What a script printed that ended well, on a CPU."""
    command = [sys.executable, str(path), *map(str, words)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
