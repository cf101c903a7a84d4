"""Bad input gets one sentence, with what to do, before anything is traced."""

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl import losses, schedules
from purerl.config import ConfigError
from purerl.envs.base import Environment
from purerl.envs.cartpole import CartPole
from purerl.envs.spaces import Box, Dict, Discrete, Tuple
from purerl.optimisers import OpenOptimiser
from purerl.randomisation import Choice, Uniform

ARTIFACTS = Path(__file__).parents[1] / "experiments" / "artifacts"


class NoFeatures(nn.Module):
    """A memory that does not say how many outputs it has."""


class Dropping(nn.Module):
    """A torso that leaves units out at random."""

    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(4)(x))


class DroppingMemory(nn.Module):
    """A memory that leaves some of what it sees out at random."""

    features: int = 4

    def initial(self, shape):
        return jnp.zeros((*shape, self.features))

    @nn.compact
    def __call__(self, carry, inputs, resets):
        seen = nn.Dropout(0.5, deterministic=False)(nn.Dense(self.features)(inputs))
        return carry + seen.sum(0), seen


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

    def __init__(self, change=None):
        self.change = change

    def step_env(self, key, state, action, params):
        obs, state, *rest = super().step_env(key, state, action, params)
        new = state.replace(x=jnp.int32(state.x))
        return (obs, self.change(vars(new)) if self.change else new, *rest)

    def is_truncated(self, state, params):
        return jnp.bool_(False)


class Stateless(CartPole):
    """CartPole that forgets to return a state."""

    def reset_env(self, key, params):
        return super().reset_env(key, params)[0]


class Whole(CartPole):
    """CartPole whose actions are a box of whole numbers."""

    def action_space(self, params=None):
        return Box(0, 1, (1,), np.int32)

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action[0], params)


def odd(*args, **fields):
    return lambda: purerl.make_train(purerl.PPOConfig(env=Odd(*args), **fields))


CASES = {
    "observations of another shape": (
        odd(lambda obs: obs[:3]),
        r"CartPole-v1: reset returns an observation of shape \(3,\) .* \(4,\)",
    ),
    "a step with another shape": (
        odd(None, lambda obs: jnp.append(obs, 0.0)),
        r"CartPole-v1: step returns an observation of shape \(5,\) .*envs\.check",
    ),
    "fractions for numbered states": (
        odd(lambda obs: obs[0], None, Discrete(4)),
        r"reset returns .* shape \(\) and dtype float32, expected .* \(\) and .*int32",
    ),
    "one array for several": (
        odd(None, None, Dict({"a": Box(-1.0, 1.0, (4,))})),
        r"reset returns an observation with the parts .*, expected a dict",
    ),
    "several arrays for one": (
        odd(lambda obs: {"a": obs}),
        "reset returns an observation that is a dict, expected an array",
    ),
    "a type that changes": (
        odd(lambda obs: obs.astype(jnp.int32), lambda obs: obs),
        r"reset returns an observation of int32\[4\], and step one of float32\[4\]",
    ),
    "a type that a step alone has": (
        odd(None, lambda obs: obs.astype(jnp.int32)),
        r"reset returns an observation of float32\[4\], and step one of int32\[4\]",
    ),
    "a state that changes its type": (
        lambda: purerl.make_train(purerl.PPOConfig(env=OddState())),
        r"reset returns a state whose x is float32\[\], and step one whose x is int32",
    ),
    "a state that changes its leaves": (
        lambda: purerl.make_train(purerl.PPOConfig(env=OddState(dict))),
        r"reset returns a state with the leaves .*time, .* and step one with .*'x'\]",
    ),
    "a reset without a state": (
        lambda: purerl.make_train(purerl.PPOConfig(env=Stateless())),
        "CartPole-v1: reset returns .*, expected obs, state",
    ),
    **{
        f"whole numbers as actions of {kind.__name__}": (
            lambda kind=kind: purerl.make_train(kind(env=Whole())),
            "CartPole-v1: actions must be real numbers or choices.*MultiDiscrete",
        )
        for kind in (purerl.PPOConfig, purerl.SACConfig, purerl.TD3Config)
    },
    "the class of an environment": (
        lambda: purerl.make_train(purerl.PPOConfig(env=CartPole)),
        r"env is the class CartPole; call it to make one: CartPole\(\)",
    ),
    "options of an environment that is made already": (
        odd(env_kwargs={"size": 3}),
        r"env_kwargs must be left out where env is an object, got .*3",
    ),
    "a network's file as a config": (
        lambda: purerl.serialise.from_yaml(ARTIFACTS / "lpg-rule.npz"),
        r"cannot read the config .*lpg-rule",
    ),
    "a field that is none": (
        lambda: purerl.RecurrentDQNConfig(burnin=3),
        r"RecurrentDQNConfig has no field 'burnin'\. Did you mean 'burn_in'\?",
    ),
    "returns longer than a sequence": (
        lambda: purerl.make_train(
            purerl.RecurrentDQNConfig(sequence_length=10, n_step=50)
        ),
        r"n_step must be at most sequence_length \(10\), got 50",
    ),
    "a schedule of optax": (
        lambda: purerl.make_train(
            PPO.replace(learning_rate=optax.cosine_decay_schedule(1e-3, 100))
        ),
        r"learning_rate must be a number, got <function .* A schedule may be, such as",
    ),
    "a function where nothing moves": (
        lambda: purerl.make_train(PPO.replace(eval_share=lambda share: share)),
        r"eval_share must be a number, got <function .*>\.$",
    ),
    "a schedule's text": (
        lambda: purerl.make_train(purerl.PPOConfig(learning_rate="Linear(1e-3,0)")),
        r"got 'Linear\(1e-3,0\)'\. .*purerl\.serialise\.parse_part\('Linear\(1e-3,0\)'",
    ),
    "a schedule's name": (
        lambda: purerl.serialise.from_dict({"learning_rate": "cosine"}),
        r"must be a number, got 'cosine'; .*, such as Cosine\(1e-3\)\.$",
    ),
    "an optimiser's text": (
        lambda: purerl.make_train(purerl.PPOConfig(optimiser="Adam")),
        r"optimiser must be an optimiser, .*parse_part\('Adam'\) reads it",
    ),
    "an optimiser's file": (
        lambda: purerl.make_train(purerl.PPOConfig(optimiser="open.npz")),
        r"purerl\.load_part\('open\.npz'\) reads it",
    ),
    "an optimiser's text to override": (
        lambda: purerl.make_train(PPO)(jax.random.key(0), {"optimiser": "Adam"}),
        r"override 'optimiser' must be .*parse_part\('Adam'\) reads it",
    ),
    "a loss's text": (
        lambda: purerl.make_train(purerl.PPOConfig(policy_loss="ClipDrift(0.1)")),
        r"policy_loss must be a loss, .*parse_part\('ClipDrift\(0\.1\)'\) reads it",
    ),
    "a distribution that moves": (
        lambda: purerl.make_train(
            PPO.replace(env_params={"length": Uniform(0.4, schedules.Linear(0.5, 2.0))})
        ),
        r"length: the numbers of a distribution cannot follow a schedule, .* Give num",
    ),
    "a choice that moves": (
        lambda: purerl.make_train(
            PPO.replace(env_params={"length": Choice((0.4, schedules.Linear()))})
        ),
        "the numbers of a distribution cannot follow a schedule",
    ),
    "a torso with dropout": (
        lambda: purerl.make_train(purerl.PPOConfig(torso=Dropping())),
        r"torso .*Dropping.* must need no random numbers .* leave dropout out",
    ),
    "a memory with dropout": (
        lambda: purerl.make_train(purerl.RecurrentPPOConfig(memory=DroppingMemory())),
        r"memory .*DroppingMemory.* must need no random numbers .* leave dropout out",
    ),
    "a memory without a number of outputs": (
        lambda: purerl.make_train(purerl.RecurrentPPOConfig(memory=NoFeatures())),
        r"must have a field features, the number of its outputs, got None",
    ),
    "a rule for a loss": (
        lambda: purerl.make_train(
            purerl.PPOConfig(policy_loss=purerl.load_part(ARTIFACTS / "lpg-rule.npz"))
        ),
        r"policy_loss must be a loss of 2 arrays \[N\], .* got an instance of LPGR",
    ),
    "a loss of another kind to distil": (
        lambda: purerl.distil(losses.HuberError(1.0)),
        "distil: the drift must be a loss of 2 arrays",
    ),
    "text to distil": (lambda: purerl.distil("clip"), "distil: the drift must be"),
    "a drift that moves": (
        lambda: purerl.distil(losses.TemporalDrift.zeros(2)),
        r"share of TemporalDrift is Share\(\), .* drift\.replace\(share=0\.5\)",
    ),
    "a clip that moves": (
        lambda: purerl.distil(losses.ClipDrift(schedules.Linear(0.2, 0.1))),
        r"clip_eps of ClipDrift is Linear",
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
FOREIGN = {
    "another size": (
        lambda: fresh(PPO.replace(hidden_sizes=(16,))),
        r"actor\.Dense_0\.kernel is float32 \(16, 2\), and an agent of PPOConfig in "
        r"CartPole-v1 needs float32 \(8, 2\)\. Give the config",
    ),
    "another environment": (
        lambda: fresh(PPO.replace(env="Acrobot-v1")),
        r"is float32 \(3,\), and an agent of PPOConfig in CartPole-v1 needs",
    ),
    "another algorithm": (
        lambda: fresh(DQN),
        r"state: (only )?an agent of PPOConfig in CartPole-v1 (has|lacks)",
    ),
    "networks alone": (
        lambda: purerl.networks_of(fresh(PPO)),
        "state must be a training state, such as result.state, got dict",
    ),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_policy_of_another_configs_state_is_refused(case, tmp_path):
    state, sentence = FOREIGN[case]
    with pytest.raises(ConfigError, match=sentence):
        purerl.make_policy(PPO, state())
    with pytest.raises(ConfigError, match=sentence):
        purerl.export_policy(PPO, state(), tmp_path)


def test_a_policy_reads_no_buffer_and_no_environments():
    sizes = {"buffer_size": 640, "num_envs": 2, "total_timesteps": 10_000}
    purerl.make_policy(DQN, fresh(DQN.replace(**sizes)))
    purerl.make_policy(PPO, fresh(PPO.replace(num_envs=3, num_minibatches=3)))


QUANTILES = {"num_quantiles": 9, "kappa": 0.5, "num_tau_samples": 3}
IDLE = [
    (purerl.SACConfig, {"dropped_quantiles": 1}, {"num_quantiles": 25}),
    (purerl.TD3Config, {"dropped_quantiles": 1}, {"num_quantiles": 25}),
    (purerl.SACConfig, {"priority_exponent": 0.7}, {"prioritised": True}),
    (purerl.TD3Config, {"importance_exponent": 0.5}, {"prioritised": True}),
    (purerl.RecurrentDQNConfig, {"priority_eta": 0.5}, {"prioritised": True}),
    (
        purerl.DQNConfig,
        {"munchausen_tau": 0.1},
        {"munchausen": True, "double": False},
    ),
    (purerl.DQNConfig, {"noisy_sigma": 0.1}, {"noisy": True}),
    *((purerl.DQNConfig, {n: x}, {"values": "implicit"}) for n, x in QUANTILES.items()),
]


@pytest.mark.parametrize(("kind", "idle", "on"), IDLE)
def test_numbers_of_an_option_that_is_off_are_refused(kind, idle, on):
    name, value = next(iter(idle.items()))
    switch = next(iter(on))
    off = getattr(kind(), switch)
    words = rf"^{name}={value} has no effect with {switch}={off!r}; set {switch}="
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(kind(**idle))
    purerl.make_train(kind(**idle, **on))


@pytest.mark.parametrize(
    "number",
    [
        schedules.Constant(0.7),
        schedules.Linear(0.7, 0.4),
        np.float32(0.7),
        jnp.float32(0.7),
        jnp.asarray(0.7),
    ],
)
def test_numbers_of_float32_are_shown_as_they_were_written(number):
    with pytest.raises(ConfigError, match=r"^priority_exponent=0\.7 has no effect"):
        purerl.make_train(purerl.SACConfig(priority_exponent=number))


@pytest.mark.parametrize("kind", [np.float32, jnp.float32])
def test_numbers_out_of_their_range_are_shown_as_they_were_written(kind):
    with pytest.raises(ConfigError, match=r"between 0 and 1, got 1\.1\. Default"):
        purerl.make_train(PPO.replace(gamma=kind(1.1)))
    with pytest.raises(ConfigError, match=r"between 0 and 1, got 1\.1\. Default"):
        purerl.make_train(PPO)(jax.random.key(0), {"gamma": kind(1.1)})
    with pytest.raises(ConfigError, match=r"gamma must be finite, got nan\. Default"):
        purerl.make_train(PPO.replace(gamma=kind(np.nan)))


def test_a_schedule_that_stays_at_the_default_of_an_option_that_is_off_is_taken():
    same = schedules.Constant(purerl.SACConfig().priority_exponent)
    purerl.make_train(purerl.SACConfig(env="Pendulum-v1", priority_exponent=same))


def test_numbers_that_presets_have_beside_an_option_stay_when_it_is_left_off():
    rainbow = purerl.presets.load("rainbow-cartpole")
    for change in ({"prioritised": False}, {"noisy": False}, {"values": "expected"}):
        purerl.make_train(rainbow.replace(**change))


def test_observations_that_lose_nothing_as_the_spaces_numbers_are_taken():
    for kind in (bool, jnp.int8, jnp.bfloat16):
        odd(lambda obs, kind=kind: obs.astype(kind))()


def test_an_environment_that_fails_by_itself_is_left_to_its_own_error():
    def fail(obs):
        raise ZeroDivisionError

    odd(fail)()


@pytest.mark.slow(optimised=False)
def test_a_drift_at_a_moment_can_be_distilled():
    drift = losses.TemporalDrift.zeros(2, base_clip=0.2).replace(share=0.5)
    assert purerl.distil(drift, max_terms=1).error < 0.02


def test_files_of_others_are_no_parts(tmp_path):
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    (tmp_path / "text.npz").write_text("not at all")
    for name in ("arrays.npz", "text.npz"):
        with pytest.raises(ConfigError, match=r"save_part of this version wrote"):
            purerl.load_part(tmp_path / name)
        with pytest.raises(ConfigError, match=r"no \.npy file of one vector"):
            OpenOptimiser.load(tmp_path / name)


@pytest.mark.parametrize(
    "config", [purerl.SACConfig, purerl.TD3Config, purerl.MPOConfig]
)
def test_actions_of_several_spaces_are_refused(config):
    class TwoActions(Environment):
        name = "two-actions"
        default_params = None

        def observation_space(self, params):
            return Box(-1.0, 1.0, (2,))

        def action_space(self, params):
            return Tuple((Box(-1.0, 1.0, (1,)), Box(-1.0, 1.0, (2,))))

        def reset_env(self, key, params):
            raise NotImplementedError

        def step_env(self, key, state, action, params):
            raise NotImplementedError

    with pytest.raises(ConfigError, match=r"of two-actions; "):
        purerl.make_train(config(env=TwoActions()))
