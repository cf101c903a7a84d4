"""Debugging switches of JAX: each works, or a sentence says that it does not."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

import purerl
from purerl.envs import CartPole
from tests.helpers import assert_same_bits, slow_but, tiny_config

CONFIG = tiny_config(num_evaluations=1)
QUIET = {"progress": False}
RATE = {"learning_rate": purerl.loguniform(1e-4, 1e-2)}
TOOLS = {
    "run": lambda: purerl.run(CONFIG, seeds=2, **QUIET),
    "sweep": lambda: purerl.sweep(CONFIG, {"gamma": [0.9, 0.99]}, seeds=1, **QUIET),
    "evolve": lambda: purerl.evolve(
        CONFIG, "gamma", population=2, generations=2, **QUIET
    ),
    "pbt": lambda: purerl.pbt(CONFIG, RATE, population=2, num_rounds=2, **QUIET),
    "halving": lambda: purerl.halving(
        CONFIG, RATE, num_points=4, brackets="one", eta=2, min_updates=5, **QUIET
    ),
    "tune": lambda: purerl.tune(
        CONFIG, RATE, trials=2, batch=2, seeds=1, holdout_seeds=0, **QUIET
    ),
    "compare": lambda: purerl.compare(CONFIG, {"one": {}}, seeds=2, **QUIET),
    "pmap": lambda: purerl.pmap(purerl.make_train(CONFIG))(
        jax.random.split(jax.random.key(0), 2)
    ),
}
each_tool = pytest.mark.parametrize("tool", slow_but(TOOLS, "run"))


@pytest.fixture
def switch():
    """A function that sets a switch until the test is over."""
    before = {}

    def set_to(name, value):
        before[name] = getattr(jax.config, name)
        jax.config.update(name, value)

    yield set_to
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_debug_key_reuse", True),
        ("jax_check_tracer_leaks", True),
        ("jax_enable_checks", True),
        ("jax_enable_x64", True),
        ("jax_numpy_rank_promotion", "raise"),
        ("jax_numpy_dtype_promotion", "strict"),
        ("jax_log_compiles", True),
        ("jax_explain_cache_misses", True),
        ("jax_enable_custom_prng", True),
    ],
)
def test_a_run_is_the_same_with_a_switch_that_works(name, value, switch):
    usual = TOOLS["run"]()
    switch(name, value)
    found = TOOLS["run"]()
    assert_same_bits(found.state, usual.state)
    assert_same_bits(found.metrics, usual.metrics)


@pytest.mark.parametrize(
    ("name", "value"),
    [("jax_threefry_partitionable", False), ("jax_default_prng_impl", "rbg")],
)
def test_a_switch_of_random_bits_gives_another_run(name, value, switch):
    usual = TOOLS["run"]()
    switch(name, value)
    found = TOOLS["run"]()
    assert found.finished
    assert (found.metrics["policy_loss"] != usual.metrics["policy_loss"]).any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_disable_jit", True),
        ("jax_debug_nans", True),
        ("jax_debug_infs", True),
        ("jax_transfer_guard", "disallow"),
        ("jax_transfer_guard_device_to_host", "disallow_explicit"),
    ],
)
@pytest.mark.parametrize("tool", [name for name in TOOLS if name != "pmap"])
def test_a_switch_that_does_not_work_is_refused(tool, name, value, switch):
    switch(name, value)
    with pytest.raises(purerl.ConfigError, match=rf"cannot train where JAX's {name}"):
        TOOLS[tool]()


@each_tool
def test_no_tool_uses_a_random_key_twice(tool, switch):
    switch("jax_debug_key_reuse", True)
    TOOLS[tool]()


class Careless(CartPole):
    """An environment that draws twice from one key."""

    stochastic_transitions = True

    def step_env(self, key, state, action, params):
        noise = jax.random.normal(key) - jax.random.normal(key)
        return super().step_env(key, state, action + noise.astype(jnp.int32), params)


def compiled(config):
    return jax.jit(purerl.make_train(config))(jax.random.key(0))


@pytest.mark.parametrize("call", [partial(purerl.run, **QUIET), compiled])
def test_a_key_that_an_environment_uses_twice_is_found(call, switch):
    switch("jax_debug_key_reuse", True)
    with pytest.raises(jax.errors.KeyReuseError):
        call(CONFIG.replace(env=Careless()))
