"""Masks of valid actions: targets by hand, exploration, and no invalid action ever."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl.acting import exploration
from purerl.acting.environment import resolve_env
from purerl.acting.rollout import Transition
from purerl.algorithms import dqn, ensembles, pqn, sac
from purerl.algorithms.off_policy import Batch
from purerl.config import ConfigError
from purerl.learning import optimiser
from tests import boxes
from tests.algorithms.agents import agent_of, samples_of
from tests.helpers import slow_but

ECHO = {"env": boxes.MASKED, "critic": boxes.Echo()}
# Values 1, 5, 2, 4, 3, 0 and the valid actions 0, 2 and 3.
VALUES = jnp.array([[1.0, 5.0, 2.0, 4.0, 3.0, 0.0]])
MASK = jnp.array([[1, 0, 1, 1, 0, 0]], bool)
SEEN = {"observation": VALUES, "action_mask": MASK}

SHORT = {"num_evaluations": 1, "eval_episodes": 8, "hidden_sizes": (8,)}
OFF_POLICY = {"learning_starts": 200, "total_timesteps": 4_000, "batch_size": 16}
ALGORITHMS = {
    "ppo": purerl.PPOConfig(total_timesteps=4_096),
    "ppo-shared": purerl.PPOConfig(total_timesteps=4_096, shared_torso=True),
    "vpg": purerl.VPGConfig(total_timesteps=4_096, num_steps=64, critic_iterations=2),
    "lpg": purerl.LPGConfig(total_timesteps=5_120, num_envs=8),
    "lpg-shared": purerl.LPGConfig(
        total_timesteps=5_120, num_envs=8, shared_torso=True
    ),
    "recurrent_ppo": purerl.RecurrentPPOConfig(
        total_timesteps=4_096, memory_size=8, head_sizes=(8,)
    ),
    "dqn": purerl.DQNConfig(**OFF_POLICY),
    "dqn-rainbow": purerl.DQNConfig(
        prioritised=True, dueling=True, n_step=3, **OFF_POLICY
    ),
    "dqn-noisy-quantiles": purerl.DQNConfig(
        values="quantile", noisy=True, dueling=True, **OFF_POLICY
    ),
    "dqn-munchausen": purerl.DQNConfig(munchausen=True, double=False, **OFF_POLICY),
    "recurrent_dqn": purerl.RecurrentDQNConfig(
        dueling=True, memory_size=8, **OFF_POLICY
    ),
    "pqn": purerl.PQNConfig(total_timesteps=8_192, normalize_observations=True),
    "recurrent_pqn": purerl.RecurrentPQNConfig(total_timesteps=8_192, memory_size=8),
    "sac": purerl.SACConfig(**OFF_POLICY),
    "mpo": purerl.MPOConfig(**OFF_POLICY),
}


ONE_AT_A_TIME = ("dqn", "recurrent_dqn", "pqn", "recurrent_pqn", "sac", "mpo")


def scaled(params, number):
    """Parameters of `Echo` with which outputs are its observation times the number."""
    return jax.tree.map(lambda x: jnp.full_like(x, number), params)


@pytest.mark.parametrize(("double", "expected"), [(False, 4.0), (True, 1.0)])
def test_a_dqn_target_takes_the_best_of_the_valid_actions(double, expected):
    # The target network values actions as they are, the online one by the opposite: of
    # the valid ones it likes 0 best, and of all it would like 5.
    config = purerl.DQNConfig(double=double, **ECHO)
    parts = dqn.build(config, resolve_env(config))
    params = parts.network.init(jax.random.key(0), SEEN)
    flat, restore = optimiser.flatten(scaled(params, 1.0))
    learner = dqn.Learner(-flat, flat, ())
    reward, discount = jnp.array([[10.0], [0.5]])
    batch = Batch(SEEN, jnp.array([0]), reward, SEEN, discount, jnp.ones(1))
    target = dqn.td_target(parts, restore, learner, batch)
    np.testing.assert_allclose(target, [10.0 + 0.5 * expected])
    # An end without any valid action is worth the reward.
    nothing = {"observation": VALUES, "action_mask": jnp.zeros_like(MASK)}
    over = batch._replace(next_obs=nothing, discount=jnp.zeros(1))
    np.testing.assert_allclose(dqn.td_target(parts, restore, learner, over), [10.0])


def test_a_pqn_target_takes_the_best_of_the_valid_actions():
    config = purerl.PQNConfig(num_envs=1, num_steps=1, gamma=0.5, **ECHO)
    config = config.replace(num_minibatches=1)
    parts = agent_of(purerl.resolve(config), pqn.make_agent)
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    params = {"q": parts.networks["q"].init(jax.random.key(0), SEEN)}
    moments = state.obs_moments
    state = state._replace(params=scaled(params, 1.0), obs_moments=moments)
    obs = jax.tree.map(lambda x: x[None], SEEN)
    flag = jnp.zeros((1, 1), bool)
    steps = Transition(obs, jnp.zeros((1, 1), int), (), flag + 10.0, obs, flag, flag)
    batch = samples_of(pqn, parts, state, steps)
    np.testing.assert_allclose(batch.target, [10.0 + 0.5 * 4.0])


def test_soft_values_and_target_entropy_are_those_of_the_valid_actions():
    config = purerl.SACConfig(actor=boxes.Echo(), entropy_share=0.5, **ECHO)
    parts = sac.build(config, resolve_env(config))
    actor = scaled(parts.actor.init(jax.random.key(0), SEEN), 0.3)
    critics = scaled(parts.critics.init(jax.random.key(0), SEEN), 1.0)

    def choices(actor, seen):
        values = partial(parts.critics.apply, critics)
        outputs = parts.actor.apply(actor, seen)
        estimate = partial(ensembles.pessimistic, config)
        return sac.choices(parts, outputs, values, estimate, seen, None)

    found = choices(actor, SEEN)
    # Logits 0.3, 0.6 and 1.2, values 1, 2 and 4, temperature 0.7.
    p = np.exp([0.3, 0.6, 1.2])
    p = p / p.sum()
    expected = (p * (np.array([1.0, 2.0, 4.0]) - 0.7 * np.log(p))).sum()
    soft_value = partial(sac.soft_value, temperature=jnp.float32(0.7))
    np.testing.assert_allclose(soft_value(found), [expected], rtol=1e-5)
    masks = jnp.array([[1, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1]])
    seen = {"observation": jnp.zeros((3, 6)), "action_mask": masks.astype(bool)}
    mean = 0.5 * (np.log(3) + np.log(1) + np.log(6)) / 3
    np.testing.assert_allclose(sac.target_entropy(parts, seen), mean, rtol=1e-6)

    slopes = jax.grad(lambda actor: soft_value(choices(actor, seen)).mean())(actor)
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


def test_random_actions_are_uniform_over_the_valid_ones():
    number = jnp.arange(300, dtype=jnp.int32)
    seen = {"action_mask": jnp.broadcast_to(MASK, (300, 6))}
    action = exploration.valid_action(seen, number)
    assert np.bincount(action, minlength=6).tolist() == [100, 0, 100, 100, 0, 0]
    assert exploration.valid_action({"action_mask": ~MASK & MASK}, number[:1]) == 0
    # Half explore; those who do not take 3, the best of the valid ones.
    many = exploration.MANY
    coin = exploration.draw_coin(jax.random.key(0), (6000,), num_actions=many)
    q = jnp.where(MASK, VALUES, -1e9)
    seen = {"action_mask": jnp.broadcast_to(MASK, (6000, 6))}
    taken = exploration.epsilon_greedy(jnp.broadcast_to(q, (6000, 6)), coin, 0.5, seen)
    shares = np.bincount(taken, minlength=6) / 6000
    np.testing.assert_allclose(shares, [1 / 6, 0, 1 / 6, 4 / 6, 0, 0], atol=0.02)


@pytest.mark.parametrize("name", slow_but(ALGORITHMS, "ppo", "dqn"))
@pytest.mark.parametrize("kind", slow_but(["one", "several"], "one"))
def test_no_invalid_action_is_ever_taken(name, kind):
    """One ends the episode, which is eight steps long otherwise, and costs 100."""
    masked = {"env": boxes.MASKED, "env_kwargs": {"kind": kind}}
    config = ALGORITHMS[name].replace(**masked, **SHORT)
    if kind == "several" and name.startswith(ONE_AT_A_TIME):
        with pytest.raises(ConfigError, match=r"MultiDiscrete\(\[3, 2\]\)"):
            purerl.make_train(config)
        return
    result = jax.jit(purerl.make_train(config))(jax.random.key(0))
    lengths = np.asarray(result.metrics["episode_length"])
    assert np.nansum(result.metrics["episodes"]) >= 400
    np.testing.assert_array_equal(lengths[~np.isnan(lengths)], 8.0)
    assert np.nanmin(result.metrics["episode_return"]) >= 4.0
    np.testing.assert_array_equal(result.evaluation["episode_length"], 8)
    for metric in ("policy_loss", "value_loss", "entropy", "grad_norm"):
        assert np.isfinite(result.metrics.get(metric, jnp.zeros(1))[-1])
    # The trained agent's policy, greedy and drawn.
    policy = purerl.make_policy(config, result.state)
    mask = np.zeros((20, 6 if kind == "one" else 5), np.int8)
    mask[:, [2, 4]] = 1  # of two components: the last of three, and the last of two
    obs = {"observation": np.ones(mask.shape, np.float32), "action_mask": mask}
    memory = policy.init((20,)) if hasattr(policy, "init") else None
    for key in (None, jax.random.key(1)):
        action = policy(obs, key) if memory is None else policy(obs, memory, key)[0]
        valid = {(2,), (4,)} if kind == "one" else {(2, 1)}
        assert set(map(tuple, np.reshape(action, (20, -1)).tolist())) <= valid
