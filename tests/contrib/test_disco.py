"""DiscoRL's agent: its gradient against the authors' agent, its buffer, its step."""

from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import optimisers
from purerl.acting.environment import resolve_env
from purerl.acting.rollout import Transition
from purerl.config import ConfigError
from purerl.contrib.disco import algorithm as disco
from purerl.learning import optimiser
from purerl.rules import DiscoRule
from tests.contrib import disco_case as known
from tests.helpers import assert_close, plain

TINY = {
    "env": "Catch-bsuite",
    "env_kwargs": {"rows": 4, "columns": 3},
    "num_envs": 2,
    "num_steps": 5,
    "buffer_size": 3 * 2 * 5,
    "batch_size": 3,
    "learning_starts": 2 * 2 * 5,
    "total_timesteps": 6 * 2 * 5,
    "hidden_sizes": (4,),
    "model_size": 3,
    "head_sizes": (3,),
    "num_bins": 5,
    "num_evaluations": 0,
}
RULE = DiscoRule.make(
    hidden_size=3, lifetime_size=2, prediction_size=4, units=2, embedding_size=1
)


def tiny(**changes):
    return purerl.DiscoConfig(**{**TINY, **changes})


def bound(config):
    resolved: Any = purerl.resolve(config)
    return disco.build(resolved, resolve_env(resolved))


def single(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


# The gradient, against the authors' agent.


@pytest.fixture(scope="module")
def from_authors(disco_file):
    """Parts, learner and batch of the reference."""
    parts = bound(
        tiny(
            env_kwargs={"rows": 2, "columns": 2},
            rule=DiscoRule.load(disco_file),
            hidden_sizes=known.LAYERS,
            model_size=known.MODEL,
            head_sizes=(known.HEAD,),
            num_bins=known.BINS,
            max_abs_value=known.TOP,
            gamma=known.GAMMA,
            trace_decay=known.TRACE_DECAY,
        )
    )
    played = known.played()
    obs = played.obs.reshape(*played.obs.shape[:2], 2, 2)
    terminated = jnp.asarray(played.discount[1:] == 0)
    batch = Transition(
        obs=single(obs[:-1]),
        action=jnp.asarray(played.action[:-1]),
        log_prob=single(played.behaviour[:-1]),
        reward=single(played.reward[1:]),
        next_obs=single(obs[1:]),
        terminated=terminated,
        truncated=jnp.zeros_like(terminated),
    )
    learner = disco.Learner(
        params=single(known.in_flax(known.network(0), forget=1.0)),
        target_params=single(known.in_flax(known.network(1), forget=1.0)),
        opt_state=(),
        rule_memory=parts.config.rule.init(),
        advantage_moments=disco.init_moments(),
    )
    return parts, learner, batch


def test_loss_and_gradient_are_those_of_the_authors_agent(from_authors, reference):
    parts, learner, batch = from_authors

    @jax.jit
    def differentiate(params):
        def loss(params):
            return disco.loss(parts, learner, params, batch)

        return jax.value_and_grad(loss, has_aux=True)(params)

    (loss, _), grads = differentiate(learner.params)
    np.testing.assert_allclose(loss, reference["agent/loss"], rtol=2e-5)
    layers = (*known.NETWORK.values(), known.MODEL_LAYER)
    expected = known.in_flax(
        {n: tuple(reference[f"agent/{n}/{k}"] for k in "wb") for n in layers}
    )
    assert_close(grads, expected, rtol=2e-3, atol=1e-5)
    assert min(np.abs(x).max() for x in jax.tree.leaves(expected)) > 1e-3


# The update.


@pytest.fixture(scope="module")
def updates():
    """Parts, states and metrics of a tiny agent with a random network as its rule."""
    config = tiny(rule=RULE)
    algorithm = purerl.make_algorithm(config)
    step = jax.jit(algorithm.step)
    states, metrics = [jax.jit(algorithm.init)(jax.random.key(0))], []
    for _ in range(6):
        state, metric = step(states[-1])
        states.append(state)
        metrics.append(metric)
    return bound(config), states, metrics


def test_nothing_is_learned_before_the_buffer_holds_enough(updates):
    _, states, metrics = updates
    counts = [int(m["gradient_steps"]) for m in metrics]
    assert counts == [0, 1, 2, 3, 4, 5]
    moved = [
        any((a != b).any() for a, b in zip(*map(jax.tree.leaves, pair), strict=True))
        for pair in pairwise(state.params for state in states)
    ]
    assert moved == [False] + [True] * 5
    assert np.isnan(metrics[0]["policy_loss"]) and np.isfinite(
        metrics[1]["policy_loss"]
    )


def test_the_buffer_has_the_last_trajectories_with_observations_before_resets(updates):
    parts, states, _ = updates
    # Three rows of two environments: after four updates the first is overwritten.
    before, after = jax.tree.map(np.asarray, (states[3].buffer, states[4].buffer))
    assert after.reward.shape == (3, 2, 5)
    np.testing.assert_array_equal(before.obs[1:], after.obs[1:])
    assert (before.action[0] != after.action[0]).any()
    obs, next_obs, terminated = after.obs, after.next_obs, after.terminated
    within, ended = ~terminated[:, :, :-1], terminated[:, :, :-1]
    np.testing.assert_array_equal(obs[:, :, 1:][within], next_obs[:, :, :-1][within])
    # A new ball is in the first row, and the last one was in the last row.
    assert ended.any() and (obs[:, :, 1:][ended][:, 0].sum(-1) >= 1).all()
    assert (next_obs[:, :, :-1][ended][:, 0].sum(-1) == 0).all()
    # What acted is what is stored beside it.
    predict = jax.jit(partial(disco.predict, parts))
    made = predict(states[3].params, after.obs[0].astype(jnp.float32))
    np.testing.assert_allclose(after.log_prob[0], made.logits, atol=1e-5)


def test_the_rule_remembers_and_the_target_follows_the_network_before(updates):
    _, states, _ = updates
    hidden = [np.asarray(state.rule_memory.hidden) for state in states]
    assert (hidden[1] == 0).all() and (hidden[2] != hidden[3]).any()
    given = plain((states[3].target_params, states[3].params))
    expected = jax.tree.map(lambda old, online: 0.9 * old + 0.1 * online, *given)
    assert_close(states[4].target_params, expected, rtol=1e-7, atol=1e-6)
    weight = states[4].advantage_moments.weight
    np.testing.assert_allclose(weight, 1 - 0.99**3, rtol=1e-4)


@pytest.mark.slow
def test_a_step_is_clipped_number_by_number(from_authors):
    parts, learner, batch = from_authors

    def moved(**changes):
        config = parts.config.replace(optimiser=optimisers.SGD(), **changes)
        there = parts._replace(config=config)
        optim = disco.make_optimiser(config, learner.params)
        flat = optimiser.flatten(learner.params)[0]
        start = learner._replace(opt_state=optim.init(flat))
        new, _ = jax.jit(lambda x: disco.improve(there, x, batch))(start)
        return optimiser.flatten(new.params)[0] - flat

    free, clipped = (
        np.asarray(moved(learning_rate=0.5, max_update=most)) for most in (None, 0.02)
    )
    assert (np.abs(free) > 0.01).any() and (np.abs(free) < 0.01).any()
    np.testing.assert_allclose(clipped, np.clip(free, -0.01, 0.01), atol=1e-6)


@pytest.mark.slow
def test_with_the_default_rule_it_learns_catch():
    # Every action alike catches the ball in one of three columns: a return of -1/3.
    # After 20,000 steps nine of twelve seeds have learned it, after 40,000 all eight.
    config = tiny(
        num_steps=20,
        buffer_size=256 * 20,
        batch_size=32,
        learning_starts=32 * 20,
        total_timesteps=40_000,
        hidden_sizes=(64, 64),
        model_size=32,
        head_sizes=(32,),
        num_bins=21,
        max_abs_value=2.0,
        learning_rate=5e-3,
        num_evaluations=1,
        eval_episodes=64,
    )
    train = jax.jit(jax.vmap(purerl.make_train(config)))
    result = train(jax.random.split(jax.random.key(0), 4))
    assert result.evaluation["episode_return"].mean() > 0.9


def test_layers_start_with_the_variance_of_the_authors():
    """Normal numbers of variance 1 / fan_in, cut off at two standard deviations.

    A first layer that is two and a half times too small has died in training.
    """
    config = purerl.DiscoConfig(env="Catch-bsuite", hidden_sizes=(128, 128))
    parts = disco.build(purerl.resolve(config), resolve_env(config))
    init = jax.jit(lambda key: disco.init(parts, key).params["params"])
    params = jax.tree.map(np.asarray, init(jax.random.key(0)))
    layers = [params[name] for name in ("embedding", "root", "q_hidden_0", "q")]
    kernels = [x["kernel"] for x in (*layers, params["torso"]["Dense_0"])]
    found = [(kernel, len(kernel)) for kernel in kernels]
    model = [params[name] for name in ("actions", "recurrent")]  # which share a fan-in
    found += [(kernel, sum(map(len, model))) for kernel in model]
    for kernel, fan_in in found:
        wanted = 0.8796 / np.sqrt(fan_in)
        np.testing.assert_allclose(kernel.std(), wanted, rtol=0.08)
    assert params["logits"]["kernel"].std() < 0.011


def test_the_torso_has_all_sizes_but_the_embeddings():
    config = purerl.DiscoConfig(torso="simba", hidden_sizes=(8, 8, 16))
    parts = disco.build(purerl.resolve(config), resolve_env(config))
    params = jax.eval_shape(partial(disco.init, parts), jax.random.key(0)).params
    kernels = {name: params["params"][name] for name in ("torso", "embedding")}
    assert "LayerNorm_2" in kernels["torso"]
    assert kernels["embedding"]["kernel"].shape == (8, 16)
    with pytest.raises(ConfigError, match=r"as many blocks as hidden_sizes"):
        purerl.resolve(config.replace(hidden_sizes=(8,)))
