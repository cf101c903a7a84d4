import threading
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import ConfigError
from purerl.runner.arguments import check_seeds, num_seeds
from purerl.scale.devices import Worker, as_count, default_lanes, run_blocks
from purerl.space.axes import expand, size_of
from tests.helpers import assert_same_bits, slow_but, tiny_config

pytestmark = pytest.mark.optimised

LANES = 2
KEYS = jax.random.split(jax.random.key(0), 7)


# Continuous actions take the same road, and as long again to compile.
ENVS = ["CartPole-v1", pytest.param("probe/continuous", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=ENVS)
def train(request):
    return purerl.make_train(tiny_config(env=request.param))


@pytest.fixture(scope="module")
def mapped(train):
    return purerl.pmap(train, lanes=LANES)


@pytest.fixture(scope="module")
def whole(mapped):
    return mapped(KEYS)


@pytest.mark.parametrize(
    "members", slow_but([[3], [6, 0], [0, 1, 2], [5, 1, 4, 2, 0]], [3])
)
def test_bits_do_not_depend_on_number_order_or_neighbours(mapped, whole, members):
    index = np.asarray(members)
    expected = jax.tree.map(lambda x: x[index], whole)
    assert_same_bits(mapped(KEYS[index]), expected)


@pytest.mark.slow
def test_bits_do_not_depend_on_devices(train, whole):
    devices = jax.local_devices()
    assert len(devices) == 2
    for used in (devices, devices[1:]):
        result = purerl.pmap(train, lanes=LANES, devices=used)(KEYS[:5])
        assert_same_bits(result, jax.tree.map(lambda x: x[:5], whole))


@pytest.mark.slow
def test_equals_vmap_of_the_same_width(train, whole):
    alike = purerl.compiler_options()
    result = jax.jit(jax.vmap(train), compiler_options=alike)(KEYS[:LANES])
    assert_same_bits(result, jax.tree.map(lambda x: x[:LANES], whole))


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_in_axes_share_some_arguments(size):
    def line(slope, offset, extra):
        return {"y": slope * extra["x"] + offset, "shared": offset}

    slope = jnp.arange(size, dtype=jnp.float32)
    mapped = purerl.pmap(line, lanes=4, in_axes=(0, None, 0))
    result = mapped(slope, jnp.float32(10.0), {"x": slope + 1.0})
    n = np.arange(size)
    np.testing.assert_array_equal(result["y"], n * (n + 1) + 10)
    np.testing.assert_array_equal(result["shared"], np.full(size, 10.0))


BAD_CALLS = [
    (lambda: purerl.pmap(jnp.sin, lanes=0), "lanes must be a positive"),
    (lambda: purerl.pmap(jnp.sin)(jnp.float32(1)), "share one leading axis"),
    (lambda: purerl.pmap(jnp.add)(jnp.zeros(2), jnp.zeros(3)), "share one leadi"),
    (lambda: purerl.pmap(jnp.sin, in_axes=1)(jnp.zeros(2)), "must be 0 or None"),
    (lambda: purerl.pmap(len, in_axes={"x": 0})(jnp.zeros(2)), "in_axes must be"),
]


@pytest.mark.parametrize(("call", "fragment"), BAD_CALLS)
def test_bad_calls_get_a_sentence(call, fragment):
    with pytest.raises(ConfigError, match=fragment):
        call()


def test_blocks_come_back_in_order_and_workers_run_side_by_side():
    barrier = threading.Barrier(2, timeout=20)
    device = jax.devices()[0]
    workers = [Worker(device, 0), Worker(device, 1)]

    def work(worker, item):
        if item < 2:
            barrier.wait()  # passes only if two workers are in here at once
        return worker.index, item * item

    results = run_blocks(workers, range(9), work)
    assert [square for _, square in results] == [n * n for n in range(9)]
    assert {index for index, _ in results} == {0, 1}


ON_TWO_CPUS = [(1, 1), (2, 1), (3, 2), (10, 5), (16, 8), (17, 5), (34, 6), (10_000, 8)]


DEFAULT_LANES = [
    *(("cpu", 2, *row) for row in ON_TWO_CPUS),
    ("cuda", 1, 1, 1),
    ("cuda", 1, 100, 128),
    ("cuda", 1, 1_024, 1_024),
    ("cuda", 1, 1_025, 1_280),  # a multiple of 256, and not 2,048
    ("cuda", 1, 2_048, 2_048),  # one call
    ("cuda", 8, 2_048, 256),
    ("cuda", 1, 16_384, 16_384),
    ("cuda", 1, 16_385, 8_448),  # two blocks alike
    ("cuda", 4, 1_000_000, 15_872),  # 16 blocks each: 250,000 / 16 is 15,625
]


@pytest.mark.parametrize(("platform", "devices", "members", "lanes"), DEFAULT_LANES)
def test_default_lanes(platform, devices, members, lanes):
    device: Any = types.SimpleNamespace(platform=platform)
    workers = [Worker(device, i) for i in range(devices)]
    assert default_lanes(members, workers) == lanes


def test_one_mapped_function_takes_different_overrides():
    mapped = purerl.pmap(lambda x, o: x + sum(o.values()), lanes=2)
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(mapped(x, {"a": x}), 2 * np.arange(3))
    np.testing.assert_array_equal(mapped(x, {"b": -x}), np.zeros(3))
    np.testing.assert_array_equal(mapped(x, {"a": x, "b": x}), 3 * np.arange(3))


@pytest.mark.parametrize("two", [2, np.int64(2), np.uint8(2), jnp.int32(2)])
def test_whole_numbers_of_numpy_and_jax_are_counts_and_seeds(two):
    assert repr(as_count("population", two)) == "2"
    assert repr(check_seeds(two)) == "(0, 1)" and repr(num_seeds(two)) == "2"
    assert repr(check_seeds([two, 5])) == "(2, 5)"
    assert repr(check_seeds(np.array([3]))) == "(3,)" and num_seeds(np.array([3])) == 1
    points = expand({"a": purerl.uniform(0.0, 1.0)}, "random", two).points
    assert len(points) == 2 and size_of({}, "random", two) == 2
    double = purerl.pmap(lambda x: 2 * x, lanes=two)
    assert double(jnp.arange(3)).tolist() == [0, 2, 4]


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
def test_a_call_with_traced_arguments_is_refused_before_anything_compiles(transform):
    calls = []
    mapped = purerl.pmap(lambda x: calls.append(x) or x.sum(), lanes=2)
    whole = transform(lambda x: mapped(x).sum())
    with pytest.raises(ConfigError, match=r"takes no traced arguments"):
        whole(jnp.ones((2, 2)))
    assert not calls
