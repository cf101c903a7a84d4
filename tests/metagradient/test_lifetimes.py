"""Numbers that many agents share: lives, tasks, and steps along the mean gradient."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl.config import ConfigError
from purerl.optimisers import SGD
from tests.helpers import assert_close, assert_same_bits, lane
from tests.metagradient.configs import VPG

UPDATES, AGENTS, RATE = 6, 3, 0.1
CONFIG = VPG.replace(
    optimiser=SGD(),
    learning_rate=0.1,
    hidden_sizes=(4,),
    total_timesteps=UPDATES * VPG.steps_per_update,
)
TASKS = {"env_params.length": jnp.array([0.3, 0.8, 1.5, 2.5])}


@pytest.fixture(scope="module")
def training():
    return purerl.meta_train(
        CONFIG,
        "learning_rate",
        agents=AGENTS,
        unroll=2,
        tasks=TASKS,
        meta_learning_rate=RATE,
    )


@pytest.fixture(scope="module")
def compiled(training):
    return jax.jit(training.init), jax.jit(training.step)


def test_a_step_goes_along_the_mean_of_the_agents_gradients(training, compiled, key):
    init, step = compiled
    state = init(key)
    after, metrics = step(state)
    alone = jax.jit(training.meta)
    gradients, values, returns = [], [], []
    for index in range(AGENTS):
        agent = lane(state.agents, index)
        task = {name: x[state.task[index]] for name, x in TASKS.items()}
        found = alone(agent, state.values, task)
        gradients.append(found.gradient["learning_rate"])
        values.append(found.value)
        many = found.metrics["episodes"]
        returns.append(np.nansum(many * found.metrics["episode_return"]))
    mean = np.mean(gradients)
    assert abs(mean) > 1e-4
    np.testing.assert_allclose(metrics["gradient_norm"], abs(mean), rtol=1e-3)
    np.testing.assert_allclose(metrics["objective"], np.mean(values), atol=1e-5)
    total = metrics["episode_return"] * metrics["episodes"]
    np.testing.assert_allclose(total, np.sum(returns), rtol=1e-4)
    assert metrics["failed"] == 0
    optim = optax.adam(RATE)
    start = training.meta.start()
    moved, _ = optim.update({"learning_rate": jnp.float32(mean)}, optim.init(start))
    expected = optax.apply_updates(start, moved)
    assert_close(after.values, expected, atol=0)
    used = training.overrides(after)["learning_rate"]
    np.testing.assert_allclose(used, 0.1 * np.exp(expected["learning_rate"]), rtol=1e-5)


def test_lives_are_staggered_and_those_that_are_over_begin_again(compiled, key):
    init, step = compiled
    state = init(key)
    assert state.left.tolist() == [6, 4, 2]
    assert state.agents.update.tolist() == [0, 0, 0]
    ages, tasks, keys = [], [state.task], [key_data(state)]
    for _ in range(3):
        state, _ = step(state)
        ages.append(state.agents.update.tolist())
        tasks.append(state.task)
        keys.append(key_data(state))
    # The third agent's first life has two updates, the second's four, all others six.
    assert ages == [[2, 2, 0], [4, 0, 2], [0, 2, 4]]
    assert state.step == 3
    for number, born in enumerate([[2], [1], [0]]):
        for agent in range(AGENTS):
            fresh = (keys[number][agent] != keys[number + 1][agent]).any()
            assert fresh == (agent in born)
            if agent not in born:
                assert tasks[number][agent] == tasks[number + 1][agent]


def key_data(state):
    return np.asarray(jax.random.key_data(state.agents.key))


def test_every_task_is_drawn(training):
    births = jax.jit(training._births)
    drawn = [
        births(training.meta.start(), jax.random.key(seed))[1] for seed in range(20)
    ]
    assert set(np.concatenate(drawn).tolist()) == {0, 1, 2, 3}


def test_an_agent_without_a_finite_gradient_is_left_out_and_begins_again(
    training, compiled, key
):
    init, step = compiled
    state = init(key)
    broken = jax.tree.map(lambda x: x.at[0].set(jnp.nan), state.agents.params["actor"])
    params = {**state.agents.params, "actor": broken}
    bad = state._replace(agents=state.agents._replace(params=params))
    after, metrics = step(bad)
    np.testing.assert_allclose(metrics["failed"], 1 / AGENTS, rtol=1e-6)
    assert np.isfinite(metrics["objective"]) and np.isfinite(metrics["episode_return"])
    found = [np.isfinite(x).all() for x in jax.tree.leaves(after.values)]
    assert all(found)
    assert after.left.tolist() == [6, 2, 6]
    assert after.agents.update.tolist() == [0, 2, 0]
    again, metrics = step(after)
    assert metrics["failed"] == 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(again.agents.params))


def test_a_state_that_was_saved_goes_on_with_the_same_bits(compiled, key, tmp_path):
    sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
    import learn_lpg

    init, step = compiled
    first, _ = step(init(key))
    (tmp_path / "states").mkdir()
    learn_lpg.save(first, tmp_path)
    (file,) = (tmp_path / "states").glob("*.npz")
    read = learn_lpg.load(file, init(jax.random.key(9)))
    assert_same_bits(read, first)
    assert_same_bits(step(read), step(first))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents": 0}, "agents must be"),
        ({"unroll": 7}, "at most the 6 updates of a lifetime, got 7"),
        ({"tasks": {"gamma": 0.9}}, r"leading axis, .*'gamma': \(\)"),
        ({"tasks": {"learning_rate": [0.9]}}, "the same numbers"),
        ({"tasks": {"env_params.lenght": [2.0]}}, "lenght"),
        (
            {"tasks": {"gae_lambda": [0.9, 1.5]}},
            "row 1: gae_lambda must lie .* got 1.5",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    given = {"agents": AGENTS, "unroll": 2, **changes}
    with pytest.raises(ConfigError, match=words):
        purerl.meta_train(CONFIG, "learning_rate", **given)


def test_a_life_is_no_longer_than_a_run_however_many_agents():
    """800 agents by three million updates are more than 32 bits hold."""
    updates = 3_000_000
    config = CONFIG.replace(total_timesteps=updates * CONFIG.steps_per_update)
    many = purerl.meta_train(config, "learning_rate", agents=800, unroll=2)
    left = jax.eval_shape(many.init, jax.random.key(0)).left
    assert left.dtype == jnp.int32
    left = np.asarray(jax.jit(lambda key: many.init(key).left)(jax.random.key(0)))
    assert left.max() == updates and left.min() == updates // 800
    assert (np.diff(left) < 0).all()
