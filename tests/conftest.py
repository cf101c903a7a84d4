"""Strict flags for every test, and two host devices, before jax is first used."""

import gc
import hashlib
import os
import platform
import signal
import tempfile
from pathlib import Path

# Many small programs on all cores: one piece of code each takes a tenth less time.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_parallel_codegen_split_count=1"
).strip()

# Nobody is told of the tests.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

import jax
import pytest

from purerl.storage.files import cache_base
from tests import parts

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# XLA reads its flags once, at the first compilation: before a file sets other ones for
# the processes that it starts, or all later files would be compiled with those.
jax.block_until_ready(jax.numpy.zeros(2) + 1)

# XLA of JAX 0.11 has no option `xla_cpu_use_fusion_emitters`.
HAS_EMITTERS = jax.__version_info__ < (0, 11)


def _compile_quickly() -> None:
    """Where nothing is optimised, let the CPU's kernels be made in the simple way.

    XLA's fusion emitters take three quarters of such a compilation. JAX has no public
    setting for options of all compilations, so that where its function has moved,
    tests are only slower.
    """
    from jax._src import compiler

    options = getattr(compiler, "get_compile_options", None)
    if options is None or not HAS_EMITTERS:
        return

    def quick_options(*args, env_options_overrides=None, **kwargs):
        if jax.config.read("jax_disable_most_optimizations"):
            simple = {"xla_cpu_use_fusion_emitters": False}
            env_options_overrides = simple | dict(env_options_overrides or {})
        return options(*args, env_options_overrides=env_options_overrides, **kwargs)

    compiler.get_compile_options = quick_options


_compile_quickly()


def _cache_folder() -> str:
    """Where compiled programs are kept: for all clones of this kind of machine.

    Code that was compiled for another processor may not run here, so the processor is
    part of the name.
    """
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    wanted = ("model name", "flags", "Features")
    described = sorted({line for line in lines if line.startswith(wanted)})
    digest = hashlib.sha256("\n".join(described).encode()).hexdigest()[:12]
    base = cache_base() or Path(tempfile.gettempdir())
    return str(base / "purerl" / "tests" / digest)


# Tracing makes many objects and few circles: rarer collections take a twentieth less.
gc.set_threshold(200_000, 20, 100)

# Programs are compiled once per machine; the second run of the tests is much faster.
cache = os.path.abspath(os.environ.get("PURERL_TEST_CACHE") or _cache_folder())
jax.config.update("jax_compilation_cache_dir", cache)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


@pytest.fixture(autouse=True, scope="session")
def no_compile_cache_of_the_user():
    """Keep the tests' own cache, where the command line would switch to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", cache)
        yield


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        type=parts.parse,
        metavar="K/N",
        help="run the K-th of N parts of the chosen tests, each a sample of all files",
    )


# First, so that what another plugin counts are the tests of the part.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """The tests of the part; files in the order of `LONG_FIRST`, then the others."""
    part: parts.Part | None = config.getoption("--part")
    if part is not None:
        others = [item for item in items if not part.has(item.nodeid)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if part.has(item.nodeid)]

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)

    items.sort(key=rank)


# Most of a test's time is compilation, and half of that optimises what runs for
# milliseconds. So nothing is optimised but what is marked `optimised` (that pieces,
# lanes and devices give the same bits is said of programs as users compile them) and
# what is slow. A file of `optimised(slow=True)` is optimised where its slow tests run.
# What is compared with a fixture of its file is compiled as that is:
# `slow(optimised=False)`.
@pytest.fixture(scope="module", autouse=True)
def _compile_a_file(request: pytest.FixtureRequest):
    marks = list(request.node.iter_markers("optimised"))
    slow = any(
        item.path == request.node.path and item.get_closest_marker("slow")
        for item in request.session.items
    )
    quick = all(mark.kwargs.get("slow", False) and not slow for mark in marks)
    _forget_other_programs(quick)
    jax.config.update("jax_disable_most_optimizations", quick)
    with pytest.MonkeyPatch.context() as patch:
        if quick:  # in processes that a test starts, too
            patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
            flags = os.environ.get("XLA_FLAGS", "")
            simple = " --xla_cpu_use_fusion_emitters=false" if HAS_EMITTERS else ""
            patch.setenv("XLA_FLAGS", flags + simple)
        yield
    jax.config.update("jax_disable_most_optimizations", False)


_compiled: set[bool] = set()


def _forget_other_programs(quick: bool) -> None:
    """Forget what JAX has compiled for a file with the other way of compiling."""
    if (not quick) in _compiled:
        jax.clear_caches()
        _compiled.clear()
    _compiled.add(quick)


@pytest.fixture(scope="module", autouse=True)
def _share_programs_in_a_file():
    """The tests of a file call the library again and again with the same program."""
    import purerl  # after JAX has been set up

    with purerl.share_programs():
        yield


@pytest.fixture(autouse=True)
def _optimise_a_slow_test(request: pytest.FixtureRequest):
    slow = request.node.get_closest_marker("slow")
    if slow is None or not slow.kwargs.get("optimised", True):
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def _signals_are_as_before():
    """Whatever a test does, signals do the usual again when it is over."""
    usual = {
        # What a shell starts in the background is told to ignore it.
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, to) for number, to in usual.items()}
    yield
    after = {number: signal.signal(number, to) for number, to in before.items()}
    assert after == usual


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)
