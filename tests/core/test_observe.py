"""Observations: features, parts, masks, statistics, and what a policy takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks
from purerl.acting.policy import RecurrentPolicy, recurrence_of
from purerl.config import ConfigError
from purerl.envs.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from purerl.learning import averages
from purerl.networks import observe
from purerl.networks.distributions import CategoricalHead
from purerl.networks.observe import completed, to_features
from purerl.types import Algorithm, Recurrence
from tests.contracts.test_algorithms import small
from tests.helpers import tiny_config

NESTED = Dict(
    {
        "picture": Box(0, 255, (1, 2, 3), np.uint8),
        "inner": Tuple((Discrete(3), Box(-1.0, 1.0, ()), MultiDiscrete([2, 3]))),
        "flags": MultiBinary(2),
    }
)
MASK = jnp.array([[True, False, True, False], [False, False, False, True]])


def member(batch=()):
    """An observation of `NESTED`, the same in every place of a batch."""
    obs = {
        "picture": jnp.array([0, 51, 255, 0, 0, 0], jnp.uint8).reshape(1, 2, 3),
        "inner": (jnp.int32(1), jnp.float32(0.5), jnp.array([1, 2])),
        "flags": jnp.array([1, 0], jnp.int8),
    }
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*batch, *x.shape)), obs)


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_every_part_becomes_features_of_its_own_kind(batch):
    assert bool(NESTED.contains(member()))
    features = observe.to_features(NESTED, member(batch))
    shapes = jax.tree.map(lambda x: x.shape[len(batch) :], features)
    assert shapes == observe.obs_shape(NESTED)
    one = jax.tree.map(lambda x: x[(0,) * len(batch)], features)
    np.testing.assert_allclose(
        one["picture"].ravel(), [0.0, 0.2, 1.0, 0.0, 0.0, 0.0], rtol=1e-6
    )
    hot, number, several = one["inner"]
    np.testing.assert_array_equal(hot, [0, 1, 0])
    np.testing.assert_array_equal(number, 0.5)
    np.testing.assert_array_equal(several, [0, 1, 0, 0, 1])
    np.testing.assert_array_equal(one["flags"], [1.0, 0.0])
    assert {x.dtype for x in jax.tree.leaves(features)} == {jnp.dtype("float32")}


def test_a_mask_is_no_feature_and_where_nothing_is_valid_everything_is():
    space = Dict({"action_mask": MultiBinary(3), "x": Box(-1.0, 1.0, (1,))})
    obs = {"action_mask": jnp.array([[0, 1, 0], [0, 0, 0]], jnp.int8)}
    features = observe.to_features(space, obs | {"x": jnp.zeros((2, 1))})
    mask = features["action_mask"]
    assert mask.dtype == jnp.bool_
    np.testing.assert_array_equal(mask, [[False, True, False], [True, True, True]])
    # No network sees it: not by default, and not by any keys.
    shape = observe.obs_shape(space)
    assert observe.visible(shape) == {"x": (1,)}
    torso = observe.viewed(networks.make_torso("mlp", {"x": (1,)}, (4,), "tanh"), shape)
    params = jax.jit(torso.init)(jax.random.key(0), features)
    changed = features | {"action_mask": ~mask}
    np.testing.assert_array_equal(
        jax.jit(torso.apply)(params, features), jax.jit(torso.apply)(params, changed)
    )


def test_statistics_are_those_of_every_part_of_floats_and_of_no_other():
    space = Dict(
        {"a": Box(-1.0, 1.0, (2,)), "b": Discrete(2), "c": Box(-9, 9, (), np.int32)}
    )
    key_a, key_c = jax.random.split(jax.random.key(0))
    features = {
        "a": jax.random.normal(key_a, (50, 2)),
        "b": jax.nn.one_hot(jnp.arange(50) % 2, 2),
        "c": 3.0 + 2.0 * jax.random.normal(key_c, (50,)),
    }
    moments = observe.merge_moments(space, observe.init_moments(space), features, None)
    assert moments[1] == ()
    scaled = observe.normalised(space, moments, features, 5.0)
    np.testing.assert_array_equal(scaled["b"], features["b"])
    for key, place in (("a", 0), ("c", 2)):
        alone = averages.merge(
            averages.init_moments(features[key].shape[1:]), features[key]
        )
        np.testing.assert_array_equal(moments[place].mean, alone.mean)
        np.testing.assert_allclose(scaled[key].mean(0), 0.0, atol=1e-5)
        np.testing.assert_allclose(scaled[key].std(0), 1.0, atol=1e-3)


def test_parts_stand_side_by_side_before_the_dense_layers():
    shapes = {"p": (5, 4, 2), "v": (2,), "w": ()}
    torso = networks.make_torso("auto", shapes, (6,), "relu")
    keys = jax.random.split(jax.random.key(0), 4)
    obs = {
        n: jax.random.normal(k, (3, *s))
        for k, (n, s) in zip(keys, shapes.items(), strict=False)
    }
    params = jax.jit(torso.init)(keys[3], obs)
    kernel = params["params"]["mlp"]["Dense_0"]["kernel"]
    assert kernel.shape == (3 * 2 * 16 + 2 + 1, 6)
    dense = params["params"]["mlp"]["Dense_0"]
    conv = networks.CNN((), "relu").apply(
        {"params": params["params"]["encoders_0"]}, obs["p"]
    )
    joined = jnp.concatenate([conv, obs["v"], obs["w"][:, None]], -1)
    expected = jax.nn.relu(joined @ dense["kernel"] + dense["bias"][None])
    np.testing.assert_allclose(
        jax.jit(torso.apply)(params, obs), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("mask", [MASK, jnp.zeros_like(MASK)])
def test_gradients_are_zero_for_invalid_actions_and_never_nan(mask):
    """Two valid, one alone, and none at all."""
    head = CategoricalHead(4)

    def loss(logits):
        outputs = observe.exclude(logits, mask)
        taken = jnp.argmax(outputs, -1)
        return (head.log_prob(outputs, taken) + 0.7 * head.entropy(outputs)).sum()

    logits = jnp.array([[0.3, 9.0, -1.0, 2.0], [0.3, 9.0, -1.0, 2.0]])
    value, slope = jax.jit(jax.value_and_grad(loss))(logits)
    assert np.isfinite(value) and np.isfinite(slope).all()
    np.testing.assert_array_equal(slope[~mask], 0.0)
    if mask.any():
        assert (slope[0, jnp.array([0, 2])] != 0.0).all()
        np.testing.assert_array_equal(slope[1], 0.0)  # one action: nothing to learn


def test_the_dueling_mean_is_that_of_the_valid_actions():
    shape = {"action_mask": (4,), "x": (3,)}
    torso = networks.make_torso("mlp", {"x": (3,)}, (5,), "tanh")
    torso = observe.viewed(torso, shape)
    critic = networks.DiscreteCritic(
        torso, 4, lambda: networks.MLP((5,), "tanh"), dueling=True, masked=True
    )
    seen = {"action_mask": MASK, "x": jax.random.normal(jax.random.key(0), (2, 3))}
    params = jax.jit(critic.init)(jax.random.key(1), seen)
    found = jax.jit(critic.apply)(params, seen)
    # Without a mask the mean over the actions is the value, and the rest advantages.
    plain = np.asarray(jax.jit(critic.clone(masked=False).apply)(params, seen))
    of_valid = plain.mean(-1, where=np.asarray(MASK), keepdims=True)
    expected = plain - of_valid + plain.mean(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert np.abs(plain - found).max() > 1e-3


# What a policy takes

KEY = jax.random.key(0)

BYTES = jnp.array([0, 51, 255], jnp.uint8).reshape(1, 1, 3)


NO_PICTURES = [
    Box(0, 255, (1, 1, 3), np.float32),  # in its own units
    Box(0, 1, (1, 1, 3), np.uint8),  # planes of zeros and ones
    Box(0, 255, (3,), np.uint8),  # no image
]


@pytest.mark.parametrize("space", NO_PICTURES)
def test_other_numbers_stay_as_they_are(space):
    obs = BYTES.astype(space.dtype).reshape(space.shape)
    np.testing.assert_array_equal(to_features(space, obs), obs)


PARTS = Dict({"a": Box(-1, 1, (4,)), "b": Discrete(3)})


MISSHAPEN = [
    (Box(-1, 1, (4,)), np.zeros(3), r"shape \(4,\), or axes .*, got \(3,\)"),
    (Box(-1, 1, (4,)), 0.0, r"shape \(4,\), .*, got \(\)"),
    (Box(-1, 1, (4,)), np.zeros((4, 2)), r"got \(4, 2\)"),
    (Box(-1, 1, (4,)), [[1.0, 2.0], [3.0]], "got list"),
    (Box(-1, 1, (4,)), {"a": np.zeros(4)}, "got dict"),
    (PARTS, {"a": np.zeros((5, 3)), "b": np.zeros(5, int)}, r"at 'a'.*\(5, 3\)"),
    (PARTS, {"a": np.zeros((5, 4)), "b": np.zeros(4, int)}, r"\(5,\) of a and \(4,\)"),
]


@pytest.mark.parametrize(("space", "obs", "words"), MISSHAPEN)
def test_an_observation_of_another_shape_is_refused(space, obs, words):
    with pytest.raises(ConfigError, match=words):
        completed(space, obs, ())


def policy_of(config):
    """The policy of a fresh agent."""
    state = jax.jit(purerl.make_algorithm(config).init)(KEY)
    return purerl.make_policy(config, state)


def test_a_policy_takes_lists_and_names_what_it_expects():
    policy, pair = policy_of(tiny_config()), np.zeros((2, 4))
    assert policy(np.zeros((0, 4))).shape == (0,)
    for obs in ([0.0] * 4, (0.0,) * 4):
        assert policy(obs).shape == ()
    for name in ("threefry2x32", "rbg"):
        with jax.default_prng_impl(name):
            key = jax.random.PRNGKey(0)
            assert policy(pair, key).shape == (2,)
            with pytest.raises(ConfigError, match="one key for all observations"):
                policy(pair, jnp.stack([key, key]))
    for arguments, words in (
        ((np.zeros(3),), r"shape \(4,\), .* got \(3,\)"),
        (([0.0] * 3,), r"shape \(4,\), .* got \(3,\)"),
        ((np.zeros(4), 1), "key of a policy must be one key"),
        ((pair, jax.random.split(KEY)), "one key for all observations"),
    ):
        with pytest.raises(ConfigError, match=words):
            policy(*arguments)


def test_a_policy_with_a_memory_takes_a_number_of_episodes_and_refuses_a_key():
    policy = policy_of(small("recurrent_ppo"))
    assert isinstance(policy, RecurrentPolicy)
    shapes = [jax.tree.map(jnp.shape, policy.init(batch)) for batch in (3, (3,))]
    assert shapes[0] == shapes[1]
    for key in (KEY, jax.random.PRNGKey(0)):
        with pytest.raises(ConfigError, match="begin with memory = policy"):
            policy(np.zeros(4), key)


def remembering():
    """An algorithm that adds up what it saw; its state is a factor."""

    def act(state, obs, memory, key=None):
        del key
        memory = memory + obs[..., 0]
        return (state * memory > 0).astype(jnp.int32), memory

    def refuse(*args):
        raise AssertionError("acted without its memory")

    recurrence = Recurrence(lambda shape: jnp.zeros(shape), act)
    return Algorithm(lambda key: key, lambda state: (state, {}), refuse, recurrence)


def test_a_policy_with_a_memory_goes_its_way_step_by_step():
    algorithm = remembering()
    assert recurrence_of(algorithm) is algorithm.recurrence
    policy = RecurrentPolicy(algorithm.recurrence, 2.0, remembering)
    memory = policy.init()
    observations, expected = [1.0, -3.0, 1.0, 2.0], [1, 0, 0, 1]  # sums 1 -2 -1 1
    for obs, action in zip(observations, expected, strict=True):
        acted, memory = policy(np.array([obs]), memory)
        assert acted == action
    assert policy.restart(memory, True) == 0
    assert policy.restart(memory, False) == memory == 1

    batch = policy.init((3,))
    _, batch = policy(np.array([[1.0], [2.0], [3.0]]), batch)
    kept = policy.restart(batch, np.array([False, True, False]))
    np.testing.assert_array_equal(kept, [1.0, 0.0, 3.0])
