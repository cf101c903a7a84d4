"""Training has 32 bits, and the same ones, where JAX computes in 64."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import precision
from tests import golden
from tests.contracts.test_algorithms import SMALL, small
from tests.helpers import assert_same_bits

KEY = jax.random.key(0)
WIDE = ("f64[", "i64[", "u64[", "c128[")
QUICK = ("ppo", "dqn", "sac")
ALGORITHMS = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in SMALL
]


@pytest.fixture
def in_64_bits():
    """As where a user's program has asked for them, in all of its threads."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def program(config, overrides):
    return str(jax.make_jaxpr(purerl.make_train(config))(KEY, overrides))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_program_of_a_run_is_the_same(name, request):
    config, overrides = small(name), {"gamma": np.float32(0.5)}
    usual = program(config, overrides)
    with jax.numpy_dtype_promotion("strict"):
        assert program(config, overrides) == usual
    request.getfixturevalue("in_64_bits")
    assert jnp.zeros(1).dtype == jnp.float64
    assert program(config, overrides) == usual
    assert not any(wide in usual for wide in WIDE)


def test_overrides_may_have_64_bits(in_64_bits):
    config, gammas = small("ppo"), jnp.linspace(0.5, 0.9, 2)
    assert gammas.dtype == jnp.float64
    train = jax.jit(jax.vmap(purerl.make_train(config), in_axes=(None, 0)))
    wide = train(KEY, {"gamma": gammas})
    assert_same_bits(wide, train(KEY, {"gamma": gammas.astype(jnp.float32)}))
    types = {x.dtype.name for x in jax.tree.leaves(wide)} - {"key<fry>"}
    assert types <= {"float32", "int32", "uint32", "bool"}


def test_the_functions_of_an_algorithm_are_the_same(request):
    config = small("recurrent_ppo")

    def play():
        algorithm = purerl.make_algorithm(config)
        state, metrics = jax.jit(algorithm.step)(algorithm.init(KEY))
        policy = purerl.make_policy(config, state)
        return state, metrics, policy(np.ones(4, np.float32), policy.init(), KEY)

    usual = play()
    request.getfixturevalue("in_64_bits")
    assert_same_bits(play(), usual)


def test_members_of_several_threads_are_the_same(request):
    train = purerl.make_train(small("ppo"))
    keys = jax.random.split(KEY, 4)
    usual = purerl.pmap(train, lanes=2)(keys)
    request.getfixturevalue("in_64_bits")
    assert_same_bits(purerl.pmap(train, lanes=2)(keys), usual)


TOOLS = {tool.__name__: tool for tool in golden.TOOLS}


@pytest.mark.parametrize(
    "tool",
    [
        name if name == "run" else pytest.param(name, marks=pytest.mark.slow)
        for name in TOOLS
    ],
)
def test_what_a_tool_returns_is_the_same(tool, request):
    usual = TOOLS[tool]()
    request.getfixturevalue("in_64_bits")
    assert_same_bits(TOOLS[tool](), usual)


# What computes nothing in JAX, or only calls what does.
WITHOUT_ARRAYS = (
    "OpenES choice compiler_options load load_comparison load_evolution "
    "load_part load_run load_search load_sweep load_tune log_policy loguniform "
    "make_tracker networks_of pmap save_part share_programs track uniform "
    "use_all_cores"
)


def test_every_public_function_computes_in_32_bits():
    """A new one is decorated, or named above."""
    decorated = precision.in_32_bits(print).__code__
    public = {name: getattr(purerl, name) for name in dir(purerl)}
    others = {
        name
        for name, value in public.items()
        if inspect.isfunction(value)
        and value.__module__.startswith("purerl.")
        and value.__code__ is not decorated
    }
    assert others == set(WITHOUT_ARRAYS.split())


def test_the_pieces_of_an_update_on_the_host_are_the_same(request):
    config = small("dqn")

    def begin():
        algorithm = purerl.make_algorithm(config)
        assert algorithm.hosted is not None
        state = algorithm.init(KEY)
        return algorithm.hosted(state.update).begin(state)

    usual = begin()
    request.getfixturevalue("in_64_bits")
    assert_same_bits(begin(), usual)


def test_64_bits_can_be_kept(in_64_bits):
    @precision.in_32_bits
    def dtype(x):
        return x.dtype, jnp.zeros(1).dtype

    assert dtype(jnp.ones(1)) == (jnp.float32, jnp.float32)
    assert dtype(jnp.arange(1)) == (jnp.int32, jnp.float32)
    with precision.keeping_64_bits():
        assert dtype(jnp.ones(1)) == (jnp.float64, jnp.float64)
