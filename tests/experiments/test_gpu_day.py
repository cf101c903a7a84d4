"""The measurements of a day with a GPU, at toy size on a CPU."""

import json
from functools import partial
from pathlib import Path

import pytest

from purerl.contrib.hardware.estimate import load_device

from .conftest import run_script

SCRIPT = Path(__file__).parents[2] / "experiments" / "benchmarks" / "gpu_day.py"


day = partial(run_script, SCRIPT)


@pytest.mark.slow
def test_a_part_leaves_its_file_and_is_not_measured_again(tmp_path):
    first = day("--toy", "--only", "device", "--out", tmp_path)
    record = json.loads((tmp_path / "device.json").read_text())
    assert record["toy"] and not record["error"]
    assert record["device"].startswith("cpu") and "jax" in record["versions"]
    assert "from one dependent kernel to the next" in first
    # 100 turns at the least, of a kernel or more.
    assert record["rows"][0]["kernels"] >= 100
    measured = load_device(tmp_path / "work" / "device" / "device.yaml")
    rate = record["rows"][0]["microseconds_per_kernel"]
    assert measured.microseconds_per_kernel == pytest.approx(rate)
    # A part that failed stays failed until it is asked for again.
    record["error"] = "out of memory"
    name = "dqn"
    (tmp_path / f"{name}.json").write_text(json.dumps(record | {"part": name}))
    again = day("--toy", "--only", "device", name, "--out", tmp_path)
    assert "device: has its file\n" in again
    assert f"{name}: has its file, which failed (--retry)" in again
    assert f"* {name}: out of memory" in again
    assert json.loads((tmp_path / "device.json").read_text())["rows"] == record["rows"]


def test_a_day_needs_whole_numbers_of_one_and_more():
    with pytest.raises(AssertionError, match=r"--rounds must be at least 1, got 0\."):
        day("--toy", "--rounds", "0")


@pytest.mark.slow
def test_every_part_at_toy_size(tmp_path):
    parts = [line.split()[0] for line in day("--list").splitlines()]
    # At toy size the others of these kinds are the same; here are no peers.
    first = next(part for part in parts if part.startswith("ppo-"))
    wanted = [part for part in parts if not part.startswith("ppo-") or part == first]
    peers = tmp_path / "none"
    table = day("--toy", "--only", *wanted, "--out", tmp_path, "--peers", peers)
    for name in wanted:
        record = json.loads((tmp_path / f"{name}.json").read_text())
        assert not record["error"], record["error"]
        ours = [row for row in record["rows"] if row.get("who", "purerl") == "purerl"]
        failed = [row for row in ours if "error" in row]
        assert not failed, failed
    bits = json.loads((tmp_path / "bits.json").read_text())["rows"]
    assert [row["run"] for row in bits] == ["first", "cached", "anew", "killed"]
    assert all(row["is_equal"] for row in bits)
    assert "the peers' environment is missing" in table
