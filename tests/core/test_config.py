"""Configs: every refusal in one table, and the ways in and out."""

import copy
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import purerl
from purerl import envs, losses, schedules, serialise
from purerl.algorithms import ALGORITHMS, config_class
from purerl.config import (
    AUTO,
    Auto,
    ConfigError,
    UnknownFieldError,
    apply_overrides,
    config_dataclass,
    static_fields,
    validate_fields,
)
from purerl.errors import PEERS
from purerl.randomisation import Uniform
from tests.helpers import tiny_config

PPO = purerl.PPOConfig
CONTINUOUS = "probe/continuous"
NAN, INF = float("nan"), float("inf")
KEY = jax.random.key(0)
from_dict = serialise.from_dict


class Unbounded(envs.probe.ContinuousProbe):
    def action_space(self, params=None):
        return envs.spaces.Box(-np.inf, np.inf, (1,))


class Lax(envs.CartPole):
    """CartPole with kinds of numbers and of flags that training takes."""

    def step_env(self, key, state, action, params):
        obs, state, reward, _, info = super().step_env(key, state, action, params)
        return obs, state, reward.astype(jnp.bfloat16), np.bool_(False), info

    def is_truncated(self, state, params):
        return False


def make(config=PPO, **fields):
    return purerl.make_train(config(**fields))


def policy_of_three():
    config = PPO(hidden_sizes=(2,))
    init = jax.vmap(purerl.make_algorithm(config).init)
    keys = jax.random.split(KEY, 3)
    return purerl.make_policy(config, jax.eval_shape(init, keys))


def read_yaml(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return serialise.from_yaml(path)


@struct.dataclass
class MeanDrift:
    """A loss that averages, which is the algorithm's."""

    def __call__(self, log_ratio, advantage):
        return (log_ratio * advantage).mean()


# Fields of PPO that are wrong, and what the sentence names.
BAD_FIELDS = [
    ({"env": "CartPole-v2"}, "CartPole-v2.*Did you mean 'CartPole-v1'"),
    ({"env": "halfcheetah"}, "Did you mean 'brax/halfcheetah'"),
    ({"env": "probe/chain", "env_kwargs": {"lenght": 3}}, "lenght.*length"),
    ({"env": "probe/chain", "env_kwargs": {"length": 1}}, "length must be.*1"),
    ({"env_kwargs": "length=3"}, "env_kwargs must map"),
    ({"env": object()}, "env.*object"),
    ({"num_envs": 1, "num_steps": 4, "num_minibatches": 4}, "normalize_advantages"),
    ({"num_steps": 128, "num_minibatches": 6}, "= 512.* num_minibatches, got 6"),
    ({"num_envs": 0}, "num_envs must be greater than 0, got 0"),
    ({"num_envs": 2.5}, "num_envs must be a whole number.*2.5"),
    ({"num_steps": 2**31}, r"num_steps must be at most 2147483647 \(32 bits\)"),
    ({"num_steps": 128, "total_timesteps": 511}, "total_timesteps.*512.*511"),
    ({"total_timesteps": 2**32}, "total_timesteps.*4294967295.*4294967296"),
    *(({"hidden_sizes": x}, "hidden_sizes") for x in ((), 64, "abc", (0,), (1.5,))),
    ({"learning_rate": -1e-3}, "learning_rate must be greater than 0.*-0.001"),
    ({"learning_rate": 1e-320}, "learning_rate must be greater than 0.*1e-320"),
    ({"learning_rate": NAN}, "learning_rate must be finite"),
    ({"learning_rate": np.array([1e-3, 1e-4])}, r"learning_rate.*\(2,\).*jax.vmap"),
    ({"max_grad_norm": 1e39}, "max_grad_norm must be finite"),
    ({"gamma": 1.01}, "gamma must lie between 0 and 1.*1.01"),
    ({"gamma": "high"}, "gamma must be a number.*'high'"),
    ({"gamma": AUTO}, "gamma must be a number, got 'auto'"),
    ({"num_envs": AUTO}, "num_envs must be a whole number"),
    ({"entropy_coef": "atuo"}, "entropy_coef must be a number, got 'atuo'"),
    ({"normalize_rewards": 1}, "normalize_rewards must be True or False"),
    ({"activation": "tahn"}, "activation must be one of.*'tahn'"),
    ({"policy": "gaussian"}, "policy 'gaussian' does not fit"),
    ({"env": CONTINUOUS, "policy": "categorical"}, "policy 'categorical' does not fit"),
    ({"env": Unbounded(), "policy": "tanh_gaussian"}, "'tanh_gaussian'.*bounded"),
    ({"torso_gain": schedules.Linear(0.5, 0.1)}, "torso_gain must be a number"),
    ({"torso": "rnn"}, "torso must be one of.*'rnn'"),
    ({"torso": "cnn"}, r"torso 'cnn'.*\(4,\)"),
    ({"env_params": {"lenght": 1.0}}, "lenght.*Did you mean 'length'"),
    ({"env_params": {"length": np.ones(3)}}, r"length.*\(3,\), expected \(\)"),
    ({"env_params": {"length": "long"}}, "length must be a number.*'long'"),
    ({"env_params": envs.make("probe/chain").default_params}, "env_params.*ChainPar"),
    ({"policy_loss": 0.2}, "policy_loss must be an instance"),
    ({"value_loss": lambda value, target, old: value}, "value_loss.*function"),
    ({"policy_loss": losses.ClipDrift}, "policy_loss.*the class ClipDrift"),
    ({"policy_loss": MeanDrift()}, r"MeanDrift\(\) returned shape \(\) for N = 3"),
]


@pytest.mark.parametrize(("fields", "words"), BAD_FIELDS)
def test_a_wrong_field_is_named(fields, words):
    with pytest.raises(ConfigError, match=words):
        make(**fields)


BAD_OVERRIDES = [
    ("learning_rte", 1e-3, "learning_rte.*Did you mean 'learning_rate'"),
    ("num_envs", 8, "'num_envs' is static"),
    ("learning_rate", None, "override 'learning_rate' must be"),
    ("optimiser", None, "override 'optimiser' must be"),
    ("learning_rate", jnp.array([1e-3, 1e-4]), r"learning_rate.*\(2,\).*jax.vmap"),
    ("policy_loss", 0.1, r"got float\. .* by name: policy_loss\.clip_eps\."),
    ("policy_loss.clip", 0.1, "ClipDrift.*Did you mean 'clip_eps'"),
    ("env_params.lenght", 0.1, "lenght.*Did you mean 'length'"),
    ("policy_loss", losses.SquaredError(), "policy_loss must be a loss of 2 arrays"),
    # Longer than evaluations were planned for.
    ("env_params.max_steps_in_episode", 501, "501.*500.*eval_max_steps"),
]


@pytest.mark.parametrize(("name", "value", "words"), BAD_OVERRIDES)
def test_a_wrong_override_is_named(name, value, words):
    with pytest.raises(ConfigError, match=words):
        make()(KEY, {name: value})


LIMITS = {"env_params.max_steps_in_episode": jnp.array([3, 4])}
CLIPS = {"policy_loss": jnp.array([0.1, 0.2])}
BAD_CALLS = {
    "vmapped clips": (
        lambda _: jax.vmap(make(), (None, 0))(KEY, CLIPS),
        r"policy_loss.*got a traced value of shape \(\)\..*policy_loss.clip_eps",
    ),
    "replace": (lambda _: PPO().replace(num_env=3), "PPOConfig.*mean 'num_envs'"),
    "algorithm": (lambda _: from_dict({"algorithm": "pppo"}), "pppo.* mean 'ppo'"),
    "A2C": (lambda _: config_class("a2c"), "'a2c'.* mean 'ppo with num_epochs=1 and"),
    "no algorithm": (lambda _: make(purerl.config.TrainConfig), "TrainConfig.*import"),
    "a batch of one sample": (
        lambda _: make(purerl.VPGConfig, num_envs=1, num_steps=1),
        "normalize_advantages",
    ),
    "vmapped limits": (
        lambda _: jax.jit(jax.vmap(make(), (None, 0)))(KEY, LIMITS),
        "vmapped.*eval_max_steps",
    ),
    "legacy key": (lambda _: make()(jax.random.PRNGKey(0)), "key must be a typed"),
    "a batch of keys": (lambda _: make()(jax.random.split(KEY)), r"one key.*\(2,\)"),
    "loss": (lambda _: from_dict({"policy_loss": "Clip(eps=)"}), "cannot read the lo"),
    "YAML": (lambda path: read_yaml(path, "a: [1, 2"), "cannot read the config"),
    "code": (lambda path: read_yaml(path, "env: !!python/name:os.system"), "cannot re"),
    "no file": (lambda path: serialise.from_yaml(path / "no.yaml"), "config.*no.yaml"),
    "the policy of a population": (lambda _: policy_of_three(), r"\(3,\) agents"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_gets_a_sentence(case, tmp_path):
    act, words = BAD_CALLS[case]
    with pytest.raises(ConfigError, match=words):
        act(tmp_path)


def test_static_fields_are_structure_and_dynamic_fields_are_leaves():
    config = PPO()
    statics = {field.name for field in static_fields(config)}
    assert {"env", "num_envs", "num_steps", "hidden_sizes", "policy"} <= statics
    leaves, structure = jax.tree.flatten(config)
    numbers = "gamma learning_rate gae_lambda entropy_coef value_coef max_grad_norm"
    assert not statics & set(numbers.split())
    # gamma, learning_rate, gae_lambda, two losses of one number, value, gradient norm,
    # three of Adam, and the two clips of what is normalised; that of entropy is auto.
    assert len(leaves) == 12
    assert len(jax.tree.leaves(purerl.resolve(config))) == 13
    assert structure != jax.tree.structure(config.replace(num_envs=8))
    assert structure == jax.tree.structure(config.replace(gamma=0.5))


def test_a_plain_default_keeps_what_the_class_above_says_of_the_field():
    @config_dataclass
    class Short(PPO):
        num_steps: int = 16
        gae_lambda: float = 0.5

    above, below = (cls.__dataclass_fields__ for cls in (PPO, Short))
    for name, default in (("num_steps", 16), ("gae_lambda", 0.5)):
        assert below[name].metadata == above[name].metadata
        assert getattr(Short(), name) == default
    leaves = jax.tree.leaves(Short())
    assert 0.5 in leaves and 16 not in leaves
    with pytest.raises(ConfigError, match="num_steps must be greater than 0"):
        validate_fields(Short(num_steps=0))


def test_numbers_of_numpy_and_jax_are_taken_for_structure():
    config = PPO(
        hidden_sizes=np.array([8, 16]),
        num_envs=jnp.int32(8),
        total_timesteps=5e5,
        num_steps=np.array(16),
        layer_norm=np.bool_(True),
        torso_gain=np.float32(0.1),
    )
    values = (config.hidden_sizes, config.num_envs, config.num_steps)
    assert values == ((8, 16), 8, 16)
    assert all(type(size) is int for size in config.hidden_sizes)
    assert type(config.total_timesteps) is int
    assert (config.layer_norm, config.torso_gain) == (True, 0.1)
    assert type(config.torso_gain) is float
    assert serialise.from_dict(serialise.to_dict(config)) == config


def test_overrides_do_not_change_their_config_or_themselves():
    config = PPO(env_params={"length": 0.7})
    overrides = {"gamma": 0.5, "env_params.gravity": 5.0, "policy_loss.clip_eps": 0.1}
    new = apply_overrides(config, overrides)
    assert (new.gamma, new.policy_loss) == (0.5, losses.ClipDrift(0.1))
    assert new.env_params == {"length": 0.7, "gravity": 5.0}
    assert (config.gamma, config.policy_loss) == (0.99, losses.ClipDrift(0.2))
    assert config.env_params == {"length": 0.7}
    assert set(overrides) == {"gamma", "env_params.gravity", "policy_loss.clip_eps"}


def test_an_override_reaches_inside_a_whole_parameter_structure():
    params = envs.make("CartPole-v1").default_params
    new = apply_overrides(PPO(env_params=params), {"env_params.length": 0.7})
    assert new.env_params == params.replace(length=0.7)


INSIDE = [
    {"policy_loss": losses.ClipDrift(0.3), "policy_loss.clip_eps": 0.1},
    {"env_params.gravity": 5.0, "env_params": {"length": 0.7}},
]


@pytest.mark.parametrize("overrides", INSIDE)
def test_an_override_inside_another_is_refused(overrides):
    # jax.jit sorts names, so that what holds would depend on who calls.
    with pytest.raises(ConfigError, match="which is inside it"):
        make()(KEY, overrides)


def test_auto_can_be_an_override_where_it_is_a_value_of_the_field():
    new = apply_overrides(PPO(entropy_coef=0.05), {"entropy_coef": "auto"})
    assert new == PPO() and isinstance(new.entropy_coef, Auto)
    with pytest.raises(ConfigError, match="gamma must be a number, got 'auto'"):
        apply_overrides(PPO(), {"gamma": "auto"})


def test_an_override_of_none_trains_as_the_config_with_none():
    config = tiny_config(num_evaluations=0, max_grad_norm=1e-3)
    without = {"max_grad_norm": None, "entropy_coef": "auto"}
    found = jax.make_jaxpr(lambda key: purerl.make_train(config)(key, without))(KEY)
    expected = jax.make_jaxpr(purerl.make_train(config.replace(**without)))(KEY)
    clipped = jax.make_jaxpr(purerl.make_train(config))(KEY)
    assert str(found) == str(expected) != str(clipped)


def test_a_config_survives_dict_and_yaml(tmp_path):
    config = PPO(
        env="probe/chain",
        env_kwargs={"length": 7},
        env_params={"reward": 2.0, "max_steps_in_episode": 4},
        total_timesteps=4096,
        hidden_sizes=(8, 4),
        learning_rate=np.float32(0.1),
        gamma=jnp.float32(0.9),
        policy="categorical",
        normalize_rewards=True,
        policy_loss=losses.DPODrift(1.5, 0.5),
        value_loss=losses.HuberError(2.0),
    )
    plain = serialise.to_dict(config)
    assert plain["algorithm"] == "ppo"
    assert serialise.from_dict(plain) == config
    serialise.to_yaml(config, tmp_path / "config.yaml")
    again = serialise.from_yaml(tmp_path / "config.yaml")
    assert again == config
    assert serialise.to_dict(again) == plain
    purerl.make_train(again)


def test_a_yaml_that_a_person_wrote_is_understood(tmp_path):
    config = read_yaml(
        tmp_path,
        "env: CartPole-v1\n"
        "total_timesteps: 5e5\n"  # YAML 1.1 reads this as a string
        "learning_rate: 1e-3\n"
        "hidden_sizes: [32, 32]\n"
        "policy_loss: DPODrift(alpha=2, beta=0.6)\n"
        "value_loss: {type: HuberError, delta: 2}\n"
        "env_params: {length: 0.7}\n",
    )
    expected = PPO(
        env="CartPole-v1",
        total_timesteps=500_000,
        learning_rate=1e-3,
        hidden_sizes=(32, 32),
        policy_loss=losses.DPODrift(2, 0.6),
        value_loss=losses.HuberError(2),
        env_params={"length": 0.7},
    )
    assert config == expected
    purerl.make_train(config)


PLANS = [
    # 10 updates of 40 steps in 10 + 2 sequential ones; an evaluation takes 2 * 10
    # steps in 10 sequential ones. So share s affords s * 400/20 = 20 s evaluations
    # by steps and s * 120/10 = 12 s by sequence: the smaller counts.
    ({"eval_share": 1.0}, 10, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
    ({"eval_share": 0.2}, 10, (5, 10)),
    ({"eval_share": 0.0}, 10, (10,)),  # the last one always stays
    ({"num_evaluations": 0}, 10, ()),
    ({"eval_share": 1.0, "num_evaluations": 3}, 10, (3, 7, 10)),
    # 459 steps are 11 whole updates.
    ({"eval_share": 0.2, "total_timesteps": 459}, 11, (6, 11)),
]


@pytest.mark.parametrize(("fields", "updates", "after"), PLANS)
def test_the_plan_of_updates_and_evaluations(fields, updates, after):
    config = tiny_config(num_envs=4, num_steps=10, num_epochs=1, eval_max_steps=10)
    changes = {"total_timesteps": 400, "num_evaluations": 20, **fields}
    plan = purerl.train.bind(config.replace(**changes)).plan
    assert (plan.num_updates, plan.steps_per_update) == (updates, 40)
    assert (plan.evaluate_after, plan.eval_max_steps) == (after, 10)


def test_the_longest_evaluation_episode_is_the_time_limit():
    def limit(**fields):
        return purerl.train.bind(PPO(**fields), on_host=True).plan.eval_max_steps

    assert limit() == 500
    assert limit(env_params={"max_steps_in_episode": 77}) == 77
    assert limit(eval_max_steps=9) == 9
    # No run waits longer for an evaluation episode unless it is told to.
    assert limit(env_params={"max_steps_in_episode": 26_000}) == 26_000
    assert limit(env_params={"max_steps_in_episode": 10**9}) == 27_000
    assert limit(env="gymnasium/CliffWalking-v1") == 27_000  # which has no limit
    assert limit(eval_max_steps=10**6) == 10**6


LIMIT = "max_steps_in_episode must be a number of steps from 1 to 2147483647"


BAD_NUMBERS = [
    *(
        ({"max_steps_in_episode": x}, LIMIT)
        for x in (INF, "1e12", 2**31, 0, Uniform(0, 100), Uniform(9, 1e12))
    ),
    (envs.CartPole().default_params.replace(max_steps_in_episode=0), LIMIT),
    ({"max_steps_in_episode": 1.5}, "must be a whole number.* got 1.5"),
    ({"length": None}, "length must be a number"),
    ({"length": schedules.Linear(0.2, 1.0)}, "length must be a number or a dist"),
]


@pytest.mark.parametrize(("values", "words"), BAD_NUMBERS)
def test_a_number_that_an_environment_cannot_hold_is_refused(values, words):
    with pytest.raises(ConfigError, match=f"env_params of CartPole-v1: .*{words}"):
        purerl.resolve(PPO(env_params=values))


def test_what_training_can_take_is_no_error():
    jax.eval_shape(purerl.make_train(tiny_config(env=Lax())), KEY)


def test_configs_with_arrays_inside_can_be_compared():
    learned = losses.MLPValueLoss.make((4,))
    config = tiny_config(value_loss=learned)
    assert config == copy.deepcopy(config)
    other = jax.tree.map(lambda x: x + 1, learned)
    assert config != config.replace(value_loss=other)
    assert config != tiny_config() and config != "a config"
    assert tiny_config() == tiny_config() != tiny_config(gamma=0.5)
    assert hash(tiny_config()) == hash(tiny_config())
    rate = tiny_config(learning_rate=1e-3)
    assert rate == rate.replace(learning_rate=jnp.float32(1e-3))
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: rate == rate.replace(learning_rate=x))(1e-3)
    alike = (tiny_config(env=envs.CartPole()) for _ in range(2))
    assert next(alike) == next(alike)


# Names of other libraries

MEANT = [
    ("ppo", "LR", "learning_rate"),
    ("ppo", "clip_range", "policy_loss.clip_eps"),
    ("ppo", "n-envs", "num_envs"),
    ("ppo", "batch_size", "num_minibatches = num_envs * num_steps / batch_size"),
    ("ppo", "tau", ""),
    ("ppo", "learning_rat", "learning_rate"),
    ("vpg", "clip_eps", ""),
    ("sac", "polyak", "tau = 1 - polyak"),
    ("sac", "ent_coef", "temperature_init"),
]


@pytest.mark.parametrize(("algorithm", "name", "guess"), MEANT)
def test_a_name_of_another_library_gets_a_guess(algorithm, name, guess):
    cls = config_class(algorithm)
    said = f". Did you mean {guess!r}? Fields" if guess else ". Fields"
    unknown = f"{cls.__name__} has no field '{name}'{re.escape(said)}"
    with pytest.raises(UnknownFieldError, match=unknown):
        cls(**{name: 1})
    with pytest.raises(UnknownFieldError, match=unknown):
        serialise.from_dict({"algorithm": algorithm, name: 1})


def test_every_guess_is_an_algorithm_or_a_field_of_some_config():
    known = {f.name for f in dataclasses.fields(losses.ClipDrift)} | {*ALGORITHMS}
    for entry in ALGORITHMS.values():
        known |= {field.name for field in dataclasses.fields(entry.config)}
    for ours, theirs in PEERS.items():
        assert ours.split(" ")[0].split(".")[0] in known, ours
        assert len(set(theirs.split())) == len(theirs.split()), ours
