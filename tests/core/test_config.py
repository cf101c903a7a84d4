"""Configs: every refusal in one table, and the ways in and out."""

import copy
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import purerl
from purerl import envs, losses, schedules, serialise
from purerl.acting.environment import bind_params
from purerl.algorithms import ALGORITHMS, config_class
from purerl.config import Auto, ConfigError, apply_overrides, static_fields
from purerl.config.validation import validate_fields
from purerl.randomisation import Uniform
from purerl.train import bind
from tests.helpers import assert_same_bits, slow_but, tiny_config

PPO = purerl.PPOConfig
CONTINUOUS = "probe/continuous"
NAN, INF = float("nan"), float("inf")


def unbounded():
    class Unbounded(envs.probe.ContinuousProbe):
        def action_space(self, params=None):
            return envs.spaces.Box(-np.inf, np.inf, (1,))

    return Unbounded()


class Returning(envs.CartPole):
    """CartPole whose step returns something in the place of a reward or a flag."""

    name = "Returning"

    def __init__(self, changes):
        self.changes = changes

    def changed(self, name, value):
        return self.changes.get(name, lambda x: x)(value)

    def step_env(self, key, state, action, params):
        obs, state, reward, terminated, info = super().step_env(
            key, state, action, params
        )
        reward = self.changed("reward", jnp.float32(reward))
        return obs, state, reward, self.changed("terminated", terminated), info

    def is_truncated(self, state, params):
        return self.changed("truncated", super().is_truncated(state, params))


def train(key, overrides=None, **fields):
    """What a person calls; nothing in the table gets as far as compiling."""
    return purerl.make_train(PPO(**fields))(key, overrides)


def make(**fields):
    return purerl.make_train(PPO(**fields))


def override(name, value, **fields):
    return train(jax.random.key(0), {name: value}, **fields)


def vmapped_limits(limits, **fields):
    train = purerl.make_train(PPO(**fields))
    overrides = {"env_params.max_steps_in_episode": jnp.array(limits)}
    return jax.jit(jax.vmap(train, (None, 0)))(jax.random.key(0), overrides)


def vmapped_policy():
    config = PPO(hidden_sizes=(2,))
    init = jax.vmap(purerl.make_algorithm(config).init)
    purerl.make_policy(config, init(jax.random.split(jax.random.key(0), 3)))


def read_yaml(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return serialise.from_yaml(path)


# What somebody does wrong -> what the sentence must name: the field, the value, the
# constraint, the remedy.
BAD_INPUT = {
    # Names
    "unknown environment": (
        lambda _: make(env="CartPole-v2"),
        ["CartPole-v2", "Did you mean 'CartPole-v1'", "envs.registered()"],
    ),
    "environment without its prefix": (
        lambda _: make(env="halfcheetah"),
        ["halfcheetah", "Did you mean 'brax/halfcheetah'"],
    ),
    "unknown environment option": (
        lambda _: make(env="probe/chain", env_kwargs={"lenght": 3}),
        ["probe/chain", "lenght", "length"],
    ),
    "bad environment option": (
        lambda _: make(env="probe/chain", env_kwargs={"length": 1}),
        ["length must be a whole number of at least 2", "1"],
    ),
    "environment options as text": (
        lambda _: make(env_kwargs="length=3"),
        ["env_kwargs must map names of fields to values, got 'length=3'"],
    ),
    "an object that is no environment": (
        lambda _: make(env=object()),
        ["env", "object", "reset", "gymnax 1.0 contract"],
    ),
    "unknown field in replace": (
        lambda _: PPO().replace(learning_rat=1.0),
        ["PPOConfig", "learning_rat", "Did you mean 'learning_rate'", "Fields:"],
    ),
    "unknown field in from_dict": (
        lambda _: serialise.from_dict({"algorithm": "ppo", "num_env": 3}),
        ["PPOConfig", "num_env", "Did you mean 'num_envs'"],
    ),
    "unknown algorithm": (
        lambda _: serialise.from_dict({"algorithm": "pppo"}),
        ["pppo", "Did you mean 'ppo'"],
    ),
    "a config of no algorithm": (
        lambda _: purerl.make_train(purerl.config.TrainConfig()),
        ["PPOConfig", "TrainConfig"],
    ),
    # Sizes
    "minibatches of one sample": (
        lambda _: make(num_envs=1, num_steps=4, num_minibatches=4),
        ["normalize_advantages=True", "/ num_minibatches leaves one", "would be 0"],
    ),
    "a batch of one sample": (
        lambda _: purerl.resolve(purerl.VPGConfig(num_envs=1, num_steps=1)),
        ["normalize_advantages=True", "num_envs * num_steps leaves one"],
    ),
    "minibatches that do not divide": (
        lambda _: make(num_envs=4, num_steps=128, num_minibatches=6),
        ["num_envs * num_steps (4 * 128 = 512)", "num_minibatches, got 6", "4 or 8"],
    ),
    "no environments": (
        lambda _: make(num_envs=0),
        ["num_envs must be greater than 0", "got 0", "Default: 4"],
    ),
    "half an environment": (
        lambda _: make(num_envs=2.5),
        ["num_envs must be a whole number", "2.5"],
    ),
    "total_timesteps below one update": (
        lambda _: make(num_envs=4, num_steps=128, total_timesteps=511),
        ["total_timesteps", "at least one update of 512", "511"],
    ),
    "total_timesteps past the counter": (
        lambda _: make(total_timesteps=2**32),
        ["total_timesteps", "4294967295", "4294967296"],
    ),
    "no hidden layers": (
        lambda _: make(hidden_sizes=()),
        ["hidden_sizes", "()", "(64, 64)"],
    ),
    # Rates
    "negative learning rate": (
        lambda _: make(learning_rate=-1e-3),
        ["learning_rate must be greater than 0", "-0.001", "Default: 0.00025"],
    ),
    "learning rate of zero in float32": (
        lambda _: make(learning_rate=1e-320),
        ["learning_rate must be greater than 0", "1e-320, which counts as 0 in"],
    ),
    "number that float32 does not hold": (
        lambda _: make(max_grad_norm=1e39),
        ["max_grad_norm must be finite, got 1e+39"],
    ),
    "NaN learning rate": (
        lambda _: make(learning_rate=NAN),
        ["learning_rate must be finite", "nan"],
    ),
    "gamma above one": (
        lambda _: make(gamma=1.01),
        ["gamma must lie between 0 and 1", "1.01", "Default: 0.99"],
    ),
    "a word for a rate": (
        lambda _: make(gamma="high"),
        ["gamma must be a number", "'high'"],
    ),
    "a number for a flag": (
        lambda _: make(normalize_rewards=1),
        ["normalize_rewards must be True or False", "1"],
    ),
    "a vector of learning rates": (
        lambda _: make(learning_rate=np.array([1e-3, 1e-4])),
        ["learning_rate must be a single number", "(2,)", "jax.vmap", "learning_rate"],
    ),
    "unknown choice": (
        lambda _: make(activation="tahn"),
        ["activation must be one of", "tanh", "'tahn'"],
    ),
    # What does not fit the environment
    "continuous policy on discrete actions": (
        lambda _: make(env="CartPole-v1", policy="gaussian"),
        ["CartPole-v1", "'gaussian'", "discrete action space", "use categorical"],
    ),
    "discrete policy on continuous actions": (
        lambda _: make(env=CONTINUOUS, policy="categorical"),
        ["'categorical'", "continuous action space", "gaussian or tanh_gaussian"],
    ),
    "tanh policy on unbounded actions": (
        lambda _: make(env=unbounded(), policy="tanh_gaussian"),
        ["'tanh_gaussian'", "bounded action space", "use gaussian"],
    ),
    "a schedule for a number that is structure": (
        lambda _: make(torso_gain=schedules.Linear(0.5, 0.1)),
        ["torso_gain must be a number", "Linear(start=0.5"],
    ),
    "unknown torso": (
        lambda _: make(torso="rnn"),
        ["torso must be one of auto, mlp, cnn", "'rnn'"],
    ),
    "cnn on a vector": (
        lambda _: make(env="CartPole-v1", torso="cnn"),
        ["CartPole-v1", "torso 'cnn' needs", "(4,)", "use mlp"],
    ),
    "unknown env_params name": (
        lambda _: make(env_params={"lenght": 1.0}),
        ["CartPole-v1", "lenght", "Did you mean 'length'", "Names:"],
    ),
    "env_params of another shape": (
        lambda _: make(env_params={"length": np.ones(3)}),
        ["length", "(3,)", "expected ()", "jax.vmap"],
    ),
    "a word in env_params": (
        lambda _: make(env_params={"length": "long"}),
        ["length must be a number", "'long'"],
    ),
    "env_params of another environment": (
        lambda _: make(env_params=envs.make("probe/chain").default_params),
        ["env_params", "CartPoleParams", "ChainParams"],
    ),
    "a loss that is a number": (
        lambda _: make(policy_loss=0.2),
        ["policy_loss must be a loss", "ClipDrift(0.2)", "0.2"],
    ),
    "a loss that is a function": (
        lambda _: make(value_loss=lambda value, target, old: value - target),
        ["value_loss", "flax.struct.dataclass", "SquaredError()", "adding-loss.md"],
    ),
    "a loss that is a class": (
        lambda _: make(policy_loss=losses.ClipDrift),
        ["policy_loss", "the class ClipDrift", "such as ClipDrift(0.2)"],
    ),
    # Overrides
    "unknown override": (
        lambda _: override("learning_rte", 1e-3),
        ["learning_rte", "Did you mean 'learning_rate'"],
    ),
    "static field overridden": (
        lambda _: override("num_envs", 8),
        ["'num_envs' is static", "config.replace(num_envs=...)", "make_train"],
    ),
    "vector override without vmap": (
        lambda _: override("learning_rate", jnp.array([1e-3, 1e-4])),
        ["learning_rate", "(2,)", "jax.vmap(train, in_axes=(None, 0))"],
    ),
    "unknown override inside a loss": (
        lambda _: override("policy_loss.clip", 0.1),
        ["policy_loss.clip", "ClipDrift", "Did you mean 'clip_eps'"],
    ),
    "unknown override inside env_params": (
        lambda _: override("env_params.lenght", 0.1),
        ["lenght", "Did you mean 'length'"],
    ),
    "a value loss for a policy loss": (
        lambda _: override("policy_loss", losses.SquaredError()),
        ["policy_loss must be a loss of 2 arrays [N]", "SquaredError()"],
    ),
    "a longer time limit than evaluations were planned for": (
        lambda _: override("env_params.max_steps_in_episode", 501),
        ["env_params.max_steps_in_episode", "501", "500", "Set eval_max_steps"],
    ),
    "vmapped time limits": (
        lambda _: vmapped_limits([3, 4]),
        ["env_params.max_steps_in_episode", "traced or vmapped", "eval_max_steps"],
    ),
    # Keys and states
    "legacy key": (
        lambda _: train(jax.random.PRNGKey(0)),
        ["key must be a typed random key", "jax.random.key(0)", "wrap_key_data"],
    ),
    "a batch of keys": (
        lambda _: train(jax.random.split(jax.random.key(0), 3)),
        ["train takes one key", "(3,)", "jax.vmap(train)(keys)"],
    ),
    "the policy of a population": (
        lambda _: vmapped_policy(),
        ["(3,) agents", "jax.tree.map(lambda x: x[i], state)"],
    ),
    # Text
    "bad loss string": (
        lambda _: serialise.from_dict({"policy_loss": "ClipDrift(clip_eps=)"}),
        ["cannot read the loss", "ClipDrift(clip_eps=0.2)"],
    ),
    "bad YAML": (
        lambda tmp_path: read_yaml(tmp_path, "a: [1, 2"),
        ["cannot read the config", "config.yaml"],
    ),
    "YAML that runs code": (
        lambda tmp_path: read_yaml(tmp_path, "env: !!python/name:os.system"),
        ["cannot read the config"],
    ),
    "no such file": (
        lambda tmp_path: serialise.from_yaml(tmp_path / "none.yaml"),
        ["cannot read the config", "none.yaml"],
    ),
}


TRAINS = "the policy of a population"


@pytest.mark.parametrize("case", slow_but(BAD_INPUT, *(BAD_INPUT.keys() - {TRAINS})))
def test_bad_input_gets_a_sentence(case, tmp_path):
    act, fragments = BAD_INPUT[case]
    with pytest.raises(ConfigError) as error:
        act(tmp_path)
    for fragment in fragments:
        assert fragment in str(error.value)


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


def test_whole_floats_are_taken_for_integers():
    config = PPO(total_timesteps=5e5, num_envs=4.0)
    assert config.total_timesteps == 500_000
    assert isinstance(config.total_timesteps, int)
    assert isinstance(config.num_envs, int)
    assert isinstance(PPO().replace(total_timesteps=1e6).total_timesteps, int)


@pytest.mark.parametrize(
    "cls", [PPO, purerl.DQNConfig, purerl.PQNConfig, purerl.SACConfig]
)
@pytest.mark.parametrize("sizes", [64, None, "abc", (0,), (-1,), (1.5,)])
def test_sizes_of_layers_are_positive_whole_numbers(cls, sizes):
    with pytest.raises(ConfigError, match="hidden_sizes must be positive whole"):
        purerl.make_train(cls(hidden_sizes=sizes))


def test_numbers_of_numpy_and_jax_are_taken_for_structure():
    sizes = [np.array([8, 16]), (np.int64(8), np.int32(16)), [8, 16]]
    for given in sizes:
        config = PPO(
            hidden_sizes=given,
            num_envs=jnp.int32(8),
            num_steps=np.array(16),
            layer_norm=np.bool_(True),
            torso_gain=np.float32(0.1),
            eval_share=jnp.float32(0.3),
        )
        values = (config.hidden_sizes, config.num_envs, config.num_steps)
        assert values == ((8, 16), 8, 16)
        assert all(type(size) is int for size in config.hidden_sizes)
        assert (config.layer_norm, config.torso_gain) == (True, 0.1)
        assert (type(config.torso_gain), config.eval_share) == (float, 0.3)
        purerl.make_train(config)
        assert serialise.from_dict(serialise.to_dict(config)) == config


def test_replace_changes_one_field_of_a_copy():
    config = PPO(num_envs=8)
    other = config.replace(gamma=0.5)
    assert (config.gamma, other.gamma, other.num_envs) == (0.99, 0.5, 8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.gamma = 0.5


def test_make_train_does_not_change_its_config():
    config = PPO(env_params={"length": 0.7}, total_timesteps=1e3)
    before = serialise.to_dict(config)
    leaves = jax.tree.leaves(config)
    jax.eval_shape(purerl.make_train(config), jax.random.key(0))
    assert serialise.to_dict(config) == before
    assert all(x is y for x, y in zip(jax.tree.leaves(config), leaves, strict=True))


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


@pytest.mark.parametrize(
    "overrides",
    [
        {"policy_loss": losses.ClipDrift(0.3), "policy_loss.clip_eps": 0.1},
        {"env_params.gravity": 5.0, "env_params": {"length": 0.7}},
    ],
)
def test_an_override_inside_another_is_refused(overrides):
    # jax.jit sorts names, so that what holds would depend on who calls.
    with pytest.raises(ConfigError, match=r"overrides name .*, which is inside it"):
        apply_overrides(PPO(), overrides)
    train = purerl.make_train(PPO(total_timesteps=1e3))
    with pytest.raises(ConfigError, match="which is inside it"):
        jax.eval_shape(lambda: train(jax.random.key(0), overrides))


NUMBERS_OR_NONE = [
    *((cls, "max_grad_norm") for cls in (PPO, purerl.RecurrentPPOConfig)),
    *((cls, "max_grad_norm") for cls in (purerl.DQNConfig, purerl.PQNConfig)),
    (purerl.MPOConfig, "max_grad_norm"),
    *((PPO, name) for name in ("target_kl", "critic_learning_rate")),
    (purerl.SACConfig, "temperature_learning_rate"),
]


@pytest.mark.parametrize(("cls", "name"), NUMBERS_OR_NONE)
def test_a_number_can_be_taken_away_where_a_field_may_be_none(cls, name):
    with_number = cls(**{name: 0.02})
    new = apply_overrides(with_number, {name: None})
    assert getattr(new, name) is None
    assert apply_overrides(new, {name: 0.02}) == with_number


def test_what_may_be_absent_can_be_taken_away_whatever_the_config_has():
    optimiser = purerl.optimisers.OpenOptimiser()
    config = PPO(optimiser=optimiser)
    new = apply_overrides(config, {"optimiser.max_norm": None})
    assert new.optimiser.max_norm is None
    for name in ("learning_rate", "optimiser", "policy_loss"):
        with pytest.raises(ConfigError, match=rf"override '{name}' must be"):
            apply_overrides(config, {name: None})


def test_auto_can_be_an_override_where_it_is_a_value_of_the_field():
    new = apply_overrides(PPO(entropy_coef=0.05), {"entropy_coef": "auto"})
    assert new == PPO() and isinstance(new.entropy_coef, Auto)
    with pytest.raises(ConfigError, match="gamma must be a number, got 'auto'"):
        apply_overrides(PPO(), {"gamma": "auto"})


def test_an_override_of_none_trains_as_the_config_with_none():
    config, without = tiny_config(), {"max_grad_norm": None, "entropy_coef": "auto"}
    key = jax.random.key(0)
    overridden = jax.jit(lambda key: purerl.make_train(config)(key, without))(key)
    expected = jax.jit(purerl.make_train(config.replace(**without)))(key)
    assert_same_bits(overridden, expected)
    clipped = jax.jit(purerl.make_train(config.replace(max_grad_norm=1e-3)))(key)
    with pytest.raises(AssertionError):
        assert_same_bits(clipped.metrics, expected.metrics)


def test_a_loss_without_numbers_can_be_replaced_by_another():
    # It has no leaves, and is no number for that.
    assert isinstance(purerl.PQNConfig().value_loss, losses.SquaredError)
    changes = {"value_loss": losses.HuberError(0.5)}
    new = apply_overrides(purerl.PQNConfig(), changes)
    assert new.value_loss == losses.HuberError(0.5)
    with pytest.raises(ConfigError, match="'learning_rate' must be a number"):
        apply_overrides(purerl.PQNConfig(), {"learning_rate": losses.HuberError(0.5)})


ROUND_TRIPS = {
    "defaults": PPO(),
    "everything plain": PPO(
        env="probe/chain",
        env_kwargs={"length": 7},
        env_params={"reward": 2.0, "max_steps_in_episode": 4},
        total_timesteps=4096,
        hidden_sizes=(8, 4),
        learning_rate=1e-3,
        policy="categorical",
        normalize_rewards=True,
        policy_loss=losses.DPODrift(1.5, 0.5),
        value_loss=losses.HuberError(2.0),
    ),
    "learned losses": PPO(
        policy_loss=losses.MLPDrift.create(jax.random.key(0), 4),
        value_loss=losses.MLPValueLoss.create(jax.random.key(1), (3, 2)),
    ),
    "array numbers": PPO(learning_rate=np.float32(0.1), gamma=jnp.float32(0.9)),
}


def assert_same_config(one, other):
    assert type(one) is type(other)
    for field in static_fields(one):
        assert getattr(one, field.name) == getattr(other, field.name), field.name
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.float32(x), np.float32(y))


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_config_survives_dict_and_yaml(name, tmp_path):
    config = ROUND_TRIPS[name]
    plain = serialise.to_dict(config)
    assert plain["algorithm"] == "ppo"
    assert_same_config(serialise.from_dict(plain), config)
    serialise.to_yaml(config, tmp_path / "config.yaml")
    again = serialise.from_yaml(tmp_path / "config.yaml")
    assert_same_config(again, config)
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
    assert_same_config(config, expected)
    purerl.make_train(config)


@pytest.mark.parametrize(
    ("fields", "updates", "after"),
    [
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
    ],
)
def test_the_plan_of_updates_and_evaluations(fields, updates, after):
    config = PPO(
        num_envs=4,
        num_steps=10,
        num_minibatches=2,
        num_epochs=1,
        eval_episodes=2,
        eval_max_steps=10,
    ).replace(**{"total_timesteps": 400, **fields})
    plan = purerl.train.bind(config).plan
    assert plan.num_updates == updates
    assert plan.steps_per_update == 40
    assert plan.evaluate_after == after
    assert plan.eval_max_steps == 10


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


@pytest.mark.slow
def test_overridden_time_limits_are_those_of_evaluation():
    small = {
        "num_steps": 4,
        "total_timesteps": 16,
        "hidden_sizes": (2,),
        "num_minibatches": 1,
        "num_epochs": 1,
        "eval_episodes": 2,
    }
    # No pole falls within four steps: the lengths are the limits.
    result = vmapped_limits([3, 4], eval_max_steps=4, **small)
    lengths = result.evaluation["episode_length"]
    np.testing.assert_array_equal(lengths, [[[3, 3]], [[4, 4]]])
    # A shorter one needs nothing: the environment itself ends the episode. Nor is a
    # limit of any kind refused where nothing is evaluated.
    name = "env_params.max_steps_in_episode"
    short = jax.eval_shape(lambda: override(name, 100, **small))
    assert short.evaluation["episode_length"].shape == (1, 2)
    small["num_evaluations"] = 0
    long = jax.eval_shape(lambda: override(name, 501, **small))
    assert long.evaluation["episode_length"].shape == (0, 2)


def test_nested_lists_in_options_are_tuples_at_every_depth():
    walls = {
        "walls": [[1, 2], [3, [4]]],
        "more": {"cells": [[0, 1]], "by": [{"a": [1]}]},
    }
    config = purerl.PPOConfig(env_kwargs=walls)
    assert config.env_kwargs["walls"] == ((1, 2), (3, (4,)))
    assert isinstance(hash(config.env_kwargs), int)
    plain = serialise.to_dict(config)
    assert plain["env_kwargs"] == walls
    assert serialise.from_dict(json.loads(json.dumps(plain))) == config


LIMIT = "max_steps_in_episode must be a number of steps from 1 to 2147483647, got "


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_steps_in_episode": INF}, LIMIT + "inf"),
        ({"max_steps_in_episode": "1e12"}, LIMIT),
        ({"max_steps_in_episode": 2**31}, LIMIT + "2147483648"),
        ({"max_steps_in_episode": 0}, LIMIT + "0"),
        ({"max_steps_in_episode": Uniform(0, 100)}, LIMIT + "0"),
        ({"max_steps_in_episode": Uniform(9, 1e12)}, LIMIT + "1000000000000.0"),
        (envs.CartPole().default_params.replace(max_steps_in_episode=0), LIMIT + "0"),
        (
            envs.CartPole().default_params.replace(max_steps_in_episode=INF),
            LIMIT + "inf",
        ),
        ({"max_steps_in_episode": 1.5}, "must be a whole number from .*, got 1.5"),
        ({"length": None}, "length must be a number or a distribution, .* got None"),
        ({"length": purerl.schedules.Linear(0.2, 1.0)}, "must be .* a distribution"),
    ],
)
def test_a_number_that_an_environment_cannot_hold_is_refused(values, words):
    with pytest.raises(ConfigError, match=f"env_params of CartPole-v1: .*{words}"):
        purerl.resolve(PPO(env_params=values))


def test_a_whole_number_stays_in_the_range_of_its_dtype():
    @struct.dataclass
    class Counts:
        count: jax.Array

    class Counting(envs.CartPole):
        @property
        def default_params(self):
            return Counts(jnp.uint8(3))

    words = "count must be a whole number from 0 to 255, got 300"
    for value in (300, -1, INF):
        with pytest.raises(ConfigError, match=words.replace("300", str(float(value)))):
            bind_params(Counting(), {"count": value})
    assert int(bind_params(Counting(), {"count": 255}).count) == 255


def test_a_time_limit_that_nobody_reaches_is_taken():
    params = {"max_steps_in_episode": 1_000_000_000}
    bound = bind(PPO(env_params=params, eval_max_steps=70))
    assert bound.plan.eval_max_steps == 70
    limit = bind_params(bound.env, params).max_steps_in_episode
    assert int(limit) == 1_000_000_000 and limit.dtype == jnp.int32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"terminated": lambda x: jnp.int32(x)}, r"terminated as int32\[\], expected"),
        ({"terminated": lambda x: jnp.float32(x)}, r"terminated as float32\[\]"),
        ({"terminated": lambda x: x[None]}, r"terminated as bool\[1\]"),
        ({"terminated": lambda x: False}, "terminated as a Python bool"),
        ({"terminated": lambda x: None}, "terminated as a Python NoneType"),
        ({"truncated": lambda x: jnp.int32(x)}, r"truncated as int32\[\]"),
        ({"truncated": lambda x: 0}, "truncated as a Python int"),
        ({"reward": lambda x: x[None]}, r"a reward of float32\[1\], expected one num"),
        ({"reward": lambda x: "1"}, "a reward of a Python str"),
    ],
)
def test_an_environment_that_returns_something_else_is_named(changes, words):
    with pytest.raises(ConfigError, match=words) as error:
        bind(PPO(env=Returning(changes)))
    assert "env: Returning: step returns" in str(error.value)
    assert "envs.check(env)" in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": lambda x: jnp.int32(x)},
        {"reward": lambda x: 1},
        {"reward": lambda x: x.astype(jnp.bfloat16)},
        {"truncated": lambda x: False},
        {"terminated": lambda x: np.bool_(False)},
    ],
)
def test_what_training_can_take_is_no_error(changes):
    config = PPO(env=Returning(changes), total_timesteps=64, num_envs=2, num_steps=8)
    jax.eval_shape(purerl.make_train(config), jax.random.key(0))


def test_configs_with_arrays_inside_can_be_compared():
    learned = purerl.losses.MLPValueLoss.make((4,))
    config = tiny_config(value_loss=learned)
    assert config == copy.deepcopy(config)
    other = jax.tree.map(lambda x: x + 1, learned)
    assert config != config.replace(value_loss=other)
    assert config != tiny_config() and config != "a config"
    assert tiny_config() == tiny_config() != tiny_config(gamma=0.5)
    assert hash(tiny_config()) == hash(tiny_config())
    rate = tiny_config(learning_rate=1e-3)
    assert rate == rate.replace(learning_rate=np.float32(1e-3))
    assert rate == rate.replace(learning_rate=jnp.float32(1e-3))
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: rate == rate.replace(learning_rate=x))(1e-3)
    alike = (tiny_config(env=envs.CartPole()) for _ in range(2))
    assert next(alike) == next(alike)


def test_an_unknown_part_gets_a_guess_among_all_kinds():
    with pytest.raises(ConfigError, match=r"no part 'squared'.*'SquaredError'"):
        purerl.serialise.parse_part("squared")
    inside = {"type": "WarmUp", "fraction": {"type": "<here.Mine>"}}
    with pytest.raises(ConfigError, match=r"no part '<here\.Mine>'"):
        purerl.serialise.parse_part(inside)


def _counts():
    """Every field that is a whole number, of every algorithm."""
    return [
        (name, field.name)
        for name in ALGORITHMS
        for field in dataclasses.fields(config_class(name))
        if field.type in (int, "int", "int | None") and field.name != "total_timesteps"
    ]


@pytest.mark.parametrize(("algorithm", "name"), _counts())
def test_a_count_of_more_than_32_bits_is_refused(algorithm, name):
    config = config_class(algorithm)()
    with pytest.raises(
        ConfigError, match=rf"{name} must be at most 2147483647 \(32 bits\)"
    ):
        validate_fields(config.replace(**{name: 2**31}))


LONG = {
    "tuple": tuple(range(1_000)),
    "dict": {str(i): i for i in range(1_000)},
    "text": "x" * 5_000,
    "part": {"type": "x" * 5_000},
}


def test_what_is_long_keeps_its_beginning_and_the_remedy():
    with pytest.raises(ConfigError, match=r"got \(0, 1, 2, .*\.\.\. \(1,000 in all\)"):
        make(num_envs=tuple(range(1_000)))
    told = str(ConfigError(f"x must be 1, got {LONG['tuple']!r}. Give 1."))
    assert told.startswith("x must be 1, got (0, 1,") and told.endswith(" Give 1.")
