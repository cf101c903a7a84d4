"""The kernels that a GPU would run are no more than those that the pages show."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from kernel_text import lines, read

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


TEXT = """\
HloModule jit_f

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %a = f32[8] get-tuple-element(%p), index=1
  %b = f32[8] fusion(%a), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/tanh"}
  %c = s32[] add(%n, %one)
  ROOT %t = (s32[], f32[8]) tuple(%c, %b)
}

%command_buffer (q: f32[8]) -> f32[8] {
  %q = f32[8] parameter(0)
  ROOT %d = f32[8] custom-call(%q), custom_call_target="gemm"
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  %w = (s32[], f32[8]) while(%x), condition=%cond, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  ROOT %y = f32[8] call(%x), to_apply=%command_buffer
}
"""


def test_collectives_count_as_often_as_they_run_and_their_ends_not_at_all():
    text = TEXT.replace(
        "  %c = s32[]",
        "  %r = f32[8] all-reduce-start(%b), to_apply=%sum\n"
        "  %s = f32[8] all-reduce-done(%r)\n"
        "  %g = f32[8] all-gather(%b), dimensions={0}\n  %c = s32[]",
    )
    assert (read(TEXT).collectives(), read(text).collectives()) == (0, 2 * 5)
    assert read(text).total() == read(TEXT).total() + 2 * 5


def test_the_kernels_of_a_text():
    loop = read(TEXT)
    assert loop.total() == 5 * 2 + 1
    assert lines(loop) == ["1 x 1 kernels", "  5 x 2 kernels"]
    assert lines(loop, is_listed=True)[-2].endswith("fusion f32[8] <- jit(f)/tanh")


BRANCHES = """\
%skip (p: f32[8]) -> f32[8] {
  ROOT %k = f32[8] copy(%p)
}

%learn (p: f32[8]) -> f32[8] {
  %l = f32[8] all-reduce(%p), to_apply=%sum
  ROOT %m = f32[8] copy(%l)
}

"""


def test_of_a_branching_the_larger_side_counts():
    text = TEXT.replace("%body (p", BRANCHES + "%body (p").replace(
        "  %c = s32[]",
        "  %o = f32[8] conditional(%i, %b, %b), branch_computations={%skip, %learn}\n"
        "  %c = s32[]",
    )
    assert read(text).total() == read(TEXT).total() + 5 * 2
    assert read(text).collectives() == 5
    sides = ["    one of 2 sides: 1 kernels", "    one of 2 sides: 2 kernels"]
    assert lines(read(text)) == ["1 x 1 kernels", "  5 x 2 kernels", *sides]
