"""The streams of an agent's keys, by `fold_in` written out."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import keys


class State(NamedTuple):
    key: jax.Array
    update: jax.Array


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)))


def test_the_streams_are_folded_from_the_counter_and_from_the_far_end(key):
    fold = jax.random.fold_in
    state = State(key, jnp.int32(7))
    updates, inits = keys.update_keys(state, 8), keys.init_keys(key, 8)
    for i in range(8):
        assert bits(updates[i]) == bits(fold(key, 56 + i))
        assert bits(inits[i]) == bits(fold(key, 4_294_967_288 + i))
    assert bits(keys.update_key(state)) == bits(updates[0])
    assert bits(keys.init_key(key)) == bits(inits[0])
    evaluation = fold(key, 2_147_483_648 + 56)
    assert bits(keys.evaluation_key(state)) == bits(evaluation)


def test_no_two_streams_meet(key):
    last = keys.MAX_UPDATES - 1
    states = [State(key, jnp.int32(u)) for u in (0, 1, 2, last)]
    drawn = [*keys.init_keys(key, 8), key]
    drawn += [keys.evaluation_key(s) for s in states]
    drawn += [keys.evaluation_key(State(key, jnp.int32(last + 1)))]
    drawn += [k for s in states for k in keys.update_keys(s, 8)]
    assert len({bits(k) for k in drawn}) == len(drawn)


def test_a_key_is_split_and_keys_are_taken_as_they_are(key):
    split = jax.random.split(key, 3)
    for given in (key, split):
        assert list(map(bits, keys.several(given, 3))) == list(map(bits, split))
    with pytest.raises(ValueError, match=r"one key or 2 of them, got \(3,\)"):
        keys.several(split, 2)
    with pytest.raises(ValueError, match="8 keys of a kind, not 9"):
        keys.init_keys(key, 9)


def test_a_run_of_more_updates_than_there_are_keys_is_refused():
    sizes = {"num_envs": 1, "num_steps": 1, "num_minibatches": 1}
    config = purerl.PQNConfig(env="CartPole-v1", total_timesteps=2**28, **sizes)
    with pytest.raises(purerl.ConfigError, match="total_timesteps may be 268,435,454"):
        purerl.resolve(config)
