"""PLR: PPO's own update in levels that are new, or replayed."""

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
from tests.helpers import slow_but

SIZE, LIMIT, ENVS, STEPS, CAPACITY, UPDATES = 4, 10, 4, 12, 12, 8
OPTIONS = {"size": (SIZE, SIZE), "view": 3, "max_walls": 4}
FIELDS = {
    "env_params": {"max_steps_in_episode": LIMIT},
    "num_envs": ENVS,
    "num_steps": STEPS,
    "num_epochs": 2,
    "num_minibatches": 2,
    "hidden_sizes": (8,),
    "learning_rate": 1e-3,
    "total_timesteps": UPDATES * ENVS * STEPS,
    "num_evaluations": 0,
}
CONFIG = PLRConfig(env_kwargs=OPTIONS, buffer_size=CAPACITY, **FIELDS)


def course(config, overrides=None, seed=0):
    """States before and after every update with leaves `[U + 1, ...]`, and metrics."""
    algorithm = purerl.make_algorithm(config.replace(**(overrides or {})))

    def run(key):
        def step(state, _):
            after, metrics = algorithm.step(state)
            return after, (after, metrics)

        first = algorithm.init(key)
        _, (states, metrics) = jax.lax.scan(step, first, None, length=UPDATES)
        states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, states)
        return states, metrics

    return jax.jit(run)(jax.random.key(seed))


@pytest.fixture(scope="module")
def robust():
    return course(CONFIG)


def moved(states):
    """Whether each update changed the parameters, `[U]` bool."""
    flat = np.concatenate(
        [
            np.asarray(x).reshape(UPDATES + 1, -1)
            for x in jax.tree.leaves(states.params)
        ],
        axis=1,
    )
    return (flat[1:] != flat[:-1]).any(1)


def test_without_replay_it_is_ppo_in_new_levels():
    """Domain randomisation: the public PPO, and environments put into new levels."""
    states, metrics = course(CONFIG, {"replay_probability": 0.0, "learn_on_new": True})
    env = RepeatedLevels(envs.Maze(**OPTIONS))
    algorithm = purerl.make_algorithm(purerl.PPOConfig(env=env, **FIELDS))
    params = env.default_params.replace(max_steps_in_episode=LIMIT)

    def step(state, _):
        keys = update_keys(state, 8)
        draw = jax.vmap(env.draw_level, (0, None))
        level = draw(jax.random.split(keys[5], ENVS), params)
        obs, inside = jax.vmap(env.reset_in)(jax.random.split(keys[7], ENVS), level)
        begun = carry_of(jax.vmap(start_of)(obs, inside))
        state, metrics = algorithm.step(state._replace(envs=begun))
        return state, (level, metrics)

    def run(key):
        return jax.lax.scan(step, algorithm.init(key), None, length=UPDATES)

    state, (drawn, expected) = jax.jit(run)(jax.random.key(0))
    assert (metrics["replayed"] == 0).all() and moved(states).all()
    last = jax.tree.map(lambda x: x[-1], states)
    for name in ("params", "opt_state", "envs"):
        for x, y in zip(
            jax.tree.leaves(getattr(last, name)),
            jax.tree.leaves(getattr(state, name)),
            strict=True,
        ):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-8)
    for name in expected:
        np.testing.assert_array_equal(metrics[name], expected[name])
    np.testing.assert_array_equal(states.envs.state.level.walls[1:], drawn.walls)


@pytest.mark.slow(optimised=False)
def test_the_policy_learns_from_replayed_levels_alone(robust):
    states, metrics = robust
    replayed = np.asarray(metrics["replayed"]) == 1
    assert replayed.any() and not replayed.all()
    np.testing.assert_array_equal(moved(states), replayed)
    every, _ = course(CONFIG, {"learn_on_new": True})
    assert moved(every).all()


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
        both = (states.level_buffer, states.envs.state.level)
        before, after = (
            jax.tree.map(lambda x, n=n: np.asarray(x[n]), both) for n in (u, u + 1)
        )
        if metrics["replayed"][u]:
            known, size = before[0].levels, before[0].size
        else:
            known, size = after[0].levels, after[0].size
        found = after[1]
        same = (known.walls[None, :size] == found.walls[:, None]).all((2, 3))
        for name in ("start", "goal", "start_direction"):
            known_ones = getattr(known, name)[None, :size]
            same &= known_ones == getattr(found, name)[:, None]
        assert same.any(1).all() or (not metrics["replayed"][u] and size == CAPACITY)


def agent_in(config, env):
    """The agent of a config in an environment."""
    config = with_params(purerl.resolve(config), env)
    return policy_gradient.make_agent(config, env)


@pytest.mark.parametrize(
    "kind", slow_but(["max_monte_carlo", "positive_value_loss"], "max_monte_carlo")
)
def test_scores_are_those_of_the_rollout_that_was_learned_from(kind):
    """Of new levels: computed again from the rollout, with the critic before it."""
    config = CONFIG.replace(score=kind, learn_on_new=True)
    algorithm = purerl.make_algorithm(config)
    state = jax.jit(algorithm.init)(jax.random.key(1))
    after, metrics = jax.jit(algorithm.step)(state)

    env = RepeatedLevels(envs.Maze(**OPTIONS))
    parts = agent_in(purerl.PPOConfig(env=env, **FIELDS), env)
    keys = update_keys(state, 8)
    level = jax.tree.map(lambda x: x[:ENVS], after.level_buffer.levels)
    obs, inside = jax.vmap(env.reset_in)(jax.random.split(keys[7], ENVS), level)
    begun = state._replace(envs=carry_of(jax.vmap(start_of)(obs, inside)))
    played = jax.jit(lambda s: on_policy.collect(parts, s, keys[:3]))(begun)
    steps, episodes = played.transitions, played.episodes
    critic = lambda x: parts.critic.apply(state.params["critic"], x)  # noqa: E731
    value, next_value = critic(steps.obs), critic(steps.next_obs)
    best = levels.best_returns(episodes.done, episodes.returns)
    if kind == "max_monte_carlo":
        expected = best - value.mean(0)
    else:
        traces = gae(
            steps.reward,
            value,
            next_value,
            steps.terminated,
            steps.truncated,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
        )
        expected = jnp.maximum(traces, 0).mean(0)
    np.testing.assert_allclose(after.level_buffer.score[:ENVS], expected, atol=1e-6)
    np.testing.assert_allclose(after.level_buffer.best_return[:ENVS], best)
    np.testing.assert_allclose(metrics["level_score"], expected.mean(), atol=1e-6)


@pytest.mark.slow
def test_other_levels_than_mazes_are_replayed():
    config = CONFIG.replace(
        env="ObjectGrid-v0",
        env_kwargs={"observation": "vector"},
        score="positive_value_loss",
    )
    states, metrics = course(config)
    assert (metrics["replayed"] == 1).any() and np.isfinite(
        metrics["level_score"]
    ).all()
    assert len(np.unique(states.level_buffer.levels.start[-1])) > 1


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
    config = CONFIG.replace(buffer_size=29, min_fill=0.5)
    train = purerl.make_train(config)
    with pytest.raises(ConfigError, match=words):
        jax.eval_shape(lambda key: train(key, overrides), jax.random.key(0))
    with pytest.raises(ConfigError, match=words):
        purerl.sweep(config, {name: [float(x)] for name, x in overrides.items()})
    bind(config.replace(learn_on_new=True)).at(overrides)


def test_replayed_levels_have_the_numbers_of_the_present_run(robust):
    """A time limit belongs to no level: one that is kept goes on with a new limit."""
    states, _ = robust
    state = jax.tree.map(lambda x: x[-1], states)
    assert (state.level_buffer.levels.max_steps_in_episode[:4] == LIMIT).all()
    other = CONFIG.replace(env_params={"max_steps_in_episode": 2}, min_fill=0.0)
    config = other.replace(replay_probability=1.0)
    after, metrics = jax.jit(purerl.make_algorithm(config).step)(state)
    assert metrics["replayed"] == 1.0
    level = after.envs.state.level
    assert (level.max_steps_in_episode == 2).all()
    kept = np.asarray(state.level_buffer.levels.walls).reshape(CAPACITY, -1).tolist()
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
        before, after = (
            jax.tree.map(lambda x, n=n: np.asarray(x[n]), states.level_buffer)
            for n in (u, u + 1)
        )
        played = after.played == u  # the time is the number of updates before
        assert 1 <= played.sum() <= ENVS
        assert (after.score != before.score)[played].any()
        np.testing.assert_array_equal(after.score[~played], before.score[~played])
        # The highest return of a level never falls, and a score is by the highest.
        assert (after.best_return >= before.best_return).all()


def test_the_new_score_of_a_level_is_by_its_highest_return_so_far(robust):
    env = RepeatedLevels(envs.Maze(**OPTIONS))
    parts = agent_in(CONFIG, env)
    state = jax.tree.map(lambda x: x[-1], robust[0])
    collect = jax.jit(lambda s: on_policy.collect(parts, s, update_keys(s, 8)[:3]))
    collected = collect(state)
    low, high = (
        plr.score(parts, state, collected, jnp.full(ENVS, best))
        for best in (-jnp.inf, 100.0)
    )
    np.testing.assert_array_equal(high.best_return, 100.0)
    np.testing.assert_allclose(
        high.score - low.score, 100.0 - low.best_return, rtol=1e-4
    )


def test_levels_are_drawn_by_the_configs_temperature_and_staleness(robust):
    """Staleness alone draws the oldest level, a cold temperature the highest score."""
    states, _ = robust
    state = jax.tree.map(lambda x: x[-1], states)
    size, now = int(state.level_buffer.size), int(state.update)
    oldest, best = 1, 3
    assert size > best and now > 0
    buffer = state.level_buffer._replace(
        played=jnp.full(CAPACITY, now).at[oldest].set(0),
        score=jnp.zeros(CAPACITY).at[best].set(1.0),
    )
    state = state._replace(level_buffer=buffer)
    env = RepeatedLevels(envs.Maze(**OPTIONS))
    for staleness, temperature, place in ((1.0, 1.0, oldest), (0.0, 0.01, best)):
        config = CONFIG.replace(
            replay_probability=1.0, staleness_coef=staleness, temperature=temperature
        )
        parts = agent_in(config, env)
        played = plr.choose(parts, state, update_keys(state, 8))
        assert played.is_replay
        np.testing.assert_array_equal(played.places, place)
