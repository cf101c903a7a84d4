"""The options with which programs are compiled."""

import jax
import jax.numpy as jnp
import pytest

import purerl
from purerl.scale.devices import LEVEL, compile_for, make_workers
from tests.helpers import option


@pytest.fixture(autouse=True)
def _users(monkeypatch: pytest.MonkeyPatch):
    """As for a user: nothing has chosen a level."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
    with option("jax_disable_most_optimizations", False):
        yield


def test_the_second_level_is_chosen_on_a_cpu_alone_if_nobody_chose(monkeypatch):
    assert purerl.compiler_options() == {LEVEL: 2}
    assert purerl.compiler_options("cpu") == {LEVEL: 2}
    assert purerl.compiler_options("gpu") == {}
    monkeypatch.setenv("XLA_FLAGS", f"--{LEVEL}=3")
    assert purerl.compiler_options() == {}
    monkeypatch.delenv("XLA_FLAGS")
    jax.config.update("jax_disable_most_optimizations", True)
    assert purerl.compiler_options() == {}


def test_a_user_can_compile_with_them():
    doubled = jax.jit(lambda x: 2 * x, compiler_options=purerl.compiler_options())
    assert doubled(jnp.array(3)) == 6


def test_programs_of_the_library_are_compiled_with_them():
    seen = []

    class Jitted:
        def lower(self, *args: object) -> "Jitted":
            return self

        def compile(self, compiler_options: object = None) -> str:
            seen.append(compiler_options)
            return "program"

    workers = make_workers(None)
    found = compile_for(Jitted(), workers, lambda device: ())
    devices = {worker.device for worker in workers}
    assert found == dict.fromkeys(devices, "program")
    assert seen == [{LEVEL: 2}] * len(devices)
