"""PPO as an accelerator computes it is PPO: the same update, in fewer kernels."""

from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import purerl
from purerl import networks, optimisers
from purerl.accelerator import columns, paired
from purerl.accelerator.kernels import traced_for
from purerl.algorithms import on_policy, policy_gradient, ppo
from tests.algorithms.agents import agent_of
from tests.helpers import assert_close, assert_same_bits, slow_but

SAMPLES = 216  # 72 a minibatch: products of at most 64 rows are written as sums.


SMALL = purerl.PPOConfig(
    num_envs=4,
    num_steps=6,
    num_epochs=2,
    num_minibatches=3,
    hidden_sizes=(5, 5),
    total_timesteps=480,
    num_evaluations=0,
    max_grad_norm=0.05,  # so that it clips
)


@cache
def case(config):
    """What `on_policy.fit` takes, and parameters and moments away from their start."""
    parts = agent_of(config)
    keys = jax.random.split(jax.random.key(0), 3)
    state = jax.jit(on_policy.algorithm(parts, ppo.learn).init)(keys[0])

    def moved(x):
        shift = 0.1 * np.arange(x.size).reshape(x.shape) / x.size
        return jnp.asarray((np.asarray(x) + shift).astype(x.dtype))

    params, opt_state = jax.tree.map(moved, (state.params, state.opt_state))
    state = state._replace(params=params, opt_state=opt_state)
    collect = partial(on_policy.collect, parts)
    sample = jax.eval_shape(collect, state, keys).transitions
    rng = np.random.default_rng(0)

    def draw(*shape):
        return np.float32(rng.normal(size=(SAMPLES, *shape)))

    obs, action = (draw(*like.shape[2:]) for like in (sample.obs, sample.action))
    numbers = [draw() for _ in range(4)]
    batch = policy_gradient.Batch(
        obs=obs,
        action=(action > 0).astype(np.int32) if parts.head.is_discrete else action,
        log_prob=np.float32(-0.7 + 0.1 * numbers[0]),
        value=numbers[1],
        advantage=numbers[2],
        target=numbers[3],
    )
    return parts, state, batch, keys[0]


def fitted(config, platform):
    """What `on_policy.fit` makes of a case, and the products of a gradient step."""
    parts, *given = case(config)

    def fit(state, batch, key):
        with traced_for(platform):
            steps = jax.tree.map(lambda x: x[None], batch)
            played = SimpleNamespace(transitions=steps)
            return on_policy.fit(parts, state, played, ppo.loss, steps, key)

    traced = jax.jit(fit).trace(*given)
    products = str(traced.jaxpr).count("dot_general[")
    return traced.lower().compile()(*given), products


def of_one(layers):
    """Products of a gradient step of one network of some layers.

    One forward and two backward for each layer; the first passes no gradient on, and
    the last has few outputs, of which sums pass it on.
    """
    return 3 * layers - 2


def of_two(layers):
    """Products of a gradient step of two networks of some layers each."""
    return 2 * (3 * layers - 1)


UPDATES = {
    "discrete": ({}, of_one(3)),
    "gaussian": ({"env": "Pendulum-v1", "hidden_sizes": (7,)}, of_one(2)),
    "ends-early": ({"normalize_advantages": False, "target_kl": 1e-9}, of_one(3)),
    "adamw": ({"hidden_sizes": (4, 3, 3), "optimiser": optimisers.AdamW()}, of_one(4)),
    "whole-batch": ({"normalize_whole_batch": True, "activation": "relu"}, of_one(3)),
    "two-rates": ({"critic_learning_rate": 1e-3}, of_two(3)),
    "frozen": ({"frozen": ("critic.Dense_0",)}, of_two(3)),
    "layer-norm": ({"layer_norm": True}, of_two(3)),
    "shared": ({"shared_torso": True}, 3 * 2 - 1 + 2 * 3),
}


@pytest.mark.parametrize(
    "name", slow_but(UPDATES, "discrete", "gaussian", "ends-early")
)
def test_an_accelerators_update_is_the_one_of_a_cpu(name):
    changes, products = UPDATES[name]
    known, _ = fitted(SMALL.replace(**changes), "cpu")
    found, counted = fitted(SMALL.replace(**changes), "cuda")
    assert jax.tree.structure(found) == jax.tree.structure(known)
    assert_close(found, known, atol=1e-5)
    assert counted == products


@pytest.mark.parametrize(
    "name", slow_but(["Adam", "AdamW", "SGD", "RMSProp", "RAdam", "Lion"], "Adam")
)
def test_what_fills_up_a_pair_stays_zero(name):
    made = optimisers.OPTIMISERS[name]()
    parts, state, batch, _ = case(SMALL.replace(optimiser=made))
    pair = paired.join(parts.actor, state.params)
    optim = made(0.1)
    inputs = paired.with_ones(batch.obs)

    def loss(pair):
        outputs, values = pair(inputs)
        return (jnp.stack(outputs) ** 2).sum() + (values**2).sum()

    opt_state, moved = optim.init(pair), pair

    @jax.jit
    def step(moved, opt_state):
        updates, opt_state = optim.update(jax.grad(loss)(moved), opt_state, moved)
        return jax.tree.map(jnp.add, moved, updates), opt_state

    for _ in range(3):
        moved, opt_state = step(moved, opt_state)
    again = paired.join(parts.actor, paired.split(moved, state.params))
    assert_same_bits(moved, again)
    pairs = zip(*map(jax.tree.leaves, (pair, moved)), strict=True)
    assert all((before != after).any() for before, after in pairs)


def test_a_head_that_knows_no_columns_gets_the_whole():
    parts, state, batch, _ = case(SMALL)
    pair, inputs = paired.join(parts.actor, state.params), paired.with_ones(batch.obs)
    known = parts.actor.apply(state.params["actor"], batch.obs)
    value = parts.critic.apply(state.params["critic"], batch.obs)
    several = networks.distributions.BernoulliHead((2,))
    for head, is_list in ((parts.head, True), (several, False)):
        found, values, _ = paired.forward(head, pair, inputs)
        assert isinstance(found, list) == is_list
        whole = jnp.stack(found, -1) if is_list else found
        np.testing.assert_allclose(whole, known, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(values, value, rtol=1e-5, atol=1e-6)


def test_networks_of_other_kinds_are_no_pair():
    torso, critic = networks.MLP((4,), "tanh"), networks.Critic
    actor = networks.CategoricalActor
    assert paired.can_be_paired(actor(torso, 2), critic(torso))
    assert paired.can_be_paired(networks.GaussianActor(torso, 2), critic(torso))
    for one, other in (
        (networks.MLP((5,), "tanh"), torso),
        (networks.MLP((4,), "relu"), torso),
        (networks.MLP((4,), "tanh", dtype=jnp.bfloat16),) * 2,
        (networks.MLP((4,), "tanh", layer_norm=True),) * 2,
        (networks.MLP((), "tanh"),) * 2,
        (networks.CNN((4,), "tanh"),) * 2,
    ):
        assert not paired.can_be_paired(actor(one, 2), critic(other))
    assert not paired.can_be_paired(
        networks.StateGaussianActor(torso, 2), critic(torso)
    )
    masked = networks.Masked(actor(torso, 2))
    assert not paired.can_be_paired(masked, critic(torso))


def test_a_softmax_by_columns_is_that_of_the_whole():
    head = networks.distributions.CategoricalHead(3)
    logits = jnp.array(
        [[0.5, -1.0, 2.0], [80.0, -80.0, 0.0], [0.0, networks.observe.EXCLUDED, 1.0]]
    )
    action = jnp.array([2, 1, 0])

    def both(logits, split=lambda x: x):
        log_prob = head.log_prob(split(logits), action)
        return jnp.stack([log_prob, head.entropy(split(logits))])

    by_columns = partial(both, split=lambda x: list(x.T))
    (found, slopes), (known, expected) = (
        jax.jit(lambda x, f=f: (f(x), jax.jacobian(f)(x)))(logits)
        for f in (by_columns, both)
    )
    np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slopes, expected, rtol=1e-5, atol=1e-6)
    assert "reduce" not in str(jax.make_jaxpr(by_columns)(logits))


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_the_largest_of_a_row_and_what_is_picked_from_it(platform):
    values = jnp.array([[1.0, 3.0, 3.0], [2.0, -1.0, 0.0], [-jnp.inf, -jnp.inf, -5.0]])
    with traced_for(platform):
        choice, most = columns.argmax(values), columns.largest(values)
        picked = columns.pick(values, jnp.array([2, 0, 1]))
        slope = jax.grad(lambda x: columns.pick(x, choice).sum())(values)
        text = str(jax.make_jaxpr(lambda x: columns.argmax(x))(values))
    assert choice.tolist() == [1, 0, 2] and choice.dtype == jnp.int32
    assert most.tolist() == [3.0, 2.0, -5.0]
    assert picked.tolist() == [3.0, 2.0, -jnp.inf]
    assert slope.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert ("argmax" in text) == (platform == "cpu")


def dense(x, kernel):
    """What a layer of a network makes of its inputs, without a bias."""
    params = {"kernel": kernel, "bias": jnp.zeros(kernel.shape[-1])}
    return networks.layers.Dense(kernel.shape[-1]).apply({"params": params}, x)


@pytest.mark.parametrize("shape", [(3, 8), (20, 2), (8, 8)])
@pytest.mark.parametrize("lead", [(5,), (2, 4), ()])
def test_a_narrow_layer_is_the_product_that_it_stands_for(shape, lead):
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.normal(keys[0], (*lead, shape[0]))
    kernel = jax.random.normal(keys[1], shape)
    layer = networks.layers.Dense(shape[1])
    params = {"params": {"kernel": kernel, "bias": jnp.arange(shape[1], dtype=float)}}
    known = layer.apply(params, x)
    with traced_for("cuda"):
        found = layer.apply(params, x)
        text = str(jax.make_jaxpr(layer.apply)(params, x))
        wide = jnp.zeros((networks.layers.MOST_ROWS + 1, shape[0]))
        learned = str(jax.make_jaxpr(layer.apply)(params, wide))
    np.testing.assert_allclose(found, known, rtol=1e-5, atol=1e-5)
    assert "dot_general" not in text and "dot_general" in learned


MOST_AGENTS = networks.layers.MOST_ACTING_AGENTS


@pytest.mark.parametrize(
    "agents", [(), (3,), (MOST_AGENTS + 1,), (2, 3), (MOST_AGENTS // 8, 9)]
)
def test_a_layer_of_few_acting_rows_is_the_product_for_any_number_of_agents(agents):
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (*agents, 4, 24))
    kernel = jax.random.normal(keys[1], (*agents, 24, 20))
    weight = jax.random.normal(keys[2], (4, 20))

    def loss(x, kernel):
        return (weight * jnp.tanh(dense(x, kernel))).sum()

    def known(x, kernel):
        return (weight * jnp.tanh(x @ kernel)).sum()

    def every(function):
        for _ in agents:
            function = jax.vmap(function)
        return function

    def slopes(function):
        @jax.jit
        def both(x, kernel):
            inside = every(jax.value_and_grad(function, (0, 1)))(x, kernel)
            whole = jax.checkpoint(lambda x, kernel: every(function)(x, kernel).sum())
            return inside, jax.grad(whole, (0, 1))(x, kernel)

        return both(x, kernel)

    expected = slopes(known)
    with traced_for("cuda"):
        found = slopes(loss)
        text = str(jax.make_jaxpr(every(loss))(x, kernel))
    assert_close(found, expected, atol=1e-4)
    assert ("dot_general" in text) == (np.prod(agents, dtype=int) > MOST_AGENTS)


def test_one_network_for_many_acting_rows_is_a_product_of_all_of_them():
    x, kernel = jnp.arange(96.0).reshape(4, 24), jnp.ones((24, 20))
    for axes, inputs in (
        ((0, None), (jnp.stack([x, 2 * x]), kernel)),
        ((None, 0), (x, jnp.stack([kernel, 2 * kernel]))),
    ):
        with traced_for("cuda"):
            found = jax.vmap(dense, axes)(*inputs)
            text = str(jax.make_jaxpr(jax.vmap(dense, axes))(*inputs))
        np.testing.assert_allclose(found, jnp.stack([x @ kernel, 2 * x @ kernel]))
        assert "dot_general" in text


def test_a_layer_of_few_acting_rows_has_derivatives_of_every_kind():
    x, kernel = jnp.linspace(-1, 1, 96).reshape(4, 24), jnp.ones((24, 20)) / 24

    def loss(x):
        return jnp.tanh(dense(x, kernel)).sum()

    def derivatives():
        return jax.jit(lambda x: (jax.jvp(loss, (x,), (x,)), jax.hessian(loss)(x)))(x)

    expected = derivatives()
    with traced_for("cuda"):
        found = derivatives()
    assert_close(found, expected, atol=1e-5)
