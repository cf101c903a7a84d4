"""Rollouts against a plain Python loop over the same environments and keys."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from purerl import envs
from purerl.acting import rollout
from purerl.acting.environment import bind_params
from purerl.acting.rollout import Stepper
from purerl.envs.wrappers import RandomisedOnce, RepeatedLevels
from purerl.randomisation import Uniform
from tests.helpers import slow_but

STEPS, ENVS = 30, 3


class ResetsItself(envs.CartPole):
    """CartPole as a foreign environment: only its own `step` may begin episodes."""

    def step(self, key, state, action, params=None):
        return super().step(key, state, action, params)


def cartpole(reset_scheme="fresh", pool=4, axis_name=None, kind=envs.CartPole):
    """A CartPole whose episodes last some eight steps, or ten by the limit."""
    env = kind()
    params = env.default_params.replace(
        theta_threshold_radians=0.1, max_steps_in_episode=10
    )
    return Stepper(env, params, reset_scheme, pool, axis_name)


def chain(reset_scheme="fresh", pool=8, limit=1):
    env = envs.probe.ChainMDP(length=4)
    params = env.default_params.replace(max_steps_in_episode=limit)
    return Stepper(env, params, reset_scheme, pool, None)


def act(obs, memory, keys):
    """A coin per environment; what is stored and what the environment gets differ."""
    coin = jax.vmap(lambda k: jax.random.bernoulli(k).astype(jnp.int32))(keys)
    return (10 + coin, 0.5 * obs[:, 0], coin), memory


def policy(prepare):
    return rollout.Player(act, prepare, jax.random.split)


def collect(stepper, key, steps=STEPS, num_envs=ENVS):
    @jax.jit
    def program(key):
        key_init, key_roll = jax.random.split(key)
        carry = rollout.init_envs(stepper, key_init, num_envs)
        doubled = policy(lambda obs: 2.0 * obs)
        played = rollout.collect(stepper, carry, (), doubled, key_roll, steps)
        metrics = rollout.episode_metrics(played.episodes, None)
        return carry, played.envs, played.transitions, metrics

    return program(key)


def python_loop(stepper, key, steps=STEPS, num_envs=ENVS):
    """What `collect` promises, one environment and one step at a time."""
    key_init, key_roll = jax.random.split(key)
    key_act, key_env, _ = jax.random.split(key_roll, 3)
    reset = jax.random.split(key_init, num_envs)
    keys_act = jax.random.split(key_act, (steps, num_envs))
    keys_env = jax.random.split(key_env, (steps, num_envs))
    env, params = stepper.env, stepper.params
    coins = jax.vmap(jax.vmap(jax.random.bernoulli))(keys_act).astype(jnp.int32)
    start, step = jax.jit(env.reset), jax.jit(env.step)
    rows, episodes = [], []
    for b in range(num_envs):
        obs, state = start(reset[b], params)
        rewards = []
        for t in range(steps):
            coin = coins[t, b]
            after, state, reward, *flags, info = step(
                keys_env[t, b], state, coin, params
            )
            final = info["final_observation"]
            rows.append((t, b, obs, coin, reward, final, *flags))
            rewards.append(float(reward))
            if any(flags):
                episodes.append((sum(rewards), len(rewards)))
                rewards = []
            obs = after
    return rows, episodes


@pytest.fixture(scope="module", params=[envs.CartPole, ResetsItself])
def fresh(request):
    stepper, key = cartpole(kind=request.param), jax.random.key(0)
    is_own = request.param is ResetsItself
    assert stepper.env.resets_by_itself == is_own
    return collect(stepper, key), python_loop(stepper, key)


def test_transitions_equal_a_python_loop(fresh):
    (_, _, batch, _), (rows, _) = fresh
    batch = jax.tree.map(np.asarray, batch)
    for t, b, obs, coin, reward, final, terminated, truncated in rows:
        np.testing.assert_allclose(batch.obs[t, b], obs, atol=1e-6)
        # Stored raw and prepared, that is doubled, for the policy.
        np.testing.assert_allclose(batch.log_prob[t, b], obs[0], atol=1e-6)
        np.testing.assert_allclose(batch.next_obs[t, b], final, atol=1e-6)
        assert batch.action[t, b] == 10 + coin  # the raw action is stored
        assert batch.reward[t, b] == reward
        assert batch.terminated[t, b] == terminated
        assert batch.truncated[t, b] == truncated


def test_episode_statistics_equal_a_python_loop(fresh):
    (_, _, _, metrics), (_, episodes) = fresh
    assert metrics["episodes"] == len(episodes) > 5
    returns, lengths = np.mean(episodes, axis=0)
    np.testing.assert_allclose(metrics["episode_return"], returns, rtol=1e-6)
    np.testing.assert_allclose(metrics["episode_length"], lengths, rtol=1e-6)


def test_statistics_are_nan_when_no_episode_ended():
    _, _, batch, metrics = collect(cartpole(), jax.random.key(0), steps=2)
    assert not (batch.terminated | batch.truncated).any()
    assert metrics["episodes"] == 0
    assert jnp.isnan(metrics["episode_return"]) and jnp.isnan(metrics["episode_length"])


@pytest.mark.parametrize("scheme", slow_but(["fresh", "pool"], "pool"))
def test_the_flags_exclude_each_other_and_termination_wins(scheme):
    # Limit 1: every step ends an episode, and leaving the last of the four positions
    # terminates in the same step.
    _, _, batch, _ = collect(chain(scheme), jax.random.key(0), steps=40)
    assert (batch.terminated ^ batch.truncated).all()
    leaving = batch.obs[..., 3] == 1
    np.testing.assert_array_equal(batch.terminated, leaving)
    assert 0 < leaving.sum() < leaving.size


def test_a_foreign_environment_that_sets_both_flags_is_corrected():
    class Both(envs.probe.ConstantRewardProbe):
        def step(self, key, state, action, params=None):
            obs, state, reward, _, _, info = super().step(key, state, action, params)
            return obs, state, reward, jnp.bool_(True), jnp.bool_(True), info

    env = Both()
    stepper = Stepper(env, env.default_params, "fresh", 1, None)
    _, _, batch, _ = collect(stepper, jax.random.key(0), steps=2)
    assert batch.terminated.all() and not batch.truncated.any()


def test_a_pool_has_the_starts_and_keeps_the_observation_before_the_reset():
    stepper, key = cartpole("pool", pool=4), jax.random.key(0)
    _, carry, batch, _ = collect(stepper, key, steps=100)
    done = np.asarray(batch.terminated | batch.truncated)
    after = np.concatenate([batch.obs[1:], carry.obs[None]])
    same = (np.asarray(batch.next_obs) == after).all(-1)
    np.testing.assert_array_equal(same, ~done)
    angle = np.abs(np.asarray(batch.next_obs[..., 2]))
    np.testing.assert_array_equal(angle > 0.1, np.asarray(batch.terminated))
    # What follows an end is a member of the pool, and every member is used.
    key_pool = jax.random.split(jax.random.split(key)[1], 3)[2]
    pool = np.asarray(rollout.draw_pool(stepper, key_pool)[0])
    away = np.abs(after[done][:, None] - pool[None]).max(-1)
    assert away.min(-1).max() < 1e-6
    assert set(away.argmin(-1)) == {0, 1, 2, 3}


@pytest.mark.parametrize("scheme", slow_but(["fresh", "pool"], "pool"))
def test_over_rollouts_starts_have_the_environments_distribution(scheme):
    # The chain starts uniformly on its four positions. One start per rollout, since
    # starts that share a pool are not independent.
    stepper = chain(scheme, pool=3)

    @jax.jit
    @jax.vmap
    def start(key):
        key_init, key_roll = jax.random.split(key)
        carry = rollout.init_envs(stepper, key_init, 1)
        played = rollout.collect(stepper, carry, (), policy(lambda x: x), key_roll, 1)
        return jnp.argmax(played.envs.obs[0])

    positions = start(jax.random.split(jax.random.key(0), 4000))
    counts = np.bincount(positions, minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-3


@dataclasses.dataclass(unsafe_hash=True)
class Breaks(envs.Wrapper):
    """An environment of which every third step breaks."""

    def step_env(self, key, state, action, params):
        obs, state, reward, *rest = self.env.step_env(key, state, action, params)
        return obs, state, jnp.where(state.time == 3, jnp.nan, reward), *rest


@pytest.mark.parametrize("kind", ["drawn", "level"])
def test_what_an_environment_has_for_good_outlasts_a_bad_transition(kind):
    if kind == "drawn":
        env = RandomisedOnce(Breaks(envs.CartPole()))
        params = bind_params(env, {"length": Uniform(0.1, 1.0)})
    else:
        env = RepeatedLevels(Breaks(envs.Maze(size=(5, 5))))
        params = env.default_params
    stepper = Stepper(env, params, "fresh", 1, None)
    before, after, *_ = collect(stepper, jax.random.key(0), steps=7)
    np.testing.assert_array_equal(after.bad, [2] * ENVS)
    np.testing.assert_array_equal(after.state.time, [1] * ENVS)
    one, other = (jax.tree.leaves(getattr(x.state, kind)) for x in (before, after))
    for mine, same in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, same)
