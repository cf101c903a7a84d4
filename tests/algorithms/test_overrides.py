"""Grids of overrides in one call: every lane is the single run with that value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import losses
from purerl.optimisers import SGD
from tests.algorithms.short_runs import CONFIG, KEYS, assert_close, lane

GRID = CONFIG.replace(env_params={"length": 0.5}, num_evaluations=0)


# The single run takes its config as an argument (a config is a pytree), so that one
# program serves all values.
@jax.jit
def program(config, key):
    return purerl.make_train(config)(key)


def single(config, key):
    # All leaves strong float32: otherwise each mixture of types compiles anew.
    return program(jax.tree.map(jnp.float32, config), key)


@pytest.mark.slow
def test_a_population_of_losses_in_one_call():
    # Nested: a whole loss with evolved parameters x the number inside another loss.
    config = GRID.replace(value_loss=losses.MLPValueLoss.create(KEYS[0], (4,)))
    train = purerl.make_train(config)
    population = jax.vmap(lambda k: losses.MLPValueLoss.create(k, (4,)))(KEYS[1:4])
    widths = jnp.array([1e-3, 0.3])

    def member(loss, eps):
        overrides = {"value_loss": loss, "policy_loss.clip_eps": eps}
        overrides["learning_rate"] = 1e-2  # large enough for the clip to bind
        return train(KEYS[0], overrides)

    grid = jax.jit(jax.vmap(jax.vmap(member, (None, 0)), (0, None)))
    result = grid(population, widths)
    for i, j in ((0, 1), (2, 0)):
        one = config.replace(
            value_loss=lane(population, i),
            policy_loss=losses.ClipDrift(widths[j]),
            learning_rate=1e-2,
        )
        assert_close(lane(result, (i, j)), single(one, KEYS[0]))
    # Both act: three losses of the critic, two widths of the policy's clip.
    assert len(np.unique(result.metrics["value_loss"][:, 0, 0])) == 3
    assert len(np.unique(result.metrics["policy_loss"][0, :, 0])) == 2


@pytest.mark.parametrize("config", [purerl.TD3Config, purerl.SACConfig])
def test_a_whole_part_where_bounds_of_spaces_are_arrays_of_jax(config):
    train = purerl.make_train(config(env="Reacher-misc", total_timesteps=2_000))
    # SGD without momentum keeps no averages of gradients, as Adam does.
    adam = jax.eval_shape(train, KEYS[0])
    sgd = jax.eval_shape(lambda key: train(key, {"optimiser": SGD()}), KEYS[0])
    assert jax.tree.structure(sgd.metrics) == jax.tree.structure(adam.metrics)
    count = [len(jax.tree.leaves(result.state)) for result in (adam, sgd)]
    assert count[1] < count[0]
