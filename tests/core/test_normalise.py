"""Running statistics against numpy over everything that was seen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import ConfigError, envs
from purerl.acting.environment import resolve_env
from purerl.algorithms import on_policy, policy_gradient, ppo
from purerl.learning import averages
from purerl.learning.averages import RewardScale, init_moments, merge
from purerl.networks import observe
from tests.helpers import slow_but, tiny_config

scale_rewards = partial(averages.scale_rewards, gamma=0.5, clip=10.0, axis_name=None)


def batches(shape, sizes=(5, 1, 40, 7), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(3.0 * i, 1.0 + i, (n, *shape)) for i, n in enumerate(sizes)]


@pytest.mark.parametrize("shape", slow_but([(), (3,), (2, 2)], (3,)))
def test_merging_batches_equals_numpy_over_all_of_them(shape):
    parts = batches(shape)
    moments = init_moments(shape)
    for part in parts:
        moments = merge(moments, jnp.asarray(part, jnp.float32))
    whole = np.concatenate(parts)
    assert moments.count == len(whole)
    np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.var, whole.var(0), rtol=1e-5)


@pytest.mark.parametrize("first", [0, 2**24])
def test_statistics_follow_what_moves_slowly_one_sample_at_a_time(first):
    """A step of the mean is less than the float32 beside it holds: 300 and 1e-6."""
    num, start = 300_000, jnp.float32(300.0)
    rng = np.random.default_rng(0)
    drifting = 300.0 + np.linspace(0.0, 6.0, num) + rng.normal(size=num)
    data = drifting.astype(np.float32)
    known = init_moments()._replace(count=jnp.float32(first), mean=start)

    @jax.jit
    def follow(data):
        return jax.lax.scan(lambda m, x: (merge(m, x), None), known, data)[0]

    moments = follow(jnp.asarray(data))
    # The known samples have the mean 300 and the variance one.
    offsets = data.astype(np.float64) - 300.0
    mean = offsets.sum() / (first + num)
    square = (first + np.square(offsets).sum()) / (first + num)
    count = float(moments.count) + float(moments.count_rest)
    assert count == first + num
    found = float(moments.mean) - 300.0 + float(moments.mean_rest)
    np.testing.assert_allclose(found, mean, rtol=1e-3)
    found = float(moments.var) + float(moments.var_rest)
    np.testing.assert_allclose(found, square - mean**2, rtol=1e-3)


@pytest.mark.parametrize("shape", [(256,), (300,), (7,), (3, 100)])
def test_a_constant_is_normalised_to_nothing(shape):
    """The float32 average of 256 times 1000.1 is 1000.0997: 0.95 where 0 is right."""
    spread = jax.vmap(lambda m, x: merge(m, x, "devices"), (None, 0), 0, "devices")

    @jax.jit
    def seen_often(constant):
        batch = jnp.full(shape, constant)

        def once_more(moments, _):
            if len(shape) == 1:
                return merge(moments, batch), None
            return jax.tree.map(lambda x: x[0], spread(moments, batch)), None

        moments = jax.lax.scan(once_more, init_moments(), length=100)[0]
        seen = jnp.clip(constant, -1e15, 1e15)
        return averages.normalise(moments, seen, 10.0), jnp.sqrt(moments.var)

    for value in (1000.1, 1e5 + 0.1, -0.1, 3.4e38):
        normalised, std = seen_often(jnp.float32(value))
        np.testing.assert_allclose(normalised, 0.0, atol=1e-3, err_msg=str(value))
        np.testing.assert_allclose(std, 0.0, atol=1e-5, err_msg=str(value))


def test_finite_numbers_never_make_statistics_infinite():
    """Squares of 1e19 are none; float32's largest number often means "nothing seen"."""
    big = np.finfo(np.float32).max
    batches = jnp.array([[1.0, big, 2.0, -big], [1e19, 3.0, -1e19, 5.0]])
    moments = init_moments()
    scale = RewardScale(init_moments(), jnp.zeros(1))
    for batch in (*batches, *batches):
        moments = merge(moments, batch)
        scale, scaled = scale_rewards(scale, batch[:, None], jnp.ones((4, 1), bool))
        assert all(np.isfinite(x) for x in moments) and jnp.isfinite(scaled).all()
    seen = averages.normalise(moments, jnp.array([1.0, big, -big, 0.0]), 10.0)
    np.testing.assert_allclose(seen, [0.0, 10.0, -10.0, 0.0], atol=1e-3)


def test_normalising_is_standardising_and_clipping():
    moments = init_moments((2,))._replace(
        mean=jnp.array([1.0, 0.0]), var=jnp.array([4.0, 1.0])
    )
    x = jnp.array([[3.0, 0.5], [1.0, 11.0], [1.0, -99.0]])
    np.testing.assert_allclose(
        averages.normalise(moments, x, 10.0), [[1.0, 0.5], [0.0, 10.0], [0.0, -10.0]]
    )
    # Before anything was seen it does nothing.
    same = averages.normalise(init_moments((2,)), x, 100.0)
    np.testing.assert_allclose(same, x, rtol=1e-6)


def test_rewards_are_divided_by_the_std_of_returns_and_not_centred():
    # gamma = 1/2, one environment: returns 2, 1 + 2 = 3, then (ended) 6.
    # Mean 11/3, variance (4 + 9 + 36)/3 - (11/3)^2 = 49/3 - 121/9 = 26/9.
    scale = RewardScale(init_moments(), jnp.zeros(1))
    reward = jnp.array([[2.0], [2.0], [6.0]])
    done = jnp.array([[False], [True], [False]])
    after, scaled = scale_rewards(scale, reward, done)
    np.testing.assert_allclose(scaled, reward / np.sqrt(26 / 9), rtol=1e-5)
    np.testing.assert_allclose(after.running, [6.0])
    np.testing.assert_allclose(after.moments.mean, 11 / 3, rtol=1e-6)
    np.testing.assert_allclose(after.moments.var, 26 / 9, rtol=1e-5)


NORMALISED = {"normalize_observations": True, "normalize_rewards": True}


@pytest.fixture(scope="module")
def normalising():
    """Moments and metrics of three updates of PPO with a step size of nothing."""
    # Short episodes, so that there is an evaluation after every update.
    steps = {"total_timesteps": 3 * 32, "eval_max_steps": 8}
    config = tiny_config(learning_rate=1e-30, **steps, **NORMALISED)
    train = purerl.make_train(
        config, observe=lambda state: (state.obs_moments, state.reward_scale.moments)
    )
    result = jax.jit(train)(jax.random.key(0))
    return result.observed, result.metrics


@pytest.mark.slow(optimised=False)
def test_statistics_are_frozen_while_a_rollout_is_collected_and_learned(normalising):
    # The networks do not move, so any divergence would come from normalising the same
    # observation in two ways.
    (seen, _), metrics = normalising
    assert np.abs(seen.var[0] - 1).max() > 0.1
    assert (np.abs(metrics["approx_kl"]) < 1e-9).all()
    assert not metrics["clip_fraction"].any()


def test_every_rollout_is_merged_into_the_statistics_once(normalising):
    for moments in normalising[0]:
        np.testing.assert_array_equal(moments.count, [32, 64, 96])


def test_reported_returns_are_those_of_unscaled_rewards(normalising):
    # CartPole pays 1 per step: return and length of an episode are the same number.
    _, metrics = normalising
    assert metrics["episodes"].sum() > 0
    np.testing.assert_array_equal(metrics["episode_return"], metrics["episode_length"])


@pytest.mark.slow
def test_the_clips_are_fields_and_reach_what_is_learned_from():
    """Values 3 and -3 of a critic that says what it sees; rewards of 8 at scale 1."""
    clips = {"clip_observations": 0.5, "clip_rewards": 0.25}
    config = tiny_config(env="probe/continuous", num_steps=8, **NORMALISED, **clips)
    env = resolve_env(config)
    parts = policy_gradient.make_agent(config, env)
    moments = averages.init_moments((1,))
    seen = observe.prepare(parts, moments, jnp.array([[3.0], [-3.0], [0.1]]))
    np.testing.assert_allclose(seen, [[0.5], [-0.5], [0.1]], rtol=1e-6)

    state = on_policy.algorithm(parts, ppo.learn).init(jax.random.key(0))
    played = on_policy.collect(parts, state, jax.random.key(1))
    estimates, _ = policy_gradient.estimate(parts, state, played)
    scaled = np.abs(np.asarray(estimates.reward))
    assert scaled.max() == 0.25 and (scaled == 0.25).mean() > 0.2
    for name in clips:
        with pytest.raises(ConfigError, match=f"{name} must be greater than 0"):
            purerl.make_train(config.replace(**{name: 0.0}))


PICTURE = envs.spaces.Box(0, 255, (2, 2, 1), np.uint8)
UNSCALED = {
    "picture": PICTURE,
    "choice": envs.spaces.Discrete(5),
    "choices": envs.spaces.MultiDiscrete((2, 3)),
    "bits": envs.spaces.MultiBinary(3),
}


@pytest.mark.parametrize("name", UNSCALED)
def test_what_lies_between_0_and_1_stays_alone_as_in_a_composite(name):
    space = UNSCALED[name]
    obs = jax.vmap(space.sample)(jax.random.split(jax.random.key(0), 7))
    features = observe.to_features(space, obs)
    moments = observe.init_moments(space)
    moments = observe.merge_moments(space, moments, features, None)
    assert moments == ()
    alone = observe.normalised(space, moments, features, 10.0)
    np.testing.assert_array_equal(alone, features)
    both = envs.spaces.Dict({"x": space})
    assert observe.init_moments(both) == ((),)
