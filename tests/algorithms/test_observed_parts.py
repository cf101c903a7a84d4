"""Observations of several parts: equal to the vector that they are, and seen by key.

A critic that sees other keys than an actor with a memory: `test_recurrent_critic.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import envs, networks
from purerl.accelerator.kernels import traced_for
from purerl.acting.environment import resolve_env
from purerl.algorithms import entry_of, mpo, policy_gradient, sac, td3
from purerl.config import ConfigError
from purerl.envs.spaces import Box
from purerl.envs.wrappers import ObservationWrapper
from purerl.networks import observe
from tests import boxes, terms
from tests.helpers import assert_close, assert_same_bits, slow_but, tiny_config

RECURRENT = purerl.RecurrentPPOConfig(
    total_timesteps=512,
    num_steps=16,
    hidden_sizes=(8,),
    memory_size=8,
    head_sizes=(8,),
    normalize_observations=True,
    num_evaluations=1,
)
REPLAY = {
    "total_timesteps": 1_000,
    "learning_starts": 200,
    "hidden_sizes": (8, 8),
    "batch_size": 16,
    "num_evaluations": 1,
}
PLAIN = {
    "ppo": tiny_config(normalize_observations=True, num_evaluations=1),
    "ppo-own": tiny_config(torso=networks.Dense(6), num_evaluations=1),
    "recurrent_ppo": RECURRENT,
    "dqn": purerl.DQNConfig(dueling=True, n_step=3, prioritised=True, **REPLAY),
    "sac": purerl.SACConfig(env="CartPole-v1", **REPLAY),
}


@pytest.mark.parametrize("name", slow_but(PLAIN, "ppo"))
def test_a_vector_in_parts_is_learned_from_as_the_vector(name):
    """By the default torso, and by one of the user's own, to the last bit.

    PPO's two programs are fused otherwise by the compiler: to rounding.
    """
    plain = PLAIN[name]
    packed = plain.replace(env=boxes.PACKED)
    if name == "ppo-own":
        packed = packed.replace(torso=boxes.Vector(networks.Dense(6)))
    key = jax.random.key(0)
    one, two = (jax.jit(purerl.make_train(c))(key) for c in (plain, packed))
    if name in ("ppo", "recurrent_ppo"):
        assert_close(one[1:], two[1:], rtol=1e-3, atol=1e-5)
        return
    assert_same_bits(one[1:], two[1:])
    policy = purerl.make_policy(plain, one.state)
    obs = jax.random.normal(jax.random.key(1), (7, 4))
    packed_obs = jax.vmap(boxes.pack)(obs)
    again = purerl.make_policy(packed, two.state)
    np.testing.assert_array_equal(policy(obs), again(packed_obs))


@dataclasses.dataclass(unsafe_hash=True)
class Signs(ObservationWrapper):
    """Whether each number is positive, as a truth value or as another type's."""

    env: Any
    dtype: Any
    declared: Any = None

    def observe(self, obs, state, params):
        return (obs > 0).astype(self.dtype)

    def observation_space(self, params=None):
        return Box(0, 1, (4,), self.declared or self.dtype)


SEEN_AS_BITS = {
    "ppo": tiny_config(),
    "ppo-two-layers": tiny_config(hidden_sizes=(8, 8)),
    "ppo-own-term": tiny_config(extra_loss=terms.Near(coef=0.5)),
    "vpg": purerl.VPGConfig(num_envs=2, num_steps=16, total_timesteps=320),
    "pqn": purerl.PQNConfig(num_envs=2, num_steps=16, total_timesteps=320),
    "recurrent_ppo": RECURRENT.replace(normalize_observations=False),
}


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("name", slow_but(SEEN_AS_BITS, "ppo"))
def test_truth_values_are_learned_from_as_numbers(name, platform):
    """Rollouts keep them as they are; minibatches, terms and networks see numbers."""
    cartpole, config = envs.make("CartPole-v1"), SEEN_AS_BITS[name]
    kinds = [config.replace(env=Signs(cartpole, x)) for x in (bool, jnp.float32)]
    with traced_for(platform):
        one, two = (jax.jit(purerl.make_train(c))(jax.random.key(0)) for c in kinds)
    assert_close(one.state.params, two.state.params, rtol=1e-4, atol=1e-6)
    assert_close(one[1:], two[1:], rtol=1e-3, atol=1e-5)


def test_truth_values_in_a_space_of_floats_are_normalised_wherever_they_are_seen():
    """Policies that act and minibatches that learn see the same features."""
    config, floats = tiny_config(normalize_observations=True), jnp.float32
    seen = [Signs(envs.make("CartPole-v1"), x, floats) for x in (bool, floats)]
    kinds = [config.replace(env=env) for env in seen]
    one, two = (jax.jit(purerl.make_train(c))(jax.random.key(0)) for c in kinds)
    assert_close(one.state.params, two.state.params, rtol=1e-4, atol=1e-6)
    assert_close(one[1:], two[1:], rtol=1e-3, atol=1e-5)


CRITICS = {"actor_keys": ("obs",), "critic_keys": ("obs", "state")}
SMALL = {"hidden_sizes": (8,), **CRITICS}
CHOICES, NUMBERS = (
    {"env": boxes.Privileged(is_discrete=is_discrete), **SMALL}
    for is_discrete in (True, False)
)
SEEING = {
    "ppo": (policy_gradient, purerl.PPOConfig(**CHOICES)),
    "ppo-normalised": (
        policy_gradient,
        purerl.PPOConfig(normalize_observations=True, **CHOICES),
    ),
    "vpg": (policy_gradient, purerl.VPGConfig(**CHOICES)),
    "td3": (td3, purerl.TD3Config(**NUMBERS)),
    "mpo": (mpo, purerl.MPOConfig(**NUMBERS)),
    "sac": (sac, purerl.SACConfig(**NUMBERS)),
    "sac-discrete": (sac, purerl.SACConfig(**CHOICES)),
}


def observations(shift=0.0):
    keys = jax.random.split(jax.random.key(5), 2)
    obs = jax.random.normal(keys[0], (9, 1))
    return {"obs": obs, "state": jax.random.normal(keys[1], (9, 3)) + shift}


@pytest.mark.parametrize("name", slow_but(SEEING, "ppo", "td3"))
def test_an_actor_does_not_depend_on_what_the_critics_alone_see(name):
    module, config = SEEING[name]
    env, is_replayed = resolve_env(config), module is not policy_gradient
    algorithm = entry_of(config).make(config, env)
    parts = (module.build if is_replayed else module.make_agent)(config, env)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    more = [jnp.full((9, 1), 0.3)] if is_replayed and not parts.head.is_discrete else []
    critic = "critics" if is_replayed else "critic"

    def outputs(network, obs, *more):
        prepared = observe.prepare(parts, state.obs_moments, obs)
        return getattr(parts, network).apply(state.params[network], prepared, *more)

    def values(obs):
        found = outputs(critic, obs, *more)
        return found[0] if is_replayed else found

    _check_dependence(lambda obs: outputs("actor", obs), values)
    for key in (None, jax.random.key(2)):
        one, two = (algorithm.act(state, observations(x), key) for x in (0.0, 1.0))
        np.testing.assert_array_equal(one, two)


def _check_dependence(policy, values):
    """By values and by gradients: the actor on `obs` alone, the critic on both."""

    def total(function):
        return lambda obs: sum(x.sum() for x in jax.tree.leaves(function(obs)))

    for function, sees_state in ((jax.jit(policy), False), (jax.jit(values), True)):
        slopes = jax.jit(jax.grad(total(function)))(observations())
        assert (slopes["obs"] != 0.0).any()
        assert (slopes["state"] != 0.0).any() == sees_state
        one, two = function(observations()), function(observations(1.0))
        leaves = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
        assert all(np.array_equal(a, b) for a, b in leaves) != sees_state


def policy_of(config):
    state = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(0))
    return purerl.make_policy(config, state)


@pytest.mark.parametrize("kind", [purerl.PPOConfig, purerl.RecurrentPPOConfig])
def test_a_policy_acts_without_what_the_critic_alone_sees(kind):
    config = kind(env=boxes.Privileged(is_discrete=False), actor_keys=("obs",))
    policy, sees_all = policy_of(config), policy_of(config.replace(actor_keys=()))
    for shape in ((), (3,)):
        obs = {"obs": jnp.full((*shape, 1), 0.7), "state": jnp.ones((*shape, 3))}
        memory = [policy.init(shape)] if kind is purerl.RecurrentPPOConfig else []
        given = {"obs": obs["obs"]}
        assert_same_bits(policy(given, *memory), policy(obs, *memory))
        jax.jit(policy)(given, *memory)
        with pytest.raises(ConfigError, match="lacks obs: the policy sees obs; give"):
            policy({"state": obs["state"]}, *memory)
        with pytest.raises(ConfigError, match="lacks state: the policy sees obs, s"):
            sees_all(given, *memory)
