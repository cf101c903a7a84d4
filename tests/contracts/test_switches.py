"""Debugging switches of JAX: each works, or a sentence says that it does not."""

from functools import partial

import jax
import pytest

import purerl
from tests.contracts.test_results import CALLS, CONFIG
from tests.helpers import assert_same_bits, slow_but

TOOLS = {name: partial(call, None) for name, call in CALLS.items()} | {
    "compare": lambda: purerl.compare(CONFIG, {"one": {}}, seeds=2, progress=False),
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
        ("jax_numpy_dtype_promotion", "strict"),
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
