"""What was trained with other random keys can be read, and is not gone on with."""

import jax
import pytest

import purerl
from purerl import ConfigError
from purerl.scale.host import to_device
from purerl.storage import folders
from tests.helpers import StopAfter, assert_same_bits, option, slow_but, tiny_table

from .every_kind import WRITE, contents

CONFIG = tiny_table(num_evaluations=0, total_timesteps=384)
SMALL = {"lanes": 2, "segment_updates": 4, "progress": False}
BOTH = "numbers of jax_default_prng_impl=rbg, .* JAX_DEFAULT_PRNG_IMPL=rbg"


def keys_of(impl):
    """Random keys of another implementation."""
    return option("jax_default_prng_impl", impl)


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
    with pytest.raises(ConfigError, match=BOTH):
        purerl.run(CONFIG, seeds=2, **resume)
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
    by_size = option("jax_threefry_partitionable", False)  # as before JAX 0.5
    with by_size, pytest.raises(ConfigError, match=words):
        purerl.run(CONFIG, seeds=2, **resume)
    folders.write(tmp_path, {**begun, "threefry_partitionable": False})
    words = "partitionable=False, and this .* Set JAX_THREEFRY_PARTITIONABLE=0 to go on"
    with pytest.raises(ConfigError, match=words):
        purerl.run(CONFIG, seeds=2, **resume)
    folders.write(tmp_path, begun)
    assert purerl.run(CONFIG, seeds=2, **resume).finished


@pytest.mark.parametrize(
    "kind", slow_but(["comparison", "sweep", "pbt", "evolution"], "sweep", "pbt")
)
def test_other_results_are_read_too_and_not_mixed(kind, tmp_path):
    with keys_of("rbg"):
        made = WRITE[kind](tmp_path)
    assert contents(kind, purerl.load(tmp_path)) == contents(kind, made)
    with pytest.raises(ConfigError, match=f"out: .* {BOTH}"):
        WRITE[kind](tmp_path)


def test_the_states_of_a_sweep_are_those_of_their_keys(tmp_path):
    axes = {"learning_rate": [1e-3]}
    with keys_of("rbg"):
        purerl.sweep(CONFIG, axes, seeds=1, keep_states=True, out=tmp_path, **SMALL)
    loaded, point = purerl.load(tmp_path), {"learning_rate": 1e-3}
    assert loaded.state(point, 0).key.impl == "rbg"
    assert callable(loaded.policy(point, 0))
