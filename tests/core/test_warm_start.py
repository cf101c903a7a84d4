"""Warm starts, hooks and frozen parts: what they refuse, and under `vmap`."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import warm_start
from purerl.learning import optimiser
from purerl.learning.optimiser import frozen_in, name_leaves
from purerl.optimisers import AdamW
from purerl.train import bind, make_segment
from tests.helpers import assert_same_bits, tiny_config

CONFIG = tiny_config(total_timesteps=3 * 32, num_evaluations=0)


@pytest.fixture(scope="module")
def agents():
    """Two agents after a whole run."""
    train = purerl.make_train(CONFIG)
    return jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(0), 2)).state


def one(agents, index=0):
    return jax.tree.map(lambda x: x[index], agents)


def begin(config, start, **options):
    """Check the start alone: nothing is trained."""
    train = purerl.make_train(config, **options)
    return jax.eval_shape(lambda key: train(key, start=start), jax.random.key(1))


def test_another_first_update_than_that_of_a_traced_state_does_what_the_page_says():
    config = tiny_config()  # 20 updates of 32 steps
    key = jax.random.key(0)
    begun = jax.jit(purerl.make_algorithm(config).init)(key)
    state = begun._replace(update=begun.update + 10)
    train = purerl.make_train(config, first_update=5)
    with pytest.raises(purerl.ConfigError, match="first_update is 5, and start has"):
        train(key, start=state)
    result = jax.jit(train)(key, start=state)
    steps = 32 * np.arange(6, 21)
    np.testing.assert_array_equal(result.metrics["env_steps"], steps)
    assert int(result.state.update) == 10 + 15
    assert int(result.evaluation["env_steps"][-1]) == 32 * (10 + 15)


@pytest.mark.slow(optimised=False)
def test_vmapped_starts_are_those_of_each_agent(agents):
    """Each lane begins with its own networks, in another pole, at another step size."""
    networks = purerl.networks_of(agents)
    overrides = {
        "env_params.length": jnp.array([0.4, 0.6]),
        "learning_rate": jnp.array([1e-3, 1e-4]),
    }
    train = jax.jit(jax.vmap(purerl.make_train(CONFIG), in_axes=(None, 0, 0)))
    both = train(jax.random.key(7), overrides, networks)
    swapped = jax.tree.map(lambda x: x[::-1], (overrides, networks))
    again = train(jax.random.key(7), *swapped)
    assert_same_bits(one(both, 0), one(again, 1))
    alone = jax.jit(purerl.make_train(CONFIG))
    for lane in range(2):
        single = alone(jax.random.key(7), *one((overrides, networks), lane))
        found, expected = one(both.state.params, lane), single.state.params
        chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=2e-5)


def test_parts_of_networks_are_taken_over_and_the_rest_is_fresh(agents):
    state, key = one(agents), jax.random.key(1)
    torso = purerl.networks_of(state, "torso")
    learned = {n for n in torso if not n.startswith(("obs_", "reward_"))}
    assert learned == {
        f"{net}.torso.Dense_0.{leaf}"
        for net in ("actor", "critic")
        for leaf in ("bias", "kernel")
    }
    # Of a run that begins, only: a step size of zero is none, so freeze all but a bias.
    frozen = ("kernel", "torso", "actor.Dense_0")
    train = purerl.make_train(CONFIG.replace(frozen=frozen))
    after = dict(name_leaves(jax.jit(train)(key, start=torso).state.params))
    init = jax.jit(purerl.make_algorithm(CONFIG).init)
    fresh = dict(name_leaves(init(key).params))
    for name, value in after.items():
        if name in torso:
            np.testing.assert_array_equal(value, torso[name])
        elif name != "critic.Dense_0.bias":
            np.testing.assert_array_equal(value, fresh[name])
    assert not np.array_equal(after["critic.Dense_0.bias"], [0.0])


@pytest.mark.parametrize("flat", [True, False])
def test_a_frozen_layer_keeps_its_bits_under_weight_decay(flat):
    """Minus zero among them; and the norm is that of the layers that learn."""
    params = {"a": jnp.array([-0.0, 3.0]), "b": jnp.array([1.0, 2.0])}
    grads = {"a": jnp.array([300.0, jnp.nan]), "b": jnp.array([3.0, 4.0])}
    restore = None
    if flat:
        params, restore = optimiser.flatten(params)
        grads = optimiser.flatten(grads)[0]
    chosen = AdamW(weight_decay=0.5)
    optim = optimiser.make(chosen, 0.1, 1.0, restore, frozen_in(("a",)))
    plain = optimiser.make(chosen, 0.1, 1.0, restore)
    state = optim.init(params)
    assert jax.tree.structure(state) == jax.tree.structure(plain.init(params))
    moves, state = optim.update(grads, state, params)
    new = jax.tree.map(lambda p, m: p + m, params, moves)
    new = restore(new) if restore else new
    bits = [np.asarray(x).view(np.uint32) for x in (new["a"], jnp.array([-0.0, 3.0]))]
    np.testing.assert_array_equal(*bits)
    # Adam's first step is the step size, and the decay 0.1 * 0.5 of the weight.
    np.testing.assert_allclose(new["b"], [1 - 0.1 - 0.05, 2 - 0.1 - 0.1], rtol=1e-5)
    assert float(optimiser.grad_norm(state)) == 5.0


def networks(agents):
    return purerl.networks_of(one(agents))


STARTS = [
    (one, CONFIG.replace(hidden_sizes=(16,)), r"actor.*\(16, 2\)"),
    (networks, CONFIG.replace(env="Acrobot-v1"), r"0\.bias is float32 \(2,\).*\(3,\)"),
    (networks, purerl.DQNConfig(hidden_sizes=(8,)), r"0\.bias has no place in this"),
    (lambda a: a, CONFIG, r"start holds \(2,\) agents"),
    (purerl.networks_of, CONFIG, r"bias is float32 \(2, 2\).* jax.vmap"),
    (one, CONFIG, "start has done 3 updates, and this run has 3: "),
    (lambda a: {}, CONFIG, "start holds no networks"),
]


@pytest.mark.parametrize(("start", "config", "sentence"), STARTS)
def test_a_start_that_does_not_fit_is_refused(agents, start, config, sentence):
    with pytest.raises(purerl.ConfigError, match=sentence):
        begin(config, start(agents))


def _with_layers(env="CartPole-v1", **changes):
    return CONFIG.replace(env=env, hidden_sizes=(8, 8), **changes)


SCALED = {"normalize_observations": True, "normalize_rewards": True}
PLAIN = dict.fromkeys(SCALED, False)


@pytest.fixture(scope="module")
def deep():
    """Agents of two layers in CartPole, of raw and of scaled observations."""
    return [
        jax.jit(purerl.make_train(_with_layers(**changes)))(jax.random.key(0)).state
        for changes in (PLAIN, SCALED)
    ]


def _started(config, *starts):
    """The networks of fresh agents with what each start gives them."""
    bound = bind(config)
    init = jax.jit(make_segment(bound).init)
    for start in starts:
        state, _ = warm_start.begin(init, jax.random.key(1), start, None, bound, None)
        yield purerl.networks_of(state)


@pytest.mark.parametrize("changes", [PLAIN, SCALED])
def test_a_part_of_raw_observations_begins_in_another_environment(deep, changes):
    """Nothing was scaled, so that there are no statistics to come along."""
    parts = ("actor.torso.Dense_1", "critic.Dense_0")
    starts = [purerl.networks_of(deep[0], part) for part in parts]
    found = _started(_with_layers("Acrobot-v1", **changes), *starts)
    for part, taken, after in zip(parts, starts, found, strict=True):
        assert taken.keys() == {f"{part}.{leaf}" for leaf in ("bias", "kernel")}
        for name, value in taken.items():
            np.testing.assert_array_equal(after[name], value)


def test_a_part_begins_in_another_algorithm(deep):
    """Rewards that were scaled are no reason: what begins has no such statistics."""
    sac = purerl.SACConfig(env="CartPole-v1", hidden_sizes=(8, 8), num_evaluations=0)
    for state, changes in zip(deep, (PLAIN, SCALED), strict=True):
        observing = changes["normalize_observations"]
        config = sac.replace(normalize_observations=observing)
        taken = purerl.networks_of(state, "actor.torso")
        (after,) = _started(config, taken)
        for name in ("actor.torso.Dense_0.kernel", "actor.torso.Dense_1.kernel"):
            np.testing.assert_array_equal(after[name], taken[name])
        if observing:
            assert after["obs_moments.count"] == state.obs_moments.count > 0


def test_statistics_that_were_used_and_do_not_fit_are_the_reason(deep):
    other = _with_layers("Acrobot-v1", **SCALED)
    part = purerl.networks_of(deep[1], "actor.torso.Dense_1")
    sentence = r"^start: obs_moments\.mean is float32 \(4,\), .* come with every part"
    with pytest.raises(purerl.ConfigError, match=sentence):
        begin(other, part)
    # Of raw observations that part fits indeed.
    begin(other, purerl.networks_of(deep[0], "actor.torso.Dense_1"))
    # In a program that is traced nobody knows whether anything was scaled.
    sac = purerl.SACConfig(env="CartPole-v1", hidden_sizes=(8, 8), num_evaluations=0)
    train = purerl.make_train(sac)
    with pytest.raises(purerl.ConfigError, match=r"obs_moments\.\w+ has no place"):
        jax.eval_shape(lambda start: train(jax.random.key(0), start=start), part)


def test_networks_of_normalised_observations_need_normalised_ones(deep):
    """Their statistics would be kept, and nothing would be scaled by them."""
    plain, scaled = deep
    longer = {"total_timesteps": 4 * 32}
    parts = purerl.networks_of(scaled), purerl.networks_of(scaled, "actor")
    for start in (scaled, *parts):
        with pytest.raises(purerl.ConfigError, match=r"start: .* normalised obs"):
            begin(_with_layers(**longer, **PLAIN), start)
        begin(_with_layers(**longer, **SCALED), start)
    # The other way the statistics begin with what is seen from now on.
    begin(_with_layers(**longer, **SCALED), purerl.networks_of(plain))


@pytest.mark.parametrize("take", [lambda state: state, purerl.networks_of])
def test_an_agent_that_diverged_is_no_start(agents, take):
    """One bias of the critic that is no number; with finite ones the start is taken."""
    config = CONFIG.replace(total_timesteps=4 * 32)
    state = one(agents)
    begin(config, take(state))
    critic = state.params["critic"]
    bias = critic["params"]["Dense_0"]["bias"]
    critic = {"params": critic["params"] | {"Dense_0": {"bias": bias * np.nan}}}
    broken = state._replace(params=state.params | {"critic": critic})
    kernel = state.params["critic"]["params"]["Dense_0"]["kernel"]
    critic["params"]["Dense_0"]["kernel"] = kernel
    with pytest.raises(purerl.ConfigError, match=r"Dense_0\.bias holds numbers"):
        begin(config, take(broken))


def test_the_update_of_a_traced_state_must_be_told(agents):
    state, train = one(agents), purerl.make_train(CONFIG)
    with pytest.raises(purerl.ConfigError, match=r"first_update=\.\.\."):
        jax.eval_shape(lambda s: train(jax.random.key(0), start=s), state)
    with pytest.raises(purerl.ConfigError, match="first_update is 2, and no start"):
        begin(CONFIG, None, first_update=2)


REFUSED = [
    (("torsoo",), {}, "frozen: no array of the networks belongs to 'torsoo'"),
    (("actor", "critic"), {}, "frozen: actor, critic are all that this agent learns"),
    ("torso", {}, "frozen must be names"),
    (("actor.Dense",), {}, "'actor.Dense'"),  # whole words only
    ((), {"observe": 3}, "observe must be a function"),
    ((), {"observe": lambda s: s.nothing}, "observe .* failed with AttributeError"),
    ((), {"observe": lambda s: float(s.update)}, "observe .* failed with Concretiz"),
    *(((), {"first_update": number}, "first_update must") for number in (-1, 3, 1.5)),
]


@pytest.mark.parametrize(("frozen", "options", "sentence"), REFUSED)
def test_frozen_parts_hooks_and_first_updates_that_cannot_be(frozen, options, sentence):
    with pytest.raises(purerl.ConfigError, match=sentence):
        config = CONFIG.replace(frozen=frozen, num_evaluations=1)
        purerl.make_train(config, **options)


def test_a_target_that_is_not_given_becomes_a_copy_of_its_network():
    config = purerl.TD3Config(env="Pendulum-v1", hidden_sizes=(4,))
    state = jax.jit(purerl.make_algorithm(config).init)(jax.random.key(0))
    ones = {
        name: np.ones_like(leaf)
        for name, leaf in warm_start.networks_of(state, "actor.torso").items()
        if name.startswith("actor")
    }
    begun = warm_start.put_networks(state, ones)
    torsos = [
        p["actor"]["params"]["torso"] for p in (begun.params, begun.target_params)
    ]
    for leaf in jax.tree.leaves(torsos):
        np.testing.assert_array_equal(leaf, np.ones_like(leaf))
    assert_same_bits(begun.target_params["critics"], state.params["critics"])
