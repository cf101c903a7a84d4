"""The queue for a GPU: what waits, in which order, and a row of it at toy size."""

import subprocess
import sys
import time

import gpu_queue
import pytest
import results


def test_rows_wait_in_their_order_before_what_is_timed():
    found = list(gpu_queue.parts([]).values())
    timed = [part.is_timed for part in found]
    assert timed == sorted(timed) and any(timed)
    places = [results.ROWS[part.name].queue for part in found if not part.is_timed]
    assert places == sorted(places) and min(places) > 0
    assert {name for name, row in results.ROWS.items() if row.queue} == {
        part.name for part in found if not part.is_timed
    }


def test_a_part_that_takes_too_long_is_stopped(tmp_path, monkeypatch):
    command = ["-c", "import time; time.sleep(60)"]
    part = gpu_queue.Part("slow", "sleeps", tmp_path / "slow.json", command, False)
    assert gpu_queue.run(part, time.monotonic() + 1, tmp_path) == "no time is left"
    monkeypatch.setattr(gpu_queue, "SHORTEST", 0)
    assert gpu_queue.run(part, time.monotonic() + 1, tmp_path).startswith("stopped")


@pytest.mark.slow
def test_a_row_of_the_queue_at_toy_size(monkeypatch):
    name = "ppo-minatar-10m-breakout"
    kept = results.frame.RESULTS / f"{name}.json"
    before = kept.read_bytes()
    monkeypatch.setenv("RESULTS_TOY", "1")
    command = [sys.executable, gpu_queue.__file__, "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert f"{name}: done in" in done.stdout, done.stdout + done.stderr
    assert kept.read_bytes() == before
