"""Bad input gets one sentence, with what to do, before anything is traced."""

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl import schedules
from purerl.config import ConfigError
from purerl.envs.cartpole import CartPole
from purerl.envs.spaces import Discrete
from purerl.optimisers import OpenOptimiser
from purerl.randomisation import Uniform

ARTIFACTS = Path(__file__).parents[1] / "experiments" / "artifacts"


class NoFeatures(nn.Module):
    """A memory that does not say how many outputs it has."""


class Dropping(nn.Module):
    """A torso that leaves units out at random."""

    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(4)(x))


class Odd(CartPole):
    """CartPole whose observations go through functions, with a space of one's own."""

    def __init__(self, reset=None, step=None, space=None):
        same = lambda obs: obs  # noqa: E731
        self.change, self.space = (reset or same, step or reset or same), space

    def observation_space(self, params=None):
        return self.space or super().observation_space(params)

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return self.change[0](obs), state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return (self.change[1](obs), *rest)


class OddState(CartPole):
    """CartPole whose state is another one after a step."""

    def step_env(self, key, state, action, params):
        obs, state, *rest = super().step_env(key, state, action, params)
        return (obs, state.replace(x=jnp.int32(state.x)), *rest)


def make(config=purerl.PPOConfig, **fields):
    return lambda: purerl.make_train(config(**fields))


def odd(*args, **fields):
    return make(env=Odd(*args), **fields)


# What somebody gives -> what the sentence names.
CASES = {
    "observations of another shape": (
        odd(lambda obs: obs[:3]),
        r"reset returns an observation of shape \(3,\) .* \(4,\)",
    ),
    "a step with another shape": (
        odd(None, lambda obs: jnp.append(obs, 0.0)),
        r"step returns an observation of shape \(5,\)",
    ),
    "fractions for numbered states": (
        odd(lambda obs: obs[0], None, Discrete(4)),
        "reset returns .* dtype float32, .*int32",
    ),
    "truth values for numbered states": (
        odd(lambda obs: obs[0] > 0, None, Discrete(2)),
        "reset returns .* dtype bool, .*int32",
    ),
    "a type that changes": (
        odd(None, lambda obs: obs.astype(jnp.int32)),
        r"observation of float32\[4\], and step one of int32\[4\]",
    ),
    "a state that changes its type": (
        make(env=OddState()),
        r"state whose x is float32\[\], and step one whose x is int32",
    ),
    "the class of an environment": (make(env=CartPole), "env is the class CartPole"),
    "options of an environment that is made already": (
        odd(env_kwargs={"size": 3}),
        "env_kwargs must be left out where env is an object",
    ),
    "a network's file as a config": (
        lambda: purerl.serialise.from_yaml(ARTIFACTS / "lpg-rule.npz"),
        "cannot read the config .*lpg-rule",
    ),
    "a schedule of optax": (
        make(learning_rate=optax.cosine_decay_schedule(1e-3, 100)),
        "learning_rate must be a number.* A schedule may be",
    ),
    "a schedule's text": (
        make(learning_rate="Linear(1e-3,0)"),
        r"learning_rate.*parse_part\('Linear\(1e-3,0\)'",
    ),
    "an optimiser's text": (make(optimiser="Adam"), "optimiser.*parse_part"),
    "a distribution's text": (
        make(env_params={"length": "Uniform(.4,.6)"}),
        "length must be a number or a distribution",
    ),
    "two ends in place of a distribution": (
        make(env_params={"length": (0.4, 0.6)}),
        r"length has shape \(2,\)",
    ),
    "a distribution that moves": (
        make(env_params={"length": Uniform(0.4, schedules.Linear(0.5, 2.0))}),
        "length: the numbers of a distribution cannot follow a schedule",
    ),
    "a torso with dropout": (make(torso=Dropping()), "torso .*no random numbers"),
    "a memory without a number of outputs": (
        make(purerl.RecurrentPPOConfig, memory=NoFeatures()),
        "must have a field features",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_in_a_sentence(case):
    call, sentence = CASES[case]
    with pytest.raises(ConfigError, match=sentence) as refused:
        call()
    assert len(str(refused.value)) < 1_200


def fresh(config):
    """The shapes of an agent's state."""
    return jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))


PPO = purerl.PPOConfig(hidden_sizes=(8,))
DQN = purerl.DQNConfig(hidden_sizes=(8,))
FOREIGN = [
    (lambda: fresh(PPO.replace(hidden_sizes=(16,))), "actor.* PPOConfig in CartPole"),
    (lambda: fresh(PPO.replace(env="Acrobot-v1")), "PPOConfig in CartPole-v1 needs"),
    (lambda: fresh(DQN), "no place in an agent of PPOConfig in CartPole-v1"),
    (lambda: purerl.networks_of(fresh(PPO)), "state must be a training state"),
]


@pytest.mark.parametrize(("state", "sentence"), FOREIGN)
def test_a_policy_of_another_configs_state_is_refused(state, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        purerl.make_policy(PPO, state())
    with pytest.raises(ConfigError, match=sentence):
        purerl.export_policy(PPO, state(), tmp_path)


def test_a_policy_reads_no_buffer_and_no_environments():
    sizes = {"buffer_size": 640, "num_envs": 2, "total_timesteps": 10_000}
    purerl.make_policy(DQN, fresh(DQN.replace(**sizes)))
    purerl.make_policy(PPO, fresh(PPO.replace(num_envs=3, num_minibatches=3)))


IDLE = [
    (purerl.SACConfig, {"dropped_quantiles": 1}, {"num_quantiles": 25}),
    (purerl.TD3Config, {"importance_exponent": 0.5}, {"prioritised": True}),
    (purerl.RecurrentDQNConfig, {"priority_eta": 0.5}, {"prioritised": True}),
    (purerl.DQNConfig, {"munchausen_tau": 0.1}, {"munchausen": True, "double": False}),
    (purerl.DQNConfig, {"noisy_sigma": 0.1}, {"noisy": True}),
    (purerl.DQNConfig, {"kappa": 0.5}, {"values": "implicit"}),
    # Numbers of float32 are shown as they were written.
    (purerl.SACConfig, {"priority_exponent": np.float32(0.7)}, {"prioritised": True}),
]


@pytest.mark.parametrize(("kind", "idle", "on"), IDLE)
def test_numbers_of_an_option_that_is_off_are_refused(kind, idle, on):
    name, value = next(iter(idle.items()))
    switch = next(iter(on))
    off = getattr(kind(), switch)
    words = rf"^{name}={value!s} has no effect with {switch}={off!r}"
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(kind(**idle))
    purerl.make_train(kind(**idle, **on))


def test_files_of_others_are_no_parts(tmp_path):
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    (tmp_path / "text.npz").write_text("not at all")
    for name in ("arrays.npz", "text.npz"):
        with pytest.raises(ConfigError, match=r"save_part of this version wrote"):
            purerl.load_part(tmp_path / name)
        with pytest.raises(ConfigError, match=r"no \.npy file of one vector"):
            OpenOptimiser.load(tmp_path / name)
