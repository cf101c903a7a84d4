"""Strict flags for every test, and two host devices, before jax is first used."""

import os

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# Programs are compiled once per machine; the second run of the tests is much faster.
cache = os.environ.get("PURERL_TEST_CACHE", os.path.join(os.getcwd(), ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)
