"""Runs that tune themselves: what they do is what their parts do, one after another."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl.config import ConfigError
from tests.helpers import assert_close, assert_same_bits
from tests.metagradient.configs import VPG

CONFIG = VPG.replace(
    total_timesteps=64 * 7,
    critic_iterations=1,
    num_evaluations=1,
    eval_episodes=2,
    eval_max_steps=20,
)
NAMES = ("gamma", "entropy_coef")


def step_size(count):
    """The third meta-gradient moves nothing."""
    return jnp.where(count < 2, 0.1, 0.0)


def test_it_is_a_loop_of_updates_and_steps_of_adam(key):
    # Seven updates: three rounds of two, and one that is left.
    options = {"every": 2, "meta_learning_rate": step_size}
    result = jax.jit(purerl.self_tune(CONFIG, NAMES, **options))(key)
    parts = purerl.meta_gradient(CONFIG, NAMES)
    meta = jax.jit(parts)
    plain = jax.jit(lambda state, values: parts.algorithm(values).step(state)[0])
    state = jax.jit(purerl.make_algorithm(CONFIG).init)(key)
    optim = optax.adam(step_size)
    values = parts.start()
    opt_state, rows = optim.init(values), []
    for _ in range(3):
        state = plain(state, values)
        rows.append(int(state.update))
        found = meta(state, values)
        state = found.state
        steps, opt_state = optim.update(found.gradient, opt_state)
        values = optax.apply_updates(values, steps)
    state = plain(state, values)

    assert result.course["update"].tolist() == rows == [1, 3, 5]
    tuned = parts.overrides(values)
    for name in NAMES:
        np.testing.assert_allclose(result.overrides[name], tuned[name], rtol=1e-4)
        assert abs(result.overrides[name] / getattr(CONFIG, name) - 1) > 1e-3
    gammas = result.course["gamma"]
    np.testing.assert_allclose(gammas[0], CONFIG.gamma, rtol=1e-6)
    np.testing.assert_array_equal(gammas[2], result.overrides["gamma"])
    assert result.metrics["env_steps"].tolist() == [64 * (u + 1) for u in range(7)]
    assert_close(result.state.params, state.params, rtol=1e-3, atol=1e-5)
    assert result.evaluation["episode_return"].shape == (1, 2)


@pytest.mark.slow(optimised=False)
def test_seeds_are_each_alone():
    keys = jax.random.split(jax.random.key(3), 2)
    many = jax.jit(jax.vmap(purerl.self_tune(CONFIG, NAMES, every=2)))(keys)
    assert many.course["gamma"].shape == (2, 3)
    assert float(many.overrides["gamma"][0]) != float(many.overrides["gamma"][1])
    blocks = purerl.pmap(purerl.self_tune(CONFIG, NAMES, every=2), lanes=2)(keys)
    assert_same_bits(blocks.overrides, many.overrides)


@pytest.mark.slow(optimised=False)
def test_overrides_are_the_numbers_of_a_config(key):
    """In updates, outer loss and evaluation, of which none is tuned by them."""
    numbers = {"learning_rate": 2e-3, "env_params.length": 0.9}
    config = CONFIG.replace(learning_rate=2e-3, env_params={"length": 0.9})
    options = {"every": 2, "meta_learning_rate": 0.1}
    found = jax.jit(purerl.self_tune(CONFIG, "gamma", **options))(key, numbers)
    wanted = jax.jit(purerl.self_tune(config, "gamma", **options))(key)
    assert list(found.overrides) == ["gamma"]
    for name in ("metrics", "evaluation", "overrides", "course"):
        one, other = (getattr(x, name) for x in (found, wanted))
        assert_close(one, other, rtol=1e-3, atol=1e-5)
    moved = jax.tree.map(lambda x: x[1], found.course)
    assert moved["gamma"] != pytest.approx(CONFIG.gamma, rel=1e-3)


@pytest.mark.slow(optimised=False)
def test_a_meta_gradient_that_is_not_finite_moves_nothing(key):
    def nothing(parts, state, rollout):
        return jnp.sqrt(0.0 * sum(x.sum() for x in jax.tree.leaves(state.params)))

    train = purerl.self_tune(CONFIG, "gamma", objective=nothing)
    result = jax.jit(train)(key)
    assert not np.isfinite(result.course["gradient_norm"]).any()
    np.testing.assert_allclose(result.course["gamma"], CONFIG.gamma, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unroll": 3, "every": 2}, r"every must be at least unroll \(3\)"),
        ({"every": 8}, r"at most the updates of the run \(7\), got 8"),
        (
            {"meta_learning_rate": purerl.schedules.Linear(0.1)},
            "meta_learning_rate must be greater than 0, or a function",
        ),
        (
            {"tune": "env_params.length"},
            "^tune: the meta-gradient of env_params.length",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        purerl.self_tune(CONFIG, **{"tune": NAMES, **options})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"gamma": 0.5}, "gamma, .* are the same numbers; give them in the config"),
        ({"env_params.max_steps_in_episode": 999}, "are planned for 500"),
    ],
)
def test_overrides_that_cannot_be_are_refused(overrides, words):
    train = purerl.self_tune(CONFIG.replace(eval_max_steps=0), NAMES)
    with pytest.raises(ConfigError, match=words):
        train(jax.random.key(0), overrides)
