"""An override that is a whole part, in place of one with another structure."""

import jax
import pytest

import purerl
from purerl.optimisers import SGD


@pytest.mark.parametrize("config", [purerl.TD3Config, purerl.SACConfig])
def test_a_whole_part_where_bounds_of_spaces_are_arrays_of_jax(config):
    train = purerl.make_train(config(env="Reacher-misc", total_timesteps=2_000))
    # SGD without momentum keeps no averages of gradients, as Adam does.
    adam = jax.eval_shape(train, jax.random.key(0))
    sgd = jax.eval_shape(
        lambda key: train(key, {"optimiser": SGD()}), jax.random.key(0)
    )
    assert jax.tree.structure(sgd.metrics) == jax.tree.structure(adam.metrics)
    count = [len(jax.tree.leaves(result.state)) for result in (adam, sgd)]
    assert count[1] < count[0]
