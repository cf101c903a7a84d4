"""PLR: PPO's own update in levels that are new, or replayed."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.environment import with_params
from purerl.acting.rollout import carry_of, start_of
from purerl.algorithms import on_policy, plr, policy_gradient
from purerl.algorithms.plr import PLRConfig
from purerl.config import ConfigError
from purerl.envs.wrappers import RepeatedLevels
from purerl.keys import update_keys
from purerl.learning.returns import gae
from purerl.replay import levels
from purerl.train import bind
from tests.algorithms.agents import compiled
from tests.helpers import assert_close, lane, plain, slow_but

SIZE, LIMIT, ENVS, STEPS, CAPACITY, UPDATES = 4, 10, 4, 12, 12, 8
OPTIONS = {"size": (SIZE, SIZE), "view": 3, "max_walls": 4}
FIELDS = {
    "num_envs": ENVS,
    "num_steps": STEPS,
    "num_epochs": 2,
    "num_minibatches": 2,
    "hidden_sizes": (8,),
    "learning_rate": 1e-3,
    "total_timesteps": UPDATES * ENVS * STEPS,
    "num_evaluations": 0,
}
CONFIG = PLRConfig(
    env_kwargs=OPTIONS, buffer_size=CAPACITY, learn_on_new=True, **FIELDS
)
ENV = RepeatedLevels(envs.Maze(**OPTIONS))
# All that differs between courses, so that they are one program.
NUMBERS = {
    "replay_probability": CONFIG.replay_probability,
    "min_fill": CONFIG.min_fill,
    "env_params.max_steps_in_episode": LIMIT,
}


@cache
def programs(config):
    """Functions of `NUMBERS`: the first state, and all updates."""
    bound = bind(config)

    def init(key, overrides):
        return bound.algorithm(bound.at(overrides)).init(key)

    def run(first, overrides):
        algorithm = bound.algorithm(bound.at(overrides))

        def step(state, _):
            after, metrics = algorithm.step(state)
            return after, (after, metrics)

        _, (states, metrics) = jax.lax.scan(step, first, None, length=UPDATES)
        states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, states)
        return states, metrics

    return jax.jit(init), jax.jit(run)


def course(config=CONFIG, seed=0, state=None, **numbers):
    """States before and after every update with leaves `[U + 1, ...]`, and metrics."""
    (init, run), numbers = programs(config), {**NUMBERS, **numbers}
    state = init(jax.random.key(seed), numbers) if state is None else state
    return run(state, numbers)


@pytest.fixture(scope="module")
def robust():
    return course()


@pytest.fixture(scope="module")
def last(robust):
    return lane(robust[0], -1)


def moved(states):
    """Whether each update changed the parameters, `[U]` bool."""
    leaves = [x.reshape(UPDATES + 1, -1) for x in jax.tree.leaves(states.params)]
    flat = np.concatenate(leaves, axis=1)
    return (flat[1:] != flat[:-1]).any(1)


def put_into(state, level, key):
    """A state whose environments begin in levels."""
    obs, inside = jax.vmap(ENV.reset_in)(jax.random.split(key, ENVS), level)
    return state._replace(envs=carry_of(jax.vmap(start_of)(obs, inside)))


def test_without_replay_it_is_ppo_in_new_levels():
    """Domain randomisation: the public PPO, and environments put into new levels."""
    states, metrics = course(replay_probability=0.0)
    limit = {"max_steps_in_episode": LIMIT}
    config = purerl.PPOConfig(env=ENV, env_params=limit, **FIELDS)
    algorithm = purerl.make_algorithm(config)
    params = ENV.default_params.replace(**limit)

    def step(state, _):
        keys = update_keys(state, 8)
        draw = jax.vmap(ENV.draw_level, (0, None))
        level = draw(jax.random.split(keys[5], ENVS), params)
        state, metrics = algorithm.step(put_into(state, level, keys[7]))
        return state, (level, metrics)

    def run(key):
        return jax.lax.scan(step, algorithm.init(key), None, length=UPDATES)

    state, (drawn, expected) = jax.jit(run)(jax.random.key(0))
    assert (metrics["replayed"] == 0).all() and moved(states).all()
    for name in ("params", "opt_state", "envs"):
        found = lane(getattr(states, name), -1)
        assert_close(found, getattr(state, name), rtol=1e-5, atol=1e-8)
    for name in expected:
        np.testing.assert_array_equal(metrics[name], expected[name])
    np.testing.assert_array_equal(states.envs.state.level.walls[1:], drawn.walls)


@pytest.mark.slow(optimised=False)
def test_the_policy_learns_from_replayed_levels_alone(robust):
    states, metrics = course(CONFIG.replace(learn_on_new=False))
    replayed = np.asarray(metrics["replayed"]) == 1
    assert replayed.any() and not replayed.all()
    np.testing.assert_array_equal(moved(states), replayed)
    assert moved(robust[0]).all()


def test_levels_are_replayed_once_the_buffer_is_full_enough(robust):
    states, metrics = robust
    size = np.asarray(states.level_buffer.size)
    replayed = np.asarray(metrics["replayed"]) == 1
    assert not replayed[size[:-1] < CAPACITY / 2].any()
    grown = np.where(replayed, 0, ENVS)
    np.testing.assert_array_equal(size[1:], np.minimum(size[:-1] + grown, CAPACITY))


def test_a_replayed_level_is_one_of_the_buffer_and_a_new_one_is_kept(robust):
    states, metrics = robust
    for u in range(UPDATES):
        both = plain((states.level_buffer, states.envs.state.level))
        before, after = (lane(both, n) for n in (u, u + 1))
        buffer = before[0] if metrics["replayed"][u] else after[0]
        known, size, found = buffer.levels, buffer.size, after[1]
        same = (known.walls[None, :size] == found.walls[:, None]).all((2, 3))
        for name in ("start", "goal", "start_direction"):
            known_ones = getattr(known, name)[None, :size]
            same &= known_ones == getattr(found, name)[:, None]
        assert same.any(1).all() or (not metrics["replayed"][u] and size == CAPACITY)


def agent_with(**overrides):
    """The agent of the levels; its numbers may be traced."""
    config = with_params(bind(CONFIG).at({**NUMBERS, **overrides}), ENV)
    return policy_gradient.make_agent(config, ENV)


@pytest.mark.parametrize(
    "kind", slow_but(["max_monte_carlo", "positive_value_loss"], "max_monte_carlo")
)
def test_scores_are_those_of_the_rollout_that_was_learned_from(kind):
    """Of new levels: computed again from the rollout, with the critic before it."""
    config = CONFIG.replace(score=kind)
    states, metrics = course(config, seed=1)
    state, after = (lane(states, index) for index in (0, 1))
    parts = agent_with()

    def scores(state, levels_now):
        keys = update_keys(state, 8)
        begun = put_into(state, jax.tree.map(lambda x: x[:ENVS], levels_now), keys[7])
        played = on_policy.collect(parts, begun, keys[:3])
        steps, episodes = played.transitions, played.episodes
        value, next_value = (
            parts.critic.apply(state.params["critic"], x)
            for x in (steps.obs, steps.next_obs)
        )
        best = levels.best_returns(episodes.done, episodes.returns)
        if kind == "max_monte_carlo":
            return best, best - value.mean(0)
        flags = steps.terminated, steps.truncated
        numbers = {"gamma": config.gamma, "gae_lambda": config.gae_lambda}
        traces = gae(steps.reward, value, next_value, *flags, **numbers)
        return best, jnp.maximum(traces, 0).mean(0)

    best, expected = compiled(scores, state, after.level_buffer.levels)
    np.testing.assert_allclose(after.level_buffer.score[:ENVS], expected, atol=1e-6)
    np.testing.assert_allclose(after.level_buffer.best_return[:ENVS], best)
    np.testing.assert_allclose(metrics["level_score"][0], expected.mean(), atol=1e-6)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"replay_probability": 0.0}, "replay_probability is 0; "),
        ({"min_fill": 1.0}, r"28 levels .* of the 29 \(min_fill x buffer_size\)"),
    ],
)
def test_overrides_with_which_nothing_is_learned_get_the_configs_sentence(
    overrides, words
):
    config = CONFIG.replace(buffer_size=29, min_fill=0.5, learn_on_new=False)
    train = purerl.make_train(config)
    with pytest.raises(ConfigError, match=words):
        jax.eval_shape(lambda key: train(key, overrides), jax.random.key(0))
    with pytest.raises(ConfigError, match=words):
        purerl.sweep(config, {name: [float(x)] for name, x in overrides.items()})
    bind(config.replace(learn_on_new=True)).at(overrides)


def test_replayed_levels_have_the_numbers_of_the_present_run(last):
    """A time limit belongs to no level: one that is kept goes on with a new limit."""
    assert (last.level_buffer.levels.max_steps_in_episode[:4] == LIMIT).all()
    short = {"env_params.max_steps_in_episode": 2}
    after, metrics = course(state=last, replay_probability=1.0, min_fill=0.0, **short)
    assert metrics["replayed"][0] == 1.0
    level = lane(after.envs.state.level, 1)
    assert (level.max_steps_in_episode == 2).all()
    kept = np.asarray(last.level_buffer.levels.walls).reshape(CAPACITY, -1).tolist()
    played = np.asarray(level.walls).reshape(ENVS, -1).tolist()
    assert all(walls in kept for walls in played)


def test_one_agent_over_devices_is_refused():
    with pytest.raises(ConfigError, match="trains an agent on one device"):
        purerl.make_train(CONFIG, axis_name="devices")(jax.random.key(0))


def test_a_replayed_level_has_its_new_score_and_time(robust):
    states, metrics = robust
    replayed = np.flatnonzero(np.asarray(metrics["replayed"]) == 1)
    assert len(replayed)
    for u in replayed:
        before, after = (lane(plain(states.level_buffer), n) for n in (u, u + 1))
        played = after.played == u  # the time is the number of updates before
        assert 1 <= played.sum() <= ENVS
        assert (after.score != before.score)[played].any()
        np.testing.assert_array_equal(after.score[~played], before.score[~played])
        # The highest return of a level never falls, and a score is by the highest.
        assert (after.best_return >= before.best_return).all()


def test_the_new_score_of_a_level_is_by_its_highest_return_so_far(last):
    parts = agent_with()

    def scores(state):
        collected = on_policy.collect(parts, state, update_keys(state, 8)[:3])
        return [
            plr.score(parts, state, collected, jnp.full(ENVS, best))
            for best in (-jnp.inf, 100.0)
        ]

    low, high = compiled(scores, last)
    np.testing.assert_array_equal(high.best_return, 100.0)
    np.testing.assert_allclose(
        high.score - low.score, 100.0 - low.best_return, rtol=1e-4
    )


def test_levels_are_drawn_by_the_configs_temperature_and_staleness(last):
    """Staleness alone draws the oldest level, a cold temperature the highest score."""
    size, now = int(last.level_buffer.size), int(last.update)
    oldest, best = 1, 3
    assert size > best and now > 0
    played, score = np.full(CAPACITY, now, np.int32), np.zeros(CAPACITY, np.float32)
    played[oldest], score[best] = 0, 1.0
    buffer = last.level_buffer._replace(played=played, score=score)

    @jax.jit
    def choose(state, numbers):
        return plr.choose(agent_with(**numbers), state, update_keys(state, 8))

    state = last._replace(level_buffer=buffer)
    for staleness, temperature, place in ((1.0, 1.0, oldest), (0.0, 0.01, best)):
        numbers = {"staleness_coef": staleness, "temperature": temperature}
        played = choose(state, {"replay_probability": 1.0, **numbers})
        assert played.is_replay
        np.testing.assert_array_equal(played.places, place)
