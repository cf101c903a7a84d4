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
from tests.helpers import assert_same_bits, option, slow_but

KEY = jax.random.key(0)
WIDE = ("f64[", "i64[", "u64[", "c128[")


@pytest.fixture
def in_64_bits():
    """As where a user's program has asked for them, in all of its threads."""
    with option("jax_enable_x64", True):
        yield


def program(config, overrides):
    return str(jax.make_jaxpr(purerl.make_train(config))(KEY, overrides))


@pytest.mark.parametrize("name", slow_but(SMALL, "ppo", "dqn", "sac"))
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
    config, gammas = small("tabular", num_evaluations=0), jnp.linspace(0.5, 0.9, 2)
    assert gammas.dtype == jnp.float64
    train = jax.jit(jax.vmap(purerl.make_train(config), in_axes=(None, 0)))
    wide = train(KEY, {"gamma": gammas})
    assert_same_bits(wide, train(KEY, {"gamma": gammas.astype(jnp.float32)}))
    types = {x.dtype.name for x in jax.tree.leaves(wide)} - {"key<fry>"}
    assert types <= {"float32", "int32", "uint32", "bool"}


def functions():
    config = small("recurrent_ppo")
    algorithm = purerl.make_algorithm(config)
    state, metrics = jax.jit(algorithm.step)(jax.jit(algorithm.init)(KEY))
    policy = purerl.make_policy(config, state)
    return state, metrics, policy(np.ones(4, np.float32), policy.init(), KEY)


def threads():
    keys = jax.random.split(KEY, 4)
    return purerl.pmap(purerl.make_train(small("tabular")), lanes=2)(keys)


def update_on_the_host():
    algorithm = purerl.make_algorithm(small("dqn"))
    assert algorithm.hosted is not None
    state = algorithm.init(KEY)
    return algorithm.hosted(state.update).begin(state)


CALLS = {call.__name__: call for call in (functions, threads, update_on_the_host)}
TOOLS = {tool.__name__: tool for tool in golden.TOOLS}


@pytest.mark.parametrize("name", slow_but([*CALLS, *TOOLS], *CALLS, "run"))
def test_what_is_returned_is_the_same(name, request):
    call = (CALLS | TOOLS)[name]
    usual = call()
    request.getfixturevalue("in_64_bits")
    assert_same_bits(call(), usual)


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


def test_64_bits_can_be_kept(in_64_bits):
    @precision.in_32_bits
    def dtype(x):
        return x.dtype, jnp.zeros(1).dtype

    assert dtype(jnp.ones(1)) == (jnp.float32, jnp.float32)
    assert dtype(jnp.arange(1)) == (jnp.int32, jnp.float32)
    with precision.keeping_64_bits():
        assert dtype(jnp.ones(1)) == (jnp.float64, jnp.float64)
