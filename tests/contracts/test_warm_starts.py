"""What every registered algorithm keeps: hooks, warm starts, frozen parts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import warm_start
from purerl.acting.policy import recurrence_of
from purerl.learning.optimiser import is_in, name_leaves
from purerl.metrics import HELD
from purerl.train import bind
from tests.contracts.test_algorithms import SMALL, small
from tests.helpers import assert_close, assert_same_bits, lane, slow_but

KEY = jax.random.key(0)
# In order of what they cost; the others are for `make test-slow`.
QUICK = ("ppo", "td3")


@pytest.fixture(scope="module", params=slow_but(SMALL, *QUICK))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def whole(name):
    """A whole run with hooks, in one program."""
    config = small(name).replace(metrics=(measure,))
    train = purerl.make_train(config, observe=observe)
    return jax.jit(train)(KEY)


@pytest.fixture(scope="module")
def start(name):
    """The algorithm, and the state that the run begins with."""
    algorithm = purerl.make_algorithm(small(name))
    return algorithm, jax.jit(algorithm.init)(KEY)


def observe(state):
    return {"state": state, "learned": learned(state)}


def measure(state, batch, metrics):
    return {
        "twice": 2 * metrics["env_steps"],
        "seen": state.update,
        "steps": batch.reward.size,
        "flags": (batch.terminated & batch.truncated).sum(),
    }


def after(whole, updates):
    """The state after some updates, which an evaluation has gathered."""
    return lane(whole.observed["state"], updates - 1)


def learned(state):
    """Every number that is learned, as one vector."""
    return jnp.concatenate([x.ravel() for x in jax.tree.leaves(state.params)])


def test_hooks_see_the_states_of_the_run(whole):
    """Evaluations follow every update: `observed` are the states, one after another."""
    assert_same_bits(after(whole, 3), whole.state)
    for update in (1, 2, 3):
        vector = learned(after(whole, update))
        np.testing.assert_array_equal(whole.observed["learned"][update - 1], vector)
    assert not np.array_equal(whole.observed["learned"][0], vector)
    np.testing.assert_array_equal(whole.metrics["measure.seen"], [1, 2, 3])
    steps = whole.metrics["env_steps"]
    np.testing.assert_array_equal(whole.metrics["measure.twice"], 2 * steps)
    np.testing.assert_array_equal(whole.metrics["measure.steps"], steps[0])
    np.testing.assert_array_equal(whole.metrics["measure.flags"], 0)


def test_a_run_from_a_state_is_the_run_that_was_not_stopped(name, whole):
    """To rounding: a loop of another length is another program. See `test_start` too.

    Whatever was not taken over would show in a thousandth, not in a hundred-thousandth.
    """
    config = purerl.resolve(small(name))  # A state does not say what `auto` stood for.
    config = config.replace(metrics=(measure,))
    train = purerl.make_train(config, observe=observe, first_update=1)
    rest = jax.jit(train)(KEY, start=after(whole, 1))
    assert_close(rest.state, whole.state)
    metrics, *others = jax.tree.map(lambda x: x[1:], whole[1:])
    # Returns are held within a run, which has none before its first episode ends.
    none = np.cumsum(metrics["episodes"]) == 0
    before = {n: np.where(none, np.nan, metrics[n]) for n in HELD if n in metrics}
    assert_close(rest[1:], (metrics | before, *others))


def test_networks_act_alike_in_a_run_that_is_fresh_otherwise(name, whole, start):
    algorithm, source, key = start[0], whole.state, jax.random.key(5)
    networks = purerl.networks_of(source)
    new, first = warm_start.begin(
        jax.jit(algorithm.init), key, networks, None, bind(small(name)), None
    )
    fresh = jax.jit(algorithm.init)(key)
    assert first == 0

    recurrence = recurrence_of(algorithm)
    obs = 0.3 * jax.random.normal(key, (64, *source.envs.obs.shape[1:]))
    act = partial(recurrence.act, obs=obs, memory=recurrence.init((64,)))
    assert_same_bits(act(new), act(source))
    if name != "tabular":  # So short a run leaves its greedy actions as they were.
        assert not np.array_equal(act(fresh)[0], act(source)[0])

    for field in ("opt_state", "envs", "update", "key", "buffer", "memory"):
        if hasattr(fresh, field):
            assert_same_bits(getattr(new, field), getattr(fresh, field))
    # Everything else is the source's, which nothing of the fresh agent is.
    assert_same_bits(purerl.networks_of(new), networks)
    assert not np.array_equal(learned(new), learned(fresh))


def test_frozen_parts_stay_and_the_others_learn(name):
    """`torso` is frozen: that of every network which has one."""
    if name in ("tabular", "bandit"):
        pytest.skip("it has no networks, and refuses the field")
    part = {"disco": "embedding"}.get(name, "torso")
    algorithm = purerl.make_algorithm(small(name, frozen=(part,)))
    step, state = jax.jit(algorithm.step), jax.jit(algorithm.init)(KEY)
    before = dict(name_leaves(state.params))
    for _ in range(3):
        state, _ = step(state)
    frozen = [leaf for leaf in before if is_in(leaf, part)]
    assert 0 < len(frozen) < len(before)
    after = name_leaves(state.params)
    stayed = {leaf for leaf, value in after if np.array_equal(value, before[leaf])}
    assert stayed >= set(frozen)
    if name == "disco":  # The rule of this test gives some of its heads no gradient.
        assert stayed < set(before)
    else:
        assert stayed == set(frozen)


def test_the_norm_of_vpgs_gradient_is_that_of_what_learns():
    """Its actor takes one step, so that the squares of two parts add up to all."""

    def norm(frozen, key):
        algorithm = purerl.make_algorithm(small("vpg", frozen=frozen))
        return algorithm.step(algorithm.init(key))[1]["grad_norm"]

    init = purerl.make_algorithm(small("vpg")).init
    names = [name for name, _ in name_leaves(jax.eval_shape(init, KEY).params)]
    torso = tuple(leaf for leaf in names if is_in(leaf, "torso"))
    others = tuple(leaf for leaf in names if leaf not in torso)
    frozen = ((), torso, others)
    norms = jax.jit(lambda key: [norm(parts, key) for parts in frozen])(KEY)
    whole, heads, torsos = map(float, norms)
    assert 0 < heads < whole and 0 < torsos < whole
    assert heads**2 + torsos**2 == pytest.approx(whole**2, rel=1e-4)
