"""Strict flags for every test, and two host devices, before jax is first used."""

import os
import signal
from pathlib import Path

# Many small programs on all cores: one piece of code each takes a tenth less time.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_parallel_codegen_split_count=1"
).strip()

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)


def _compile_quickly() -> None:
    """Where nothing is optimised, let the CPU's kernels be made in the simple way.

    XLA's fusion emitters take three quarters of such a compilation. JAX has no public
    setting for options of all compilations, so that where its function has moved,
    tests are only slower.
    """
    from jax._src import compiler

    options = getattr(compiler, "get_compile_options", None)
    if options is None:
        return

    def quick_options(*args, env_options_overrides=None, **kwargs):
        if jax.config.read("jax_disable_most_optimizations"):
            simple = {"xla_cpu_use_fusion_emitters": False}
            env_options_overrides = simple | dict(env_options_overrides or {})
        return options(*args, env_options_overrides=env_options_overrides, **kwargs)

    compiler.get_compile_options = quick_options


_compile_quickly()
# Programs are compiled once per machine; the second run of the tests is much faster.
cache = os.environ.get("PURERL_TEST_CACHE", os.path.join(os.getcwd(), ".jax_cache"))
jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

# Most of a test's time is compilation, and half of that optimises what runs for
# milliseconds. Where nothing is said about bits or speed, the compiler need not try.
UNOPTIMISED = (
    "algorithms",
    "cli",
    "contracts",
    "core",
    "docs",
    "envs",
    "execution",
    "meta",
    "tuning",
)
UNOPTIMISED_FILES = (
    "test_capacity.py",
    "test_full_disk.py",
    "test_sweep.py",
    "test_track_folder.py",
    "test_tracking.py",
    "test_adversary.py",
    "test_divergence.py",
    "test_errors.py",
    "test_genome.py",
    "test_parallel_replay.py",
    "test_planner.py",
    "test_tracker_stores.py",
    "test_trackers.py",
    "test_transfer.py",
)
# Pieces, lanes and devices give the same bits in programs as users compile them.
OPTIMISED = ("test_bits.py", "test_equivalences.py", "test_ppo_learning.py")
# Their tests call the library again and again with the same program.
SHARING = ("cli", "meta", "population", "runner", "sweeps", "tuning")
# A file is one worker's (`--dist loadfile`): long ones first, else the last of them
# runs alone while the other worker waits.
LONG_FIRST = (
    "contracts",
    "algorithms",
    "docs",
    "sweeps",
    "tuning",
    "population",
    "meta",
    "runner",
    "scale",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of `LONG_FIRST`, then the others as they are."""

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)

    items.sort(key=rank)


@pytest.fixture(scope="module", autouse=True)
def _optimise_a_file(request: pytest.FixtureRequest):
    path = request.path.relative_to(Path(__file__).parent)
    quick = path.parts[0] in UNOPTIMISED or path.name in UNOPTIMISED_FILES
    quick = quick and path.name not in OPTIMISED
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module", autouse=True)
def _share_programs_in_a_file(request: pytest.FixtureRequest):
    if request.path.relative_to(Path(__file__).parent).parts[0] not in SHARING:
        yield
        return
    import purerl  # after JAX has been set up

    with purerl.share_programs():
        yield


@pytest.fixture(autouse=True)
def _optimise_a_slow_test(request: pytest.FixtureRequest):
    if request.node.get_closest_marker("slow") is None:
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def _ctrl_c_is_as_before():
    """Whatever a test does, Ctrl-C interrupts Python again when it is over."""
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is before, after


@pytest.fixture
def quickly_compiled():
    """Without optimisation, in a file that has it: the test is not about bits."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)
