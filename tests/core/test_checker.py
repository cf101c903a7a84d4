"""The checker of algorithms: it passes a sound one and names each broken rule.

The algorithm under test draws one number per update and learns nothing, so that its
programs compile at once; each case breaks one thing in it.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.algorithms import ALGORITHMS, Entry, register
from purerl.checker import AlgorithmCheckError
from purerl.config import ConfigError, TrainConfig, config_dataclass, dynamic
from purerl.keys import init_key, update_key
from purerl.types import Algorithm

BATCH = 5


class State(NamedTuple):
    weight: Any
    key: jax.Array
    update: Any


@config_dataclass
class DriftConfig(TrainConfig):
    """An agent whose weight drifts at random."""

    scale: float = dynamic(0.5, "Of a step.")

    @property
    def steps_per_update(self):
        return BATCH

    @property
    def sequential_steps(self):
        return 1


def init(config, key):
    del config
    return State(jax.random.normal(init_key(key)), key, jnp.int32(0))


def step(config, state):
    move = config.scale * jax.random.normal(update_key(state))
    update = state.update + 1
    metrics = {
        "env_steps": update.astype(jnp.uint32) * BATCH,
        "episodes": jnp.int32(0),
        "episode_return": jnp.float32(jnp.nan),
        "episode_length": jnp.float32(jnp.nan),
        "move": move,
    }
    return State(state.weight + move, state.key, update), metrics


def act(config, state, obs, key=None):
    del config
    noise = 0.0 if key is None else jax.random.normal(key)
    return (obs.sum(-1) + state.weight + noise > 0).astype(jnp.int32)


def make(config, env, axis_name=None):
    del env, axis_name
    return Algorithm(partial(init, config), partial(step, config), partial(act, config))


@pytest.fixture(autouse=True)
def registry():
    before = dict(ALGORITHMS)
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(before)


def checked(make: Callable, **fields: Any) -> None:
    register("drift", Entry(DriftConfig, lambda config, env: None, make))
    purerl.check(DriftConfig(total_timesteps=4 * BATCH, **fields))


def test_a_sound_algorithm_passes():
    checked(make)


def changed(**functions):
    """The sound algorithm with some of its functions wrapped."""

    def make_changed(config, env, axis_name=None):
        sound = make(config, env, axis_name)
        wrapped = {
            name: partial(wrapper, config, getattr(sound, name))
            for name, wrapper in functions.items()
        }
        return sound._replace(**wrapped)

    return make_changed


def state_with(**fields):
    """`init` with other fields."""
    return changed(init=lambda config, init, key: init(key)._replace(**fields))


def step_with(change):
    """`step` whose `(before, after, metrics)` is changed."""

    def wrapper(config, step, state):
        return change(state, *step(state))

    return changed(step=wrapper)


def metric(**values):
    return step_with(lambda before, after, metrics: (after, metrics | values))


def without(name):
    def change(before, after, metrics):
        return after, {k: v for k, v in metrics.items() if k != name}

    return step_with(change)


TRACES = itertools.count(1)


def leak_into_the_trace(before, after, metrics):
    # A number that Python has while tracing: each program has its own.
    return after, metrics | {"move": jnp.float32(next(TRACES))}


def act_with_dice():
    """`act` that throws its own dice."""
    dice = np.random.default_rng(0)
    return changed(
        act=lambda config, act, state, obs, key=None: (
            act(state, obs, key) * 0 + int(dice.integers(2))
        )
    )


def decide_in_python(config, env, axis_name=None):
    if config.scale > 0.1:
        return make(config, env, axis_name)
    raise AssertionError


BROKEN = {
    "a state that is no record": (
        changed(init=lambda config, init, key: {"key": key}),
        ["init returned a dict", "NamedTuple"],
    ),
    "a state without a counter": (
        changed(init=lambda config, init, key: NamedTuple("S", [("key", Any)])(key)),
        ["the state has ['key']", "'update'"],
    ),
    "a function in the state": (
        state_with(weight=jnp.sin),
        ["init cannot be traced", "arrays in the state"],
    ),
    "a weak type": (
        state_with(weight=1.0),
        ["state.weight is weakly typed", "jnp.float32(0)"],
    ),
    "another counter": (
        state_with(update=jnp.float32(0)),
        ["state.update is", "jnp.int32(0)"],
    ),
    "key data for a key": (
        changed(
            init=lambda config, init, key: init(key)._replace(
                key=jax.random.key_data(key)
            )
        ),
        ["state.key is uint32[2]", "the key that init was given"],
    ),
    "another dtype": (
        step_with(
            lambda before, after, metrics: (
                after._replace(weight=after.weight.astype(jnp.float16)),
                metrics,
            )
        ),
        ["step changed the types of the state", "float32[]", "float16[]"],
    ),
    "a counter that stays": (
        step_with(lambda before, after, m: (after._replace(update=before.update), m)),
        ["state.update is 0 after 1 updates, expected 1"],
    ),
    "a key that moves on": (
        step_with(lambda before, after, m: (after._replace(key=update_key(before)), m)),
        ["step changed state.key", "update_key(state)"],
    ),
    "a missing metric": (without("episode_return"), ["metrics have no episode_return"]),
    "a metric of a rollout": (
        metric(reward=jnp.zeros(3)),
        ["'reward' has shape (3,)", "reduce it inside the step"],
    ),
    "a metric that is NaN": (metric(loss=jnp.nan), ["'loss' is nan in update 0"]),
    "an undefined mean return": (
        metric(episodes=jnp.int32(1), episode_length=jnp.float32(5)),
        ["'episode_return' is nan in update 0"],
    ),
    "an undefined mean length": (
        metric(episodes=jnp.int32(1), episode_return=jnp.float32(5)),
        ["'episode_length' is nan in update 0"],
    ),
    "steps that are not counted": (
        metric(env_steps=jnp.uint32(5)),
        ["env_steps is 5 after 2 updates of 5 steps, expected 10"],
    ),
    "a warm-up without end": (
        metric(gradient_steps=jnp.int32(0)),
        ["no gradient step was taken", "warm-up is shorter"],
    ),
    "a key of its own": (
        changed(
            step=lambda config, step, state: (
                step(state._replace(key=jax.random.key(0)))[0]._replace(key=state.key),
                step(state._replace(key=jax.random.key(0)))[1],
            )
        ),
        ["another key gave the same update", "update_key(state)"],
    ),
    "one key for all updates": (
        changed(
            step=lambda config, step, state: (
                step(state._replace(update=jnp.int32(0)))[0]._replace(
                    update=state.update + 1
                ),
                step(state)[1],
            )
        ),
        ["another number of the update gave the same update"],
    ),
    "actions outside the space": (
        changed(act=lambda config, act, state, obs, key=None: act(state, obs, key) + 2),
        ["which is not in Discrete(2)"],
    ),
    "no batch of observations": (
        changed(act=lambda config, act, state, obs, key=None: jnp.int32(0)),
        ["act on three observations returned shape ()", "expected (3,)"],
    ),
    "dice without a key": (
        act_with_dice(),
        ["act without a key gave two different actions"],
    ),
    "a Python decision on a leaf": (
        decide_in_python,
        ["every number of the config traced cannot be traced", "dynamic field"],
    ),
    "chance from outside": (
        step_with(leak_into_the_trace),
        ["the metric 'move' of an agent is", "in a vmap", "alone"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(case):
    broken, fragments = BROKEN[case]
    with pytest.raises(AlgorithmCheckError) as error:
        checked(broken)
    assert str(error.value).startswith("DriftConfig: ")
    for fragment in fragments:
        assert fragment in str(error.value)


class Learner(NamedTuple):
    params: Any
    key: jax.Array
    update: Any


def make_learner(config, env, axis_name=None):
    """The same agent with two weights, as parameters; `frozen` is not heeded."""
    sound = make(config, env, axis_name)

    def plain(state):
        return State(state.params["a"], state.key, state.update)

    def learner(state):
        params = {"a": state.weight, "b": -state.weight}
        return Learner(params, state.key, state.update)

    def step(state):
        new, metrics = sound.step(plain(state))
        return learner(new), metrics

    return Algorithm(
        init=lambda key: learner(sound.init(key)),
        step=step,
        act=lambda state, *args: sound.act(plain(state), *args),
    )


def test_frozen_parts_that_learn_are_named():
    with pytest.raises(AlgorithmCheckError, match="a moved though the config's frozen"):
        checked(make_learner)
    with pytest.raises(ConfigError, match=r"frozen: .* has no field params"):
        checked(make, frozen=("weight",))


def test_an_algorithm_that_is_not_registered_is_refused():
    words = r"config must be one of .*register\(.mine., Entry\(MyConfig"
    with pytest.raises(ConfigError, match=words):
        purerl.check(DriftConfig())


def test_a_config_of_plain_flax_is_refused():
    from flax import struct

    @struct.dataclass
    class Flax(DriftConfig):
        """`replace` is flax's."""

        bare: float = 1.0

    register("flax", Entry(Flax, lambda config, env: None, make))
    with pytest.raises(AlgorithmCheckError, match="the field 'bare' has no help"):
        purerl.check(Flax(total_timesteps=4 * BATCH))
