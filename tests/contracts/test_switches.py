"""Debugging switches of JAX: each works, or a sentence says that it does not."""

from functools import partial

import jax
import pytest

import purerl
from tests.contracts.test_results import CALLS, CONFIG
from tests.helpers import assert_same_bits, option, slow_but

TOOLS = {name: partial(call, None) for name, call in CALLS.items()} | {
    "compare": lambda: purerl.compare(CONFIG, {"one": {}}, seeds=2, progress=False),
    "pmap": lambda: purerl.pmap(purerl.make_train(CONFIG))(
        jax.random.split(jax.random.key(0), 2)
    ),
}
each_tool = pytest.mark.parametrize("tool", slow_but(TOOLS, "run"))


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
def test_a_run_is_the_same_with_a_switch_that_works(name, value):
    usual = TOOLS["run"]()
    with option(name, value):
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
def test_a_switch_that_does_not_work_is_refused(tool, name, value):
    words = rf"cannot train where JAX's {name}"
    with option(name, value), pytest.raises(purerl.ConfigError, match=words):
        TOOLS[tool]()


@each_tool
def test_no_tool_uses_a_random_key_twice(tool):
    with option("jax_debug_key_reuse", True):
        TOOLS[tool]()
