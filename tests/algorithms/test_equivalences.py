"""One training run is the same run however it is batched, cut or spread.

At one lane width W a member's numbers are the same bit for bit, whoever its neighbours
are. Across widths and compilations rounding differs and reinforcement learning is
chaotic, so there runs agree to a tolerance over their first updates, 1e-4 of the value
and 2e-5 near zero, and every run here is those first updates. What is only close need
not be compiled with the optimisations that make it equal: `tests.scale.test_pmap` has
the bits of optimised programs in quick tests.
"""

from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import purerl
from purerl import losses
from purerl.train import bind, make_segment
from tests.helpers import (
    assert_close,
    assert_same_bits,
    deadline,
    lane,
    option,
    slow_but,
)

pytestmark = pytest.mark.optimised(slow=True)

UPDATES, LANES = 6, 4
KEYS = jax.random.split(jax.random.key(0), 2 * LANES)
SHARED = {
    "num_envs": 4,
    "hidden_sizes": (8,),
    "num_evaluations": 2,
    "eval_share": 1.0,
    "eval_episodes": 2,
    "eval_max_steps": 12,
    "learning_rate": 1e-3,
}
CONFIG = purerl.PPOConfig(
    **SHARED,
    total_timesteps=UPDATES * 4 * 16,
    num_steps=16,
    num_epochs=2,
    num_minibatches=2,
)
CONFIGS = {
    "discrete": CONFIG,
    "continuous": CONFIG.replace(
        env="probe/continuous",
        policy="tanh_gaussian",
        normalize_observations=True,
        normalize_rewards=True,
        value_loss=losses.SquaredError(),
    ),
    "off-policy": purerl.DQNConfig(
        **SHARED,
        total_timesteps=UPDATES * 4 * 8,
        rounds_per_update=8,
        learning_starts=50,  # in the second update
        buffer_size=99,  # full in the fourth
        batch_size=16,
        epsilon_steps=50.0,
        target_update_interval=5,
    ),
}


class Runs:
    """One config's programs, each compiled once, and what they returned."""

    def __init__(self, config):
        self.config = config
        self.train = purerl.make_train(config)
        self.vmap = jax.jit(jax.vmap(self.train))
        self.first, self.second = self.vmap(KEYS[:LANES]), self.vmap(KEYS[LANES:])


def quickly_compiled():
    """Programs that are compiled inside differ from optimised ones by rounding."""
    return option("jax_disable_most_optimizations", True)


@pytest.fixture(scope="module", params=slow_but(CONFIGS, "discrete"))
def runs(request):
    return Runs(CONFIGS[request.param])


def test_a_vmapped_run_agrees_with_the_single_run(runs):
    single = jax.jit(runs.train)
    for index in (0, 3):
        with quickly_compiled():
            alone = single(KEYS[index])
        assert_close(alone, lane(runs.first, index))


def test_the_seeds_of_one_call_differ(runs):
    # The known bug: one key for everybody, every seed the same curve.
    for name in ("value_loss", "grad_norm"):
        assert len(np.unique(runs.first.metrics[name][:, -1])) == LANES
    for leaf in jax.tree.leaves(runs.first.state.params):
        if leaf.ndim > 2:  # kernels: biases start at zero and log_std at a constant
            assert len(np.unique(leaf.reshape(LANES, -1)[:, 0])) == LANES


def test_the_neighbours_of_a_lane_do_not_matter(runs):
    mixed = runs.vmap(KEYS[np.array([5, 1, 7, 2])])
    places = ((runs.second, 1), (runs.first, 1), (runs.second, 3), (runs.first, 2))
    for index, place in enumerate(places):
        assert_same_bits(lane(mixed, index), lane(*place))


@pytest.mark.slow
def test_updates_past_the_end_leave_the_state_as_it_is(runs):
    segment = make_segment(bind(runs.config))
    advance = jax.jit(jax.vmap(partial(segment.advance, length=2), in_axes=(0, None)))
    after, *_ = advance(runs.first.state, UPDATES)
    assert_same_bits(after, runs.first.state)


@pytest.mark.parametrize("runs", slow_but(CONFIGS, "discrete"), indirect=True)
def test_jit_of_shard_map_over_two_devices_runs_and_agrees(runs):
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("d")
    spread_train = jax.jit(
        jax.shard_map(jax.vmap(runs.train), mesh=mesh, in_specs=spec, out_specs=spec)
    )
    with deadline(300), quickly_compiled():
        spread = jax.block_until_ready(spread_train(KEYS[:LANES]))
    assert len(spread.metrics["env_steps"].sharding.device_set) == 2
    assert_close(spread, runs.first)
