"""Arrays side by side in one: the same bits come out, and a loop writes once."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.accelerator import kernels
from purerl.accelerator.kernels import traced_for
from purerl.contrib.hardware.estimate import num_carried
from purerl.learning import branches
from tests.contracts.test_algorithms import small
from tests.helpers import assert_same_bits, tiny_config

TREE = {
    "reward": jnp.array([[0.5, -0.0], [jnp.nan, jnp.inf]]),
    "action": jnp.array([[7, -1], [2**31 - 1, -(2**31)]], jnp.int32),
    "word": jnp.array([[0, 2**32 - 1], [1, 2]], jnp.uint32),
    "done": jnp.array([[True, False], [False, True]]),
    "obs": jnp.arange(12.0).reshape(2, 2, 3),
    "pixel": jnp.array([[0, 255], [1, 2]], jnp.uint8),
    "half": jnp.array([[0.5, 1.0], [2.0, 3.0]], jnp.bfloat16),
}


@pytest.mark.parametrize("axes", [0, 1, 2])
def test_what_is_unpacked_is_what_was_packed_to_the_last_bit(axes):
    packed, layout = kernels.pack(TREE, axes)
    assert packed.words.shape == (*TREE["done"].shape[:axes], 28 // 2**axes)
    # XLA's compiler for GPUs failed at unsigned words where one agent was trained.
    assert packed.words.dtype == jnp.int32
    assert {x.dtype.name for x in packed.others} == {"uint8", "bfloat16"}
    assert_same_bits(kernels.unpack(packed, layout), TREE)


def test_random_keys_and_large_leaves_stay_as_they_are():
    keys = jax.random.split(jax.random.key(0), 2)
    tree = {"key": keys, "large": jnp.zeros((2, kernels.MOST_WORDS + 1))}
    packed, layout = kernels.pack(tree, axes=1)
    assert packed.words.shape == (2, 0) and len(packed.others) == 2
    found = kernels.unpack(packed, layout)
    assert (jax.random.key_data(found["key"]) == jax.random.key_data(keys)).all()


def step(carry, given):
    total = carry + given
    outputs = {"total": total, "is_large": total > 3.0, "index": total.astype(int)}
    return total, outputs


def test_a_scan_gives_what_that_of_jax_gives_and_writes_one_array():
    inputs = jnp.arange(10.0).reshape(5, 2)
    known = jax.vmap(lambda x: jax.lax.scan(step, x[0] * 0, x))(inputs[None])
    for platform, arrays in (("cuda", 1), ("cpu", 3)):
        with traced_for(platform):
            found = jax.vmap(lambda x: kernels.scan(step, x[0] * 0, x))(inputs[None])
            text = jax.make_jaxpr(lambda x: kernels.scan(step, x[0], x))(inputs)
        assert_same_bits(found, known)
        (loop,) = [e for e in text.jaxpr.eqns if e.primitive.name == "scan"]
        assert len(loop.outvars) - num_carried(loop) == arrays


RUNS = [
    ("pqn", {"num_envs": 4, "num_steps": 6}),  # six steps are turns of two
    pytest.param("ppo", {}, marks=pytest.mark.slow),
    pytest.param("ppo", {"env": "Pendulum-v1"}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "changes"), RUNS)
def test_a_run_that_is_traced_for_an_accelerator_is_the_same_run(name, changes):
    config = small(name, num_evaluations=1, **changes)
    keys = jax.vmap(jax.random.key)(np.arange(2))
    known = jax.jit(jax.vmap(purerl.make_train(config)))(keys)
    with traced_for("cuda"):
        found = jax.jit(jax.vmap(purerl.make_train(config)))(keys)
    pair = ((x.metrics, x.evaluation) for x in (found, known))
    chex.assert_trees_all_close(*pair, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("due", [True, False])
def test_a_change_that_is_computed_in_any_case_is_the_one_of_a_branch(due):
    def change(carry):
        # Where it is not due it may be anything, such as 0 / 0.
        return {"x": carry["x"] / carry["x"].min()}, {"sum": carry["x"].sum()}

    carry = {"x": jnp.arange(3.0) + due}
    found = branches.change_where(jnp.bool_(due), change, carry)
    known = branches.change_if(jnp.bool_(due), change, carry)
    assert_same_bits(found, known)
    assert due or (found[0]["x"].tolist(), float(found[1]["sum"])) == ([0, 1, 2], 0)


def test_the_ways_to_what_a_loop_carries_and_back_leave_it_as_it_was():
    for platform, arrays in (("cuda", 3), ("cpu", len(TREE))):
        with traced_for(platform):
            there, back = kernels.carry_packers(TREE, axes=1)
        # The packed array, the bytes and the half numbers.
        assert len(jax.tree.leaves(there(TREE))) == arrays
        assert_same_bits(back(there(TREE)), TREE)


def test_a_wide_carry_stays_as_it_is():
    words = kernels.MOST_CARRIED
    for is_packed in (True, False):
        tree = {"x": jnp.zeros((2, words)), "y": jnp.zeros((2, 0 if is_packed else 1))}
        with traced_for("cuda"):
            there, _ = kernels.carry_packers(tree, axes=1)
        assert (len(jax.tree.leaves(there(tree))) == 1) == is_packed


def test_a_step_is_computed_once_and_is_the_same():
    tree = {
        "obs": jnp.arange(8.0).reshape(2, 4),
        "done": jnp.array([True, False]),
        "key": jax.random.split(jax.random.key(0), 2),
        "grid": jnp.arange(12).reshape(2, 2, 3),
        "nothing": jnp.zeros((2, 0)),
    }
    assert kernels.computed_once(tree, axes=1) is tree
    with traced_for("cuda"):
        assert_same_bits(kernels.computed_once(tree, axes=1), tree)
        jaxpr = jax.make_jaxpr(lambda x: kernels.computed_once(x, axes=1))(tree)
        wide = {"obs": jnp.zeros((2, kernels.MOST_CARRIED + 1))}
        assert kernels.computed_once(wide, axes=1) is wide
    (barrier,) = (e for e in jaxpr.eqns if e.primitive.name == "optimization_barrier")
    # The four columns of the observation, and what is no short vector.
    assert len(barrier.outvars) == 4 + 4


def test_the_steps_of_a_rollout_are_computed_once(monkeypatch):
    seen = []
    monkeypatch.setattr(kernels, "computed_once", lambda x, axes: seen.append(x) or x)
    with traced_for("cuda"):
        jax.eval_shape(purerl.make_train(tiny_config(num_steps=7)), jax.random.key(0))
    ((carry, out),) = seen  # not once more around the steps, nor in an evaluation
    assert carry.obs.shape == out.next_obs.shape and out.reward.ndim == 1


def test_short_vectors_stand_in_columns_and_come_back_as_rows():
    step = {"obs": jnp.arange(6.0).reshape(3, 2), "image": jnp.zeros((3, 2, 2))}
    step["wide"] = jnp.zeros((3, kernels.MOST_COLUMNS + 1))
    for platform, shape in (("cuda", (2, 3)), ("cpu", (3, 2))):
        with traced_for(platform):
            turned = kernels.columns_first(step)
            assert turned["obs"].shape == shape
            stacked = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), turned)
            found = kernels.columns_last(stacked, step)
        assert_same_bits(found, jax.tree.map(lambda x: jnp.stack([x, 2 * x]), step))


def test_small_environments_make_several_steps_a_turn():
    small = {"x": jnp.zeros((2, kernels.MOST_CARRIED))}
    large = {"x": jnp.zeros((2, kernels.MOST_CARRIED + 1))}
    with traced_for("cuda"):
        found = [kernels.steps_of_turn(small, 1, np.zeros(n)) for n in (8, 6, 5)]
        assert (found, kernels.steps_of_turn(large, 1, np.zeros(8))) == ([4, 2, 1], 1)
    with traced_for("cpu"):
        assert kernels.steps_of_turn(small, 1, np.zeros(8)) == 1


def test_a_step_of_a_round_knows_what_is_the_same_in_every_round():
    before = jnp.uint32(12)
    for index in range(6):
        count = branches.StepCount(before + index, 6, index)
        for period in (1, 2, 3, 6):
            assert count.completes(period) is ((index + 1) % period == 0)
        # Six steps are no whole number of these periods.
        for period in (4, 5, jnp.uint32(4)):
            found = count.completes(period)
            assert isinstance(found, jax.Array)
            assert bool(found) == ((12 + index + 1) % int(period) == 0)
    assert not isinstance(branches.StepCount(before).completes(2), bool)
