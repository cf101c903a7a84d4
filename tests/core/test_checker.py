"""The checker of algorithms: it passes a sound one and names each broken rule.

The algorithm under test draws one number per update and learns nothing, so that its
programs compile at once; each case breaks one thing in it.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

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
    with patch.dict(ALGORITHMS):
        yield


def checked(make: Callable, **fields: Any) -> None:
    register("drift", Entry(DriftConfig, lambda config, env: None, make))
    purerl.check(DriftConfig(total_timesteps=4 * BATCH, **fields))


def test_a_sound_algorithm_passes():
    checked(make)


def changed(**functions):
    """The sound algorithm with some of its functions wrapped."""

    def make_changed(config, env, axis_name=None):
        sound = make(config, env, axis_name)
        for name, wrapper in functions.items():
            wrapped = partial(wrapper, config, getattr(sound, name))
            sound = sound._replace(**{name: wrapped})
        return sound

    return make_changed


def step_with(change):
    """`step` whose `(before, after, metrics)` is changed."""

    return changed(step=lambda config, step, state: change(state, *step(state)))


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


def init_with(change):
    """`init` whose state is changed."""
    return changed(init=lambda config, init, key: change(init(key)))


def after_with(change):
    """`step` after which the state is changed, given those before and after."""
    return step_with(lambda before, after, metrics: (change(before, after), metrics))


def act_with(change):
    """`act` whose actions are changed."""
    return changed(
        act=lambda config, act, state, obs, key=None: change(act(state, obs))
    )


def own_key(config, step, state):
    after, metrics = step(state._replace(key=jax.random.key(0)))
    return after._replace(key=state.key), metrics


def one_key(config, step, state):
    after, _ = step(state._replace(update=jnp.int32(0)))
    return after._replace(update=state.update + 1), step(state)[1]


# What is wrong, and what the sentence names.
BROKEN = [
    (init_with(lambda state: {"key": state.key}), "init returned a dict.*NamedTuple"),
    (init_with(lambda s: NamedTuple("S", [("key", Any)])(s.key)), "has.*'key'.*'updat"),
    (init_with(lambda s: s._replace(weight=jnp.sin)), "init cannot be traced"),
    (init_with(lambda s: s._replace(weight=1.0)), "state.weight is weakly typed"),
    (init_with(lambda s: s._replace(update=jnp.float32(0))), "state.update is"),
    (init_with(lambda s: s._replace(key=jax.random.key_data(s.key))), "state.key is "),
    (
        after_with(lambda _, s: s._replace(weight=s.weight.astype(jnp.float16))),
        "step changed the types of the state.*float16",
    ),
    (after_with(lambda old, s: s._replace(update=old.update)), "update .* 0, expected"),
    (after_with(lambda old, s: s._replace(key=update_key(old))), "changed state.key"),
    (without("episode_return"), "metrics have no episode_return"),
    (metric(reward=jnp.zeros(3)), r"'reward' is \(3,\), expected"),
    (metric(loss=jnp.nan), "'loss' is nan in update 0"),
    (
        metric(episodes=jnp.int32(1), episode_length=jnp.float32(5)),
        "'episode_return' is nan in update 0",
    ),
    (
        metric(episodes=jnp.int32(1), episode_return=jnp.float32(5)),
        "'episode_length' is nan in update 0",
    ),
    (metric(env_steps=jnp.uint32(5)), "env_steps is 5, expected 10"),
    (metric(gradient_steps=jnp.int32(0)), "no gradient step was taken"),
    (changed(step=own_key), "another key gave the same update"),
    (changed(step=one_key), "another number of the update gave the same update"),
    (act_with(lambda action: action + 2), r"not in Discrete\(2\)"),
    (act_with(lambda action: jnp.int32(0)), r"is \(\), expected \(3,\)"),
    (act_with_dice(), "act without a key gave two different actions"),
    (decide_in_python, "every number of the config traced cannot be traced"),
    (step_with(leak_into_the_trace), "the metric 'move' of an agent is.*in a vmap"),
]


@pytest.mark.parametrize(("broken", "words"), BROKEN)
def test_a_broken_rule_is_named(broken, words):
    with pytest.raises(AlgorithmCheckError, match=f"(?s)^DriftConfig: .*{words}"):
        checked(broken)


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
