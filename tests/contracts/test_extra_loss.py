"""Terms of the user's own in the loss of every learner: `extra_loss`."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from safetensors.numpy import load_file

import purerl
from purerl import serialise
from purerl.config import ConfigError
from purerl.keys import update_keys
from purerl.report.page import folder_page
from tests.contracts.test_algorithms import KEY, SMALL, small
from tests.helpers import StopAfter, assert_same_bits, lane, slow_but
from tests.terms import Critic, Near, Reward

# Learners without a loss of samples.
WITHOUT = ("bandit", "disco", "tabular")
LEARNERS = [name for name in SMALL if name.split("/")[0] not in WITHOUT]
BOTH = {"near": Near(0.0), "reward": Reward(0.0)}
TINY: dict[str, Any] = {"progress": False, "lanes": 2, "segment_updates": 1}


def without(head, tree):
    """A pytree of networks, or of the states of their optimisers, without one."""
    if isinstance(tree, dict):
        return {name: x for name, x in tree.items() if name != head}
    return tree[:-1]  # One optimiser, which has the head's beside it.


# XLA merges operations, and rounds as they are merged, which follows from the whole
# program. Without that the arithmetic is seen. With it these are the same bits too:
EXACT = ("ppo", "vpg", "pqn", "recurrent_ppo", "recurrent_ppo/lru")


def compiled(name, config, *overrides):
    lowered = jax.jit(purerl.make_train(config)).lower(KEY, *overrides)
    apart = {"xla_disable_hlo_passes": "fusion"}
    return lowered.compile(compiler_options=None if name in EXACT else apart)


@pytest.mark.parametrize("name", slow_but(LEARNERS, "ppo", "recurrent_ppo", "td3"))
def test_coefficients_of_zero_are_the_plain_algorithm_and_others_are_not(name):
    numbers = [
        {f"extra_loss.{term}.coef": jnp.float32(coef) for term in BOTH}
        for coef in (0.0, 1.0)
    ]
    # An evaluation has no terms: it is looked at where programs are small.
    config = small(name) if name in EXACT else small(name, num_evaluations=0)
    plain = compiled(name, config)(KEY)
    train = compiled(name, config.replace(extra_loss=BOTH), numbers[0])
    zero = train(KEY, numbers[0])
    state = zero.state._replace(
        params=without("reward", zero.state.params),
        opt_state=without("reward", zero.state.opt_state),
    )
    if hasattr(state, "target_params"):
        targets = without("reward", state.target_params)
        state = state._replace(target_params=targets)
    assert_same_bits(state, plain.state)
    metrics = {x: zero.metrics[x] for x in plain.metrics}
    assert_same_bits((metrics, zero.evaluation), (plain.metrics, plain.evaluation))

    one = train(KEY, numbers[1])
    for term in BOTH:
        last = np.asarray(one.metrics[term])[-1]
        assert np.isfinite(last) and last > 0
    before = jax.tree.leaves(without("reward", zero.state.params))
    after = jax.tree.leaves(without("reward", one.state.params))
    assert any((x != y).any() for x, y in zip(before, after, strict=True))
    head = zero.state.params["reward"], one.state.params["reward"]
    assert any((x != y).any() for x, y in zip(*map(jax.tree.leaves, head), strict=True))


@pytest.mark.parametrize("shared_torso", [False, True])
def test_a_term_asks_the_critic_for_the_values_of_the_rollout(shared_torso):
    # In the first of all gradient steps its parameters are those of the rollout.
    once = {"num_epochs": 1, "num_minibatches": 1, "shared_torso": shared_torso}
    once |= {"num_evaluations": 0}
    config = small("ppo", extra_loss={"critic": Critic()}, **once)
    found = jax.jit(purerl.make_train(config))(KEY).metrics["critic"]
    assert found[0] < 1e-9 and np.isfinite(found).all()


@pytest.mark.parametrize("name", WITHOUT)
def test_learners_without_a_loss_of_samples_refuse_terms(name):
    with pytest.raises(ConfigError, match=r"extra_loss must be None in .*got near"):
        purerl.make_train(small(name, extra_loss=Near()))


@pytest.mark.parametrize("name", ["ppo", "vpg", "dqn", "sac"])
def test_no_random_key_is_used_twice(name):
    config = small(name, extra_loss=BOTH, num_evaluations=0)
    with jax.debug_key_reuse(True):
        jax.eval_shape(purerl.make_train(config), KEY)


@struct.dataclass
class Parameters:
    """Half the squared norm of the parameters, whose gradient is the parameters."""

    coef: float = 1.0

    def __call__(self, params, batch, apply, key):
        total = sum(jnp.square(x).sum() for x in jax.tree.leaves(params["actor"]))
        return 0.5 * total * jnp.ones_like(batch.reward)


def test_the_gradient_is_that_of_the_coefficient_times_the_mean():
    # One step of SGD on the term alone shrinks the actor by `rate * coef`.
    config = small(
        "vpg",
        learning_rate=0.1,
        optimiser=purerl.optimisers.SGD(),
        normalize_advantages=False,
        extra_loss=Parameters(3.0),
    )
    algorithm = purerl.make_algorithm(config)
    plain = purerl.make_algorithm(config.replace(extra_loss=None))

    @jax.jit
    def actors(key):
        state = algorithm.init(key)
        states = state, *(a.step(state)[0] for a in (algorithm, plain))
        return [jax.tree.leaves(s.params["actor"]) for s in states]

    for before, with_term, own in zip(*actors(KEY), strict=True):
        np.testing.assert_allclose(with_term, own - 0.1 * 3.0 * before, atol=1e-6)


@struct.dataclass
class Drawn:
    """The first number of its key."""

    coef: float = 0.0

    def __call__(self, params, batch, apply, key):
        return jax.random.uniform(key) * jnp.ones_like(batch.reward)


def test_terms_over_a_whole_rollout_draw_from_the_key_that_learning_draws_from():
    # The fourth key of the update; the numbers are those of `keys` and `own_terms`.
    terms = {"one": Drawn(), "two": Drawn()}
    algorithm = purerl.make_algorithm(small("vpg", extra_loss=terms))
    state, step = jax.jit(algorithm.init)(KEY), jax.jit(algorithm.step)
    for _ in range(2):
        key = jax.random.fold_in(update_keys(state, 4)[3], np.uint32(2**32 - 1))
        state, metrics = step(state)
        for number, name in enumerate(terms):
            drawn = jax.random.uniform(jax.random.fold_in(key, number))
            np.testing.assert_allclose(metrics[name], drawn, rtol=1e-6)


@struct.dataclass
class Mean:
    """A head of one number that regresses on the discount; and what it was given."""

    coef: float = 1.0

    def init(self, params, batch, apply, key):
        assert set(params) == {"actor", "critic"} and batch.reward.shape == (1,)
        return jnp.zeros(())

    def __call__(self, params, batch, apply, key):
        assert params["head"].shape == () and batch.own.advantage.ndim == 1
        return 0.5 * jnp.square(params["head"] - batch.discount)


def test_a_head_learns_by_its_term_alone():
    config = small("ppo", extra_loss=Mean(), gamma=0.9, learning_rate=0.05)
    config = config.replace(anneal_learning_rate=False, total_timesteps=30 * 32)
    config = config.replace(num_evaluations=0)
    result = jax.jit(purerl.make_train(config))(KEY)
    assert abs(float(result.state.params["mean"]) - 0.9) < 0.1
    assert result.metrics["mean"][0] > 10 * result.metrics["mean"][-1]


@struct.dataclass
class NoCoefficient:
    weight: float = 1.0

    def __call__(self, params, batch, apply, key):
        return batch.reward


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda params, batch, apply, key: batch.reward, "dataclass with coef and __"),
        (0.1, "must be an instance of a flax.struct.dataclass"),
        (NoCoefficient(), "must have a field coef.*add coef: float"),
        (Near(float("nan")), "extra_loss.coef must be finite"),
        (Near("much"), "must have a field coef, one number"),
        (Near(jnp.ones(3)), "must have a field coef, one number"),
        ({"a": Near(), "b": 1.0}, "extra_loss.b must be"),
        ((Near(), Near(0.2)), "two terms 'near'"),
        ({"not a word": Near()}, "names of extra_loss must be words"),
        ({"entropy": Near()}, "entropy is reported already; give the term another"),
        ({"update": Near()}, "update is reported already"),  # A row's number.
        ({"segment": Near()}, "segment is reported already"),  # A sweep's axis.
        ({"actor": Reward()}, "actor is the name of a network"),
    ],
)
def test_what_is_no_term_is_refused(value, words):
    with pytest.raises(ConfigError, match=words):
        purerl.make_train(small("ppo", extra_loss=value))


def test_overrides_name_terms():
    both = (Near(), Reward())
    one, several = (
        purerl.make_train(small("ppo", extra_loss=terms, num_evaluations=0))
        for terms in (Near(), both)
    )
    for train, names in ((one, ["coef"]), (several, ["near.coef", "reward.coef"])):
        jax.eval_shape(train, KEY, {f"extra_loss.{name}": 0.5 for name in names})
    with pytest.raises(ConfigError, match="extra_loss is None, which has nothing"):
        purerl.make_train(small("ppo"))(KEY, {"extra_loss.coef": 0.5})
    with pytest.raises(ConfigError, match="no field 'weight'"):
        one(KEY, {"extra_loss.weight": 0.5})


NAMED = {"far": Near(0.5), "reward": Reward(network=nn.Dense(1, use_bias=False))}


@pytest.mark.parametrize("value", [None, Near(0.25), (Near(), Reward()), NAMED])
def test_terms_are_written_and_read_again(value, tmp_path):
    config = small("ppo", extra_loss=value)
    serialise.to_yaml(config, tmp_path / "config.yaml")
    back = serialise.from_yaml(tmp_path / "config.yaml")
    assert back == config and jax.tree.structure(back) == jax.tree.structure(config)
    text = serialise.part_text(config.extra_loss)
    field = type(config).__dataclass_fields__["extra_loss"]
    assert config.replace(extra_loss=serialise.parse_value(field, text)) == config


def test_a_run_is_resumed_from_its_folder_and_exported_without_its_heads(tmp_path):
    config = small("ppo", extra_loss=(Near(), Reward()), num_evaluations=0)
    whole = purerl.run(config, seeds=2, out=tmp_path / "whole", **TINY)
    stop = {"trackers": [StopAfter(1)], "checkpoint_seconds": 0.0}
    purerl.run(config, seeds=2, out=tmp_path / "cut", **stop, **TINY)
    again = serialise.from_yaml(tmp_path / "cut" / "config.yaml")
    resumed = purerl.run(again, seeds=2, out=tmp_path / "cut", resume=True, **TINY)
    assert resumed.finished
    assert_same_bits((resumed.state, resumed.metrics), (whole.state, whole.metrics))
    loaded = purerl.load(tmp_path / "cut")
    assert loaded.config.extra_loss == config.extra_loss
    np.testing.assert_array_equal(loaded.metrics["reward"], whole.metrics["reward"])
    out = purerl.export_policy(config, lane(whole.state, 0), tmp_path / "policy")
    weights = load_file(out / "weights.safetensors")
    networks = {name.partition(".")[0] for name in weights}
    assert networks == {"actor", "critic"}


def test_coefficients_are_evolved_into_a_folder(tmp_path):
    config = small("ppo", extra_loss=(Near(), Reward()), num_evaluations=0)
    size = {"population": 2, "rollouts": 1, "generations": 1, "progress": False}
    found = purerl.evolve(config, "extra_loss.near.coef", out=tmp_path, **size)
    learned = serialise.from_yaml(tmp_path / "learned.yaml")
    assert learned.extra_loss["near"].coef == found.solution["extra_loss.near.coef"]
    assert learned.extra_loss["near"].coef != Near().coef
    assert folder_page(tmp_path).exists()
