"""The kernels that a GPU would run are no more than those that the pages show."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "experiments" / "benchmarks"
PYTHON = BENCHMARKS.parents[1] / ".venv-gpu-program" / "bin" / "python"
KEPT = BENCHMARKS.parent / "results" / "benchmarks" / "gpu-program.json"
KEPT_NUMBERS = json.loads(KEPT.read_text())


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="needs setup_gpu_program.sh")
@pytest.mark.parametrize(
    "label",
    [
        "ppo-cartpole",
        "ppo-cartpole, 1 agent",
        "wide-cartpole",
        "dqn-cartpole",
        "sac-pendulum",
    ],
)
def test_no_change_has_brought_a_kernel_back(label, tmp_path):
    """A comparison more in PPO's loss once cost a kernel in every gradient step."""
    kept, row = KEPT_NUMBERS[label], label.partition(",")[0]
    if kept["jax"] != version("jax"):
        pytest.skip(f"the numbers kept are those of jax {kept['jax']}")
    out = tmp_path / "counted.json"
    command = [PYTHON, BENCHMARKS / "gpu_program.py", row, "--out", out]
    command += ["--agents", str(kept["agents"])]
    subprocess.run(command, check=True, capture_output=True)
    counted = json.loads(out.read_text())[label]
    assert counted["kernels"] <= kept["kernels"], counted["loops"]
