"""Arguments that cannot be are answered in a sentence, before anything is traced."""

import jax
import jax.numpy as jnp
import pytest

import envs
import purerl
from envs.cartpole import CartPole
from purerl.runner.arguments import as_folder
from tests.helpers import tiny_config

AXES = {"learning_rate": [1e-3, 1e-4]}
CALLS = {
    "run": lambda config: purerl.run(config, progress=False),
    "sweep": lambda config: purerl.sweep(config, AXES, progress=False),
    "plan": lambda config: purerl.plan(config, AXES),
    "pbt": lambda config: purerl.pbt(config, AXES, progress=False),
    "halving": lambda config: purerl.halving(config, AXES, progress=False),
    "tune": lambda config: purerl.tune(config, AXES, trials=1, progress=False),
    "evolve": lambda config: purerl.evolve(config, "learning_rate", progress=False),
    "compare": lambda config: purerl.compare(
        config, {"a": {"gamma": 0.9}}, progress=False
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("config", [3, {"env": "CartPole-v1"}])
def test_what_is_no_config_is_refused(call, config):
    name = type(config).__name__
    with pytest.raises(purerl.ConfigError, match=rf"config must be one .*got {name}"):
        CALLS[call](config)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_inside_a_trace_is_refused(call):
    sentence = r"compiles by itself, and cannot be called inside jax\.jit"
    with pytest.raises(purerl.ConfigError, match=sentence):
        jax.jit(lambda x: (CALLS[call](tiny_config()), x)[1])(1.0)

    def train(rate):
        CALLS[call](tiny_config(learning_rate=rate))
        return rate

    with pytest.raises(purerl.ConfigError, match=sentence):
        jax.vmap(train)(jnp.array([1e-3, 1e-4]))


@pytest.mark.parametrize("call", [purerl.sweep, purerl.plan, purerl.pbt, purerl.tune])
@pytest.mark.parametrize("axes", [3, [1], {1: [0.1, 0.2]}])
def test_what_is_no_mapping_of_axes_is_refused(call, axes):
    with pytest.raises(purerl.ConfigError, match=r"axes must map names of fields"):
        call(tiny_config(), axes)


@pytest.mark.parametrize("overrides", [[1], jnp.ones(3), {1: 2.0}])
def test_what_is_no_mapping_of_overrides_is_refused(overrides):
    train = purerl.make_train(tiny_config())
    with pytest.raises(purerl.ConfigError, match="overrides must map names of fields"):
        train(jax.random.key(0), overrides)


@pytest.mark.parametrize("call", [purerl.dry_run, purerl.drive])
def test_what_is_no_search_is_refused(call):
    with pytest.raises(purerl.ConfigError, match=r"search must be a .*got 3"):
        call(3)


LOADERS = (
    purerl.load,
    purerl.load_run,
    purerl.load_sweep,
    purerl.load_search,
    purerl.load_tune,
    purerl.load_evolution,
    purerl.load_comparison,
)


@pytest.mark.parametrize("load", LOADERS)
def test_a_folder_that_is_not_there_is_named(load, tmp_path):
    with pytest.raises(purerl.ConfigError, match=r"there is no folder .*missing"):
        load(tmp_path / "missing")
    with pytest.raises(purerl.ConfigError, match="folder must be the path of a folder"):
        load(3)


def test_an_out_that_is_no_path_is_refused():
    with pytest.raises(purerl.ConfigError, match=r"out must be the path .*got 123"):
        as_folder("out", 123)  # pyright: ignore[reportArgumentType]


class FourValues(CartPole):
    """An environment whose step forgets the dictionary at the end."""

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action, params)[:4]


def test_a_step_of_four_values_is_refused():
    sentence = r"step_env returns 4 values, expected five: obs, state, reward"
    with pytest.raises(purerl.ConfigError, match=sentence):
        purerl.make_train(tiny_config(env=FourValues()))
    with pytest.raises(envs.EnvCheckError, match=sentence):
        envs.check(FourValues())
    env = FourValues()
    key = jax.random.key(0)
    _, state = env.reset(key)
    with pytest.raises(ValueError, match=sentence):
        env.step(key, state, jnp.int32(0))


@pytest.mark.parametrize("key", [jax.random.PRNGKey(0), 3])
def test_what_is_no_key_is_told_by_its_type_inside_jit_too(key):
    train = jax.jit(purerl.make_train(tiny_config()))
    with pytest.raises(purerl.ConfigError, match=r"got u?int32\[2?\]; wrap an old"):
        train(key)
