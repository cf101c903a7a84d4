"""Several processes on this machine, joined by `jax.distributed` with Gloo."""

import os
import socket
import subprocess
import sys
import textwrap

import jax
import pytest

import purerl
from purerl.scale import hosts

from .conftest import LANES, RATES, SEGMENT, assert_equal

CHILD = """
    import sys
    import jax
    cache, port, process, *folders = sys.argv[1:]
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_num_cpu_devices", 2)
    from purerl.scale import hosts
    hosts.join("localhost:" + port, 2, int(process))
    import purerl
    from tests.helpers import tiny_config
    for folder in folders:
        result = purerl.sweep(
            tiny_config(), {"learning_rate": %r}, seeds=5, out=folder, lanes=%d,
            segment_updates=%d, chunk_blocks=1, progress=False)
        print(process, result.summary["env_steps"], result.finished)
""" % (RATES, LANES, SEGMENT)  # noqa: UP031


def run_two(*folders):
    """The sweep into some folders, by two processes; what each of them printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    code, cache = textwrap.dedent(CHILD), jax.config.jax_compilation_cache_dir
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, cache, port, str(process), *folders[process]],
            cwd=os.getcwd(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for process in (0, 1)
    ]
    printed = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    lines = [line.split() for text in printed for line in text.splitlines()]
    return [line for line in lines if line and line[0] in "01"]


def test_two_processes_equal_one(whole, tmp_path):
    shared, own = tmp_path / "shared", [tmp_path / "own0", tmp_path / "own1"]
    lines = run_two([shared, own[0]], [shared, own[1]])
    # Eight chunks, the last one of one member: four each, nothing twice.
    steps = sorted(int(line[1]) for line in lines[::2])
    assert steps == [7 * 640, 8 * 640]
    assert_equal(purerl.load_sweep(shared), whole)
    # Without a shared folder each has its part; put together they are the whole.
    for folder in own:
        assert not purerl.load_sweep(folder).finished
    for path in (own[1] / "chunks").glob("*.npz"):
        path.rename(own[0] / "chunks" / path.name)
    assert_equal(purerl.load_sweep(own[0]), whole)


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
    ],
)
def test_launchers_are_noticed(monkeypatch, environment):
    assert not hosts.launched()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert hosts.launched()


def test_one_task_of_slurm_is_no_job_of_several(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    hosts.join()
    assert hosts.count() == 1


def test_half_of_an_address_is_refused():
    with pytest.raises(purerl.ConfigError, match="go together, got 'a:1', None and 0"):
        hosts.join("a:1", None, 0)
