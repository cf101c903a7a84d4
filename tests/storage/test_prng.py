"""What was trained with other random keys can be read, and is not gone on with."""

import contextlib
from pathlib import Path

import jax
import numpy as np
import pytest

import purerl
from purerl import ConfigError
from purerl.scale.host import HostKey, to_device
from purerl.storage import checkpoint, folders
from tests.helpers import StopAfter, assert_same_bits, tiny_config

CONFIG = tiny_config(num_evaluations=1, total_timesteps=384)
SMALL = {"lanes": 2, "segment_updates": 4, "progress": False}
AXES = {"learning_rate": [1e-3, 1e-2]}
BOTH = "of rbg, and this process makes those of threefry2x32, .* JAX_DEFAULT_PRNG_IMPL="


@contextlib.contextmanager
def option(name, value):
    """Another value of an option of JAX, in every thread."""
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


def keys_of(impl):
    """Random keys of another implementation."""
    return option("jax_default_prng_impl", impl)


def numbers_by_size():
    """Random numbers that follow the size of an array, as JAX had them before 0.5."""
    return option("jax_threefry_partitionable", False)


@pytest.mark.parametrize(
    ("impl", "name", "words"),
    [
        ("threefry2x32", "['key']", 2),
        ("rbg", "['key']@rbg", 4),
        ("unsafe_rbg", "['key']@unsafe_rbg", 4),
    ],
)
def test_the_name_of_keys_says_what_they_are_where_they_are_not_the_default(
    impl, name, words
):
    data = np.arange(3 * words, dtype=np.uint32).reshape(3, words)
    flat = checkpoint.flatten(
        {"key": HostKey(data, impl), "x@y": np.ones((3, 2), np.int32)}
    )
    assert set(flat) == {name, "['x@y']"}
    for here in ("threefry2x32", "rbg", "unsafe_rbg"):
        like = jax.eval_shape(
            lambda i=here: {
                "key": jax.random.key(0, impl=i),
                "x@y": np.ones(2, np.int32),
            }
        )
        found = checkpoint.unflatten(flat, like, Path("run"))["key"]
        assert found.impl == impl
        np.testing.assert_array_equal(found.data, data)


def test_a_run_with_other_keys_is_read_and_goes_on_only_with_them(tmp_path):
    out = tmp_path / "run"
    calls = {"out": out, "checkpoint_seconds": 0, **SMALL}
    with keys_of("rbg"):
        whole = purerl.run(CONFIG, seeds=2, **SMALL)
        purerl.run(CONFIG, seeds=2, trackers=[StopAfter(4)], **calls)
    saved = purerl.load_run(out)
    assert saved.state.key.impl == "rbg" and saved.state.key.data.shape == (2, 4)
    assert to_device(saved.state).key.dtype == jax.random.key(0, impl="rbg").dtype
    assert folders.load(out)["prng_impl"] == "rbg"
    resume = {"resume": True, "trackers": [], **calls}
    with pytest.raises(ConfigError, match=f"has random keys {BOTH}rbg"):
        purerl.run(CONFIG, seeds=2, **resume)
    start = purerl.Start(out, "all")
    with pytest.raises(ConfigError, match=f"the checkpoint .*{BOTH}rbg"):
        purerl.run(CONFIG, seeds=2, start=start, **SMALL)
    with keys_of("rbg"):
        resumed = purerl.run(CONFIG, seeds=2, **resume)
    assert_same_bits(resumed.state, whole.state)


def test_a_run_goes_on_only_with_random_numbers_that_are_made_alike(tmp_path):
    calls = {"out": tmp_path, "checkpoint_seconds": 0, **SMALL}
    purerl.run(CONFIG, seeds=2, trackers=[StopAfter(4)], **calls)
    begun = folders.load(tmp_path)
    assert begun["threefry_partitionable"] is True
    resume = {"resume": True, "trackers": [], **calls}
    words = "partitionable=True, and this .* Set JAX_THREEFRY_PARTITIONABLE=1 to go on"
    with numbers_by_size(), pytest.raises(ConfigError, match=words):
        purerl.run(CONFIG, seeds=2, **resume)
    folders.write(tmp_path, {**begun, "threefry_partitionable": False})
    words = "partitionable=False, and this .* Set JAX_THREEFRY_PARTITIONABLE=0 to go on"
    with pytest.raises(ConfigError, match=words):
        purerl.run(CONFIG, seeds=2, **resume)
    folders.write(tmp_path, begun)
    assert purerl.run(CONFIG, seeds=2, **resume).finished


CALLS = {
    "compare": lambda out: purerl.compare(CONFIG, {"a": {}}, seeds=2, out=out, **SMALL),
    "sweep": lambda out: purerl.sweep(
        CONFIG, AXES, seeds=1, keep_states=True, out=out, **SMALL
    ),
    "pbt": lambda out: purerl.pbt(
        CONFIG, AXES, population=2, ready_updates=4, out=out, **SMALL
    ),
    "evolve": lambda out: purerl.evolve(
        CONFIG, "learning_rate", population=2, generations=2, out=out, **SMALL
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_results_are_read_too_and_not_mixed(name, tmp_path):
    with keys_of("rbg"):
        made = CALLS[name](tmp_path)
    loaded = purerl.load(tmp_path)
    if name == "compare":
        np.testing.assert_array_equal(loaded.dataset["curve"], made.dataset["curve"])
    else:
        assert loaded.best().score == pytest.approx(made.best().score, rel=1e-6)
    if name == "sweep":
        state = loaded.state({"learning_rate": 1e-3}, 0)
        assert state.key.impl == "rbg"
        assert callable(loaded.policy({"learning_rate": 1e-3}, 0))
    with pytest.raises(ConfigError, match=f"out: .* has random keys {BOTH}rbg"):
        CALLS[name](tmp_path)
