"""Suites that are extras: their dynamics, flags that say why, fresh resets."""

import re
import sys
from functools import partial
from typing import Any
from unittest.mock import Mock

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs
from purerl.acting.environment import is_built_in
from tests.envs.episodes import played
from tests.helpers import assert_same_bits, tiny_config

# The package of every suite.
SUITES = {"playground": "mujoco_playground"}
SUITES |= {x: x for x in ("craftax", "jumanji", "navix", "xminigrid", "pgx", "popjym")}
# The short games: compiling one takes a minute and more.
CRAFTAX = "craftax/Craftax-Classic-Symbolic-v1"
PLAYGROUND = "playground/CartpoleSwingup"
NAVIX = "navix/Navix-Empty-5x5-v0"
XMINIGRID = "xminigrid/MiniGrid-Empty-5x5"
PGX = "pgx/minatar-breakout"
LIMIT = 4
KEY = jax.random.key(0)


def make(suite, **options) -> Any:
    """An environment of a suite, where its package is installed."""
    pytest.importorskip(SUITES[suite.split("/")[0]])
    return envs.make(suite, **options)


EXTRAS = [
    *((key, name, partial(envs.make, f"{name}/X")) for name, key in SUITES.items()),
    ("envpool", "envpool", lambda: envs.make("envpool/CartPole-v1")),
    ("gymnasium", "gymnasium", lambda: envs.to_gymnasium("CartPole-v1")),
]


@pytest.mark.parametrize(("package", "name", "call"), EXTRAS)
def test_a_missing_package_says_what_to_install(package, name, call, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    # POPJym is on no registry, and so no package can have it as an extra.
    from_github = "git+https://github.com/FLAIROx/popjym"
    install = re.escape(from_github if name == "popjym" else f"purerl[{name}]")
    sentence = rf"needs the package {package}.*pip install '{install}'"
    with pytest.raises(ValueError, match=sentence):
        call()


def test_ids_are_the_packages_and_built_in():
    for name in SUITES:
        assert envs.source_of(f"{name}/Something") == name
        assert not envs.registry.is_on_host(f"{name}/Something")
    assert is_built_in(purerl.PPOConfig(env=CRAFTAX))


NOT_THERE = [
    (CRAFTAX, {"size": 3}, r"were \['size'\], which it does not take"),
    ("playground/Cartpole", {}, "'Cartpole' is none of Playground's. .*Cartpole"),
    (PLAYGROUND, {"episode_length": 3}, "take no notice; set max_steps_in_episode"),
    ("navix/Empty", {}, "'Empty' is none of Navix's. .*Navix-Empty-5x5-v0"),
    (NAVIX, {"size": 3}, r"were \['size'\], which it does not take"),
    (NAVIX, {"observation_fn": "pixels"}, "one of .*, symbolic, .*got 'pixels'"),
    ("xminigrid/Empty", {}, "none of XLand-MiniGrid's. .*MiniGrid-Empty-5x5"),
    (XMINIGRID, {"size": 3}, r"\['size'\], which it does not"),
    (XMINIGRID, {"benchmark": "small-1m"}, r"\['benchmark'\], which it does not"),
    ("xminigrid/XLand-MiniGrid-R1-9x9", {"benchmark": "x"}, "one of .*small-1m"),
    ("pgx/breakout", {}, "none of Pgx's. Did you mean 'minatar-breakout"),
    ("pgx/go_9x9", {}, "a game of 2 players, .*choose a game of MinAtar, or 2048"),
    (PGX, {"sticky": 0.0}, r"\['sticky'\], which it does not"),
    ("jumanji/Snak-v1", {}, "none of Jumanji's. Did you mean 'Snake-v1"),
    ("jumanji/Snake-v1", {"size": 3}, r"\['size'\], which it does not"),
    ("popjym/RepeatFirst", {}, "none of POPJym's. Did you mean 'RepeatFirst"),
    ("popjym/RepeatFirstEasy", {"k": 3}, r"were \['k'\], which it does not take"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "options", "sentence"), NOT_THERE)
def test_what_is_not_there_is_said(suite, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(suite, **options)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [CRAFTAX, PLAYGROUND])
def test_the_time_limit_truncates_and_resets_are_fresh(suite):
    env = make(suite)
    params = env.default_params.replace(max_steps_in_episode=LIMIT)
    run = jax.jit(lambda params: played(env, params, KEY, 2 * LIMIT + 1)[1])
    steps = jax.tree.map(np.asarray, run(params)._replace(state=(), info=()))
    _, obs, final, _, reward, terminated, truncated, _ = steps
    assert not terminated.any() and np.isfinite(reward).all()
    np.testing.assert_array_equal(np.flatnonzero(truncated) + 1, [LIMIT, 2 * LIMIT])
    np.testing.assert_array_equal(obs[~truncated], final[~truncated])
    first, second = np.flatnonzero(truncated)
    assert (obs[first] != final[first]).any() and (obs[first] != obs[second]).any()


def assert_ends_are_told_apart(step, params, going_on, over):
    """From a state and by an action that go on, and from such that end an episode."""
    for limit in (100, 1):
        changed = params.replace(max_steps_in_episode=limit)
        *_, terminated, truncated, _ = step(KEY, *going_on, changed)
        assert (terminated, truncated) == (False, limit == 1)
        *_, terminated, truncated, _ = step(KEY, *over, changed)
        assert (terminated, truncated) == (True, False)


@pytest.mark.slow
def test_death_terminates_also_on_the_last_step():
    """Craftax says `done` at death and at the limit; here they are two flags."""
    env = make(CRAFTAX)
    params = env.default_params
    _, state = env.reset(KEY, params)
    dying = state.replace(inner=state.inner.replace(player_health=jnp.int32(-100)))
    step = jax.jit(env.step)
    assert_ends_are_told_apart(step, params, (state, 0), (dying, 0))
    bare = env.wrapped.step_env(KEY, dying.inner, 0, env._endless(params))
    final = step(KEY, dying, 0, params)[5]["final_observation"]
    np.testing.assert_array_equal(final, bare[0])


@pytest.mark.slow(optimised=False)
def test_equals_bare_playground():
    env = make(PLAYGROUND)
    actions = jnp.linspace(-1, 1, 3)[:, None]

    def ours():
        _, state = env.reset_env(KEY, env.default_params)

        def body(state, action):
            obs, state, reward, _, _ = env.step_env(KEY, state, action, None)
            return state, (obs, reward)

        return jax.lax.scan(body, state, actions)[1]

    def theirs():
        def body(state, action):
            state = env.wrapped.step(state, action)
            return state, (state.obs, state.reward)

        return jax.lax.scan(body, env.wrapped.reset(KEY), actions)[1]

    with jax.numpy_rank_promotion("allow"):
        found, bare = jax.jit(ours)(), jax.jit(theirs)()
    chex.assert_trees_all_close(found, bare, rtol=1e-6, atol=1e-7)


KEPT = [f"jumanji/{name}" for name in ("Snake-v1", "Tetris-v0", "Connector-v3")]
KEPT += ["navix/Navix-Dynamic-Obstacles-5x5-v0", "navix/Navix-DoorKey-5x5-v0"]
KEPT += ["xminigrid/MiniGrid-MemoryS8", "xminigrid/XLand-MiniGrid-R1-9x9"]
KEPT += [PGX, "pgx/2048", "popjym/RepeatPreviousEasy", "popjym/StatelessCartPoleEasy"]


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("suite", KEPT)
def test_the_contract_is_kept(suite):
    envs.check(make(suite))


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize(
    ("suite", "actions", "reward"),
    # Two cells forward, a turn to the right, two cells forward: there is the goal.
    [
        (NAVIX, [2, 2, 1, 2, 2], lambda limit: 1.0),
        (XMINIGRID, [0, 0, 1, 0, 0], lambda limit: 1.0 - 0.9 * 5 / limit),
    ],
)
def test_the_goal_of_a_grid_terminates_also_on_the_last_step(suite, actions, reward):
    env = make(suite)
    step = jax.jit(env.step)
    for limit in (100, 5, 4):
        params = env.default_params.replace(max_steps_in_episode=limit)
        first, state = env.reset(KEY, params)
        for time, action in enumerate(actions[:limit], 1):
            obs, state, paid, *flags, _ = step(KEY, state, jnp.int32(action), params)
            assert flags == [time == 5, time == limit == 4]
        assert float(paid) == pytest.approx(reward(limit) if limit > 4 else 0.0)
        np.testing.assert_array_equal(obs, first)  # The next episode's first one.
    assert env.render(state, params).shape[-1] == 3
    # Their classes say nothing of themselves.
    assert envs.describe(suite).summary.endswith("under this package's contract.")


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("name", ["minatar-breakout", "2048"])
def test_games_are_those_of_pgx(name):
    env, bare = make(f"pgx/{name}"), pytest.importorskip("pgx").make(name)
    params = env.default_params

    def body(carry, key):
        state, inner = carry
        action = jnp.argmax(inner.legal_action_mask[::-1])
        action = len(inner.legal_action_mask) - 1 - action  # The last that is valid.
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        inner = bare.step(inner, action, key)
        seen = obs if name == "2048" else {"observation": obs}
        shown = {"observation": "observation", "action_mask": "legal_action_mask"}
        ours = *seen.values(), reward, terminated
        theirs = [getattr(inner, shown[part]) for part in seen]
        return (state, inner), (ours, (*theirs, inner.rewards[0], inner.terminated))

    def play(key):
        carry = env.reset_env(key, params)[1], bare.init(key)
        return jax.lax.scan(body, carry, jax.random.split(key, 20))[1]

    ours, theirs = jax.jit(play)(KEY)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    *_, rewards, terminated = ours
    # The paddle goes right and misses the ball; in 2048 there is something to merge.
    assert rewards.any() if name == "2048" else terminated.any()


@pytest.mark.slow(optimised=False)
def test_memory_tasks_of_popjym_end():
    cards = make("popjym/RepeatFirstEasy")
    params = cards.default_params
    play = jax.jit(lambda actions: played(cards, params, KEY, 52, actions))
    (first, _), _ = play(jnp.zeros(52, int))
    _, steps = play(jnp.full(52, jnp.argmax(first)))  # Always the first card's suit.
    assert float(steps.reward.sum()) == pytest.approx(52 / 51, rel=1e-5)
    assert np.flatnonzero(steps.terminated).tolist() == [51]
    assert not steps.truncated.any()
    pole = make("popjym/StatelessCartPoleEasy")
    assert pole.default_params.max_steps_in_episode == 200


@pytest.mark.slow(optimised=False)
def test_rulesets_of_a_benchmark_are_levels(monkeypatch):
    xminigrid = pytest.importorskip("xminigrid")
    from xminigrid.benchmarks import Benchmark

    codes = np.random.default_rng(0).integers(0, 9, (2, 40)).astype(np.uint8)
    goals, rules, tiles = codes[:, :5], codes[:, 5:19], codes[:, 19:25]
    made = Benchmark(goals, rules.reshape(2, 2, 7), tiles.reshape(2, 3, 2), np.ones(2))
    made = jax.tree.map(jnp.asarray, made)
    monkeypatch.setattr(xminigrid, "load_benchmark", lambda name: made)
    grid, options = "xminigrid/XLand-MiniGrid-R1-9x9", {"benchmark": "small-1m"}
    env = make(grid, **options)
    params = env.default_params
    np.testing.assert_array_equal(params.goal, goals[0])
    levels = jax.vmap(env.draw_level, (0, None))(jax.random.split(KEY, 8), params)
    assert {tuple(goal) for goal in levels.goal.tolist()} == set(map(tuple, goals))
    _, states = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 8), levels)
    np.testing.assert_array_equal(states.inner.state.rule_encoding, levels.rules)
    assert not make(grid).has_levels
    no_route = Mock(side_effect=OSError("no route to host"))
    monkeypatch.setattr(xminigrid, "load_benchmark", no_route)
    with pytest.raises(ValueError, match="'small-1m' is downloaded from Hugging Face"):
        make(grid, **options)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [CRAFTAX, PLAYGROUND, NAVIX, PGX])
def test_a_run_is_saved_and_goes_on_to_the_same_end(suite, tmp_path):
    pytest.importorskip(SUITES[suite.split("/")[0]])
    # Playground's state has arrays without elements: the contacts of a pole.
    options = {"impl": "jax"} if suite == PLAYGROUND else {}
    plan = {"total_timesteps": 64, "num_steps": 8, "anneal_learning_rate": False}
    config = tiny_config(env=suite, env_kwargs=options, num_evaluations=0, **plan)
    said = {"seeds": 2, "lanes": 2, "progress": False}
    whole = purerl.run(config, **said)
    out = tmp_path / "run"
    purerl.run(config.replace(total_timesteps=32), **said, out=out)
    found = purerl.run(config, **said, out=out, resume=True, extend=True)
    assert_same_bits(found.state, whole.state)
