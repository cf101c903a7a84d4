"""Several processes on this machine, joined by `jax.distributed` with Gloo."""

import os
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

import purerl
from purerl.scale import hosts

from .conftest import LANES, RATES, SEGMENT, assert_equal, run_sweep

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
            segment_updates=%d, progress=False)
        print(process, result.summary["env_steps"], result.summary["trained_members"])
""" % (RATES, LANES, SEGMENT)  # noqa: UP031


def run_two(*folders):
    """The sweep into some folders, by two processes; what each of them printed."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    code, cache = textwrap.dedent(CHILD), jax.config.jax_compilation_cache_dir
    command = [sys.executable, "-c", code, cache, port]
    pipes = {"cwd": os.getcwd(), "stdout": subprocess.PIPE, "text": True}
    children = [
        subprocess.Popen([*command, str(process), *folders[process]], **pipes)
        for process in (0, 1)
    ]
    printed = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    lines = [line.split() for text in printed for line in text.splitlines()]
    return [line for line in lines if line and line[0] in "01"]


@pytest.mark.slow
def test_two_processes_equal_one(whole, tmp_path):
    shared, own = tmp_path / "shared", [tmp_path / "own0", tmp_path / "own1"]
    lines = run_two([shared, own[0]], [shared, own[1]])
    # Both know of the work of both: fifteen members, nothing twice.
    assert [line[1:] for line in lines] == [[str(15 * 640), "15"]] * 4
    assert len(list((shared / "chunks").glob("*.npz"))) == 8
    assert_equal(purerl.load_sweep(shared), whole)
    # Without a shared folder each has its part; put together they are the whole.
    for folder in own:  # four chunks of two members each, the last one of one
        assert len(list((folder / "chunks").glob("*.npz"))) == 4
        assert not purerl.load_sweep(folder).finished
    for path in (own[1] / "chunks").glob("*.npz"):
        path.rename(own[0] / "chunks" / path.name)
    assert_equal(purerl.load_sweep(own[0]), whole)


def test_several_processes_need_a_folder(tiny, monkeypatch):
    monkeypatch.setattr(hosts, "count", lambda: 2)
    with pytest.raises(purerl.ConfigError, match="sweep of 2 processes needs a folder"):
        run_sweep(tiny)


class Coordinator:
    """Process 1 comes after some questions."""

    def __init__(self, questions):
        self.questions, self.places, self.asked = questions, {}, []

    def key_value_set(self, place, value):
        self.places[place] = value

    def blocking_key_value_get(self, place, milliseconds):
        self.asked.append(place)
        if place in self.places or len(self.asked) > self.questions:
            return "here"
        raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: GetKeyValue() timed out")


def test_others_are_waited_for_however_long_it_takes(monkeypatch):
    coordinator = Coordinator(questions=5)
    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(hosts, "index", lambda: 0)
    monkeypatch.setattr(hosts, "_client", lambda: coordinator)
    hosts.barrier()
    own, *others = coordinator.asked
    assert own.endswith("/0") and len(others) == 5
    assert all(place.endswith("/1") for place in others)
    hosts.barrier()  # another meeting has another place
    assert coordinator.asked[-1].split("/")[2] != own.split("/")[2]


def test_an_error_of_the_coordinator_is_no_lateness(monkeypatch):
    def gone(place, milliseconds):
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: connection refused")

    coordinator = Coordinator(0)
    coordinator.blocking_key_value_get = gone
    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(hosts, "_client", lambda: coordinator)
    with pytest.raises(jax.errors.JaxRuntimeError, match="UNAVAILABLE"):
        hosts.barrier()


def test_sums_over_processes_are_exact(monkeypatch):
    from jax.experimental import multihost_utils

    monkeypatch.setattr(hosts, "count", lambda: 2)
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda x: np.stack([x, x])
    )
    odd = 2**40 + 1  # float32, and JAX's integers of 32 bits, cannot hold it
    assert hosts.all_sum([odd, 3]).tolist() == [2 * odd, 6]
    assert hosts.all_max(1.25) == 1.25
    np.testing.assert_array_equal(hosts.all_min([[1, 2], [3, 4]]), [[1, 2], [3, 4]])


@pytest.mark.parametrize("names", hosts._LAUNCHERS)
def test_launchers_are_noticed(monkeypatch, names):
    assert not hosts.launched()
    for name, value in zip(names, ("1", "4"), strict=True):
        monkeypatch.setenv(name, value)
    assert hosts.launched()
    # One task is no job of several.
    monkeypatch.setenv(names[1], "1")
    hosts.join()
    assert hosts.count() == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("first-host", 2, 0), "must be host:port of process 0.*got 'first-host'"),
        (("a:1", None, 0), "process one of 0 to .*got 'a:1', 0 and None"),
        (("first-host:1234", 2, 2), "process one of 0 to .*, 2 and 2"),
    ],
)
def test_what_cannot_be_joined_is_refused_before_anybody_waits(asked, words):
    with pytest.raises(purerl.ConfigError, match=words):
        hosts.join(*asked)
