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
    assert bits(keys.update_key(state)) == bits(fold(key, 7))
    assert bits(keys.init_key(key)) == bits(fold(key, 4_294_967_295))
    evaluation = fold(key, 2_147_483_648 + 7)
    assert bits(keys.evaluation_key(state)) == bits(evaluation)


def test_no_two_streams_meet(key):
    states = [State(key, jnp.int32(u)) for u in (0, 1, 2, 2**31 - 2)]
    drawn = [keys.init_key(key), key]
    drawn += [f(s) for s in states for f in (keys.update_key, keys.evaluation_key)]
    assert len({bits(k) for k in drawn}) == len(drawn)


@pytest.mark.parametrize("name", ["steps_per_update", "sequential_steps"])
def test_a_config_without_its_arithmetic_says_what_is_missing(name):
    @purerl.config.config_dataclass
    class BareConfig(purerl.config.TrainConfig):
        """Nothing of its own."""

    with pytest.raises(
        NotImplementedError, match=rf"BareConfig must .* {name}: .*self"
    ):
        getattr(BareConfig(), name)
