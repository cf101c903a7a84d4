"""Closed forms of meta-gradients, and what transforms them changes nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import purerl
from purerl import losses, schedules
from purerl.accelerator.kernels import traced_for
from purerl.acting import rollout
from purerl.config import ConfigError
from purerl.learning import averages
from purerl.optimisers import SGD, Adam, AdamW, Muon, RAdam
from purerl.optimisers.first_order import differentiable
from tests.contracts.test_algorithms import SMALL, small
from tests.helpers import assert_close, assert_same_bits, lane
from tests.metagradient.configs import EACH, PPO, VPG

# Plain descent, so that an update is theta - rate * gradient.
PLAIN = VPG.replace(
    optimiser=SGD(),
    entropy_coef=0.0,
    learning_rate=0.5,
    critic_learning_rate=1e-2,
    hidden_sizes=(4,),
)


# Programs that a compiler fuses in other ways.
assert_near = partial(assert_close, rtol=2e-4, atol=1e-6)


def begun(config, key):
    return jax.jit(purerl.make_algorithm(config).init)(key)


def inner(left, right):
    products = jax.tree.map(lambda x, y: jnp.vdot(x, y), left, right)
    return sum(jax.tree.leaves(products))


def moved(before, after):
    """What an update did to the actor."""
    pair = after.params["actor"], before.params["actor"]
    return jax.tree.map(jnp.subtract, *pair)


def outer_gradient(step, state):
    """The gradient of the outer loss: minus the policy gradient of the next rollout.

    It is what VPG itself would step along, for its own loss is the same one.
    """
    after = step(state)[0]
    return jax.tree.map(lambda x: -x / PLAIN.learning_rate, moved(state, after))


def test_a_step_size_is_worth_the_inner_product_of_two_gradients(key):
    """m = L(theta - rate g), so that dm/dlog(rate) = -rate <grad L, g>."""
    state = begun(PLAIN, key)
    found = jax.jit(purerl.meta_gradient(PLAIN, "learning_rate"))(state)
    step = jax.jit(purerl.make_algorithm(PLAIN).step)
    first, second = (outer_gradient(step, x) for x in (state, found.state))
    expected = -PLAIN.learning_rate * inner(first, second)
    assert abs(expected) > 1e-4
    np.testing.assert_allclose(found.gradient["learning_rate"], expected, rtol=1e-3)


@pytest.mark.slow(optimised=False)
def test_overrides_are_the_agents_own_numbers_inside_and_outside(key):
    """Agents with lengths and discounts of their own = configs that have them."""
    meta = purerl.meta_gradient(PLAIN, "learning_rate", reference={"gamma": 0.5})
    lengths = [0.3, 1.5]
    overrides = {"env_params.length": jnp.array(lengths), "gae_lambda": jnp.ones(2)}

    @jax.jit
    @jax.vmap
    def learn(overrides):
        state = meta.algorithm(meta.start(), overrides).init(key)
        return meta(state, None, overrides)

    found = learn(overrides)
    for index, length in enumerate(lengths):
        own = PLAIN.replace(env_params={"length": length}, gae_lambda=1.0)
        alone = purerl.meta_gradient(own, "learning_rate", reference={"gamma": 0.5})
        expected = jax.jit(alone)(begun(own, key))
        mine = lane(found, index)
        np.testing.assert_allclose(mine.value, expected.value, rtol=1e-4, atol=1e-6)
        slope = expected.gradient["learning_rate"]
        assert abs(slope) > 1e-4
        np.testing.assert_allclose(mine.gradient["learning_rate"], slope, rtol=1e-3)
    values = found.gradient["learning_rate"]
    assert values[0] != values[1]


@pytest.mark.parametrize(
    ("wrt", "override"),
    [
        ("learning_rate", "learning_rate"),
        ("optimiser.b1", "optimiser"),
        ("optimiser", "optimiser.b1"),
    ],
)
def test_an_override_of_what_is_differentiated_is_refused(wrt, override):
    config = PLAIN.replace(optimiser=Adam())
    meta = purerl.meta_gradient(config, wrt)
    with pytest.raises(ConfigError, match=f"{override} and {wrt}.*give them by values"):
        meta.algorithm(meta.start(), {override: 0.5})


@pytest.fixture(scope="module")
def twice():
    """Two updates of PPO and their meta-gradient, of the numbers and the drift."""
    return purerl.meta_gradient(PPO, EACH["ppo"][1], unroll=2)


@pytest.fixture(scope="module")
def agents():
    keys = jax.random.split(jax.random.key(1), 3)
    return jax.jit(jax.vmap(purerl.make_algorithm(PPO).init))(keys)


@pytest.mark.slow(optimised=False)
def test_the_updates_are_those_of_the_run(twice, agents):
    """But for rounding, as a compiler fuses what is differentiated in other ways."""
    state = lane(agents, 0)
    algorithm = purerl.make_algorithm(PPO)
    run = jax.jit(lambda s: jax.lax.scan(lambda s, _: algorithm.step(s), s, length=2))
    found, expected = jax.jit(twice)(state), run(state)
    assert_near((found.state.params, found.metrics), (expected[0].params, expected[1]))
    assert_same_bits(found.state.key, expected[0].key)
    assert int(found.state.update) == 2
    pairs = (state, found.state), (found.state, expected[0])
    far, near = (optax.tree.norm(moved(*pair)) for pair in pairs)
    assert far > 1e3 * near


@pytest.mark.slow(optimised=False)
def test_what_is_computed_again_changes_nothing(twice, agents):
    state = lane(agents, 0)
    kept = purerl.meta_gradient(PPO, EACH["ppo"][1], unroll=2, checkpoint=False)
    one, other = jax.jit(twice)(state), jax.jit(kept)(state)
    assert_near(one.gradient, other.gradient)


@pytest.mark.slow(optimised=False)
def test_programs_for_accelerators_have_the_same_derivative(twice, agents):
    """There the outputs of loops are packed as words, which have no derivative."""
    state = lane(agents, 0)
    with traced_for("cuda"):
        packed = jax.jit(lambda s: twice(s))(state)
    assert_near(packed.gradient, jax.jit(twice)(state).gradient)


def test_values_and_names(twice):
    start = twice.start()
    names = {*EACH["ppo"][1], "policy_loss.alpha", "policy_loss.beta"}
    assert set(start) == names - {"policy_loss"}
    assert all(float(x) == 0.0 for x in start.values())  # logits and logs from there
    found = twice.overrides({**start, "gamma": jnp.float32(1.0)})
    odds = 0.95 / 0.05 * np.e
    np.testing.assert_allclose(found["gamma"], odds / (1 + odds), rtol=1e-6)
    np.testing.assert_allclose(found["learning_rate"], PPO.learning_rate, rtol=1e-6)


@pytest.mark.slow(optimised=False)
def test_schedules_are_where_they_are_in_the_run(agents):
    """A constant schedule is that number, and its number has the same derivative."""
    state = lane(agents, 0)
    config = PPO.replace(anneal_learning_rate=False)
    plain = purerl.meta_gradient(config, ("gamma", "learning_rate"), unroll=2)
    constant = schedules.Constant
    moving = config.replace(gamma=constant(0.95), learning_rate=constant(1e-2))
    meta = purerl.meta_gradient(moving, ("gamma", "learning_rate"), unroll=2)
    one, other = jax.jit(plain)(state), jax.jit(meta)(state)
    np.testing.assert_allclose(one.value, other.value, atol=1e-6)
    for name, gradient in other.gradient.items():
        (short,) = (n for n in one.gradient if name.startswith(n))
        np.testing.assert_allclose(gradient, one.gradient[short], rtol=1e-3)


@pytest.mark.slow(optimised=False)
def test_a_frozen_part_makes_no_nan(agents):
    config = PPO.replace(frozen=("critic",))
    meta = purerl.meta_gradient(config, "learning_rate,gamma", unroll=2)
    found = jax.jit(meta)(lane(agents, 0))
    assert all(np.isfinite(x) for x in found.gradient.values())


@pytest.mark.parametrize("optimiser", [Adam(1e-5), AdamW(), RAdam()])
def test_adams_family_has_a_derivative_where_there_was_no_gradient(optimiser, key):
    scales = jnp.logspace(-12, 3, 64)
    grads = jax.random.normal(key, (12, 64)) * scales[None]
    start = jnp.ones(64)

    def steps(optim, grads):
        def take(carry, grad):
            params, state = carry
            updates, state = optim.update(grad, state, params)
            return (params + updates, state), None

        return jax.lax.scan(take, (start, optim.init(start)), grads)[0]

    made = {Adam: optax.adam, AdamW: optax.adamw, RAdam: optax.radam}[type(optimiser)]
    numbers = {name: getattr(optimiser, name) for name in ("b1", "b2", "eps")}
    ours, theirs = differentiable(optimiser)(1e-2), made(1e-2, **numbers)
    one, other = (jax.jit(partial(steps, x))(grads) for x in (ours, theirs))
    if type(optimiser) is RAdam:  # It is written otherwise.
        assert_near(one, other)
    else:
        assert_same_bits(one, other)

    def last(factor, optim):
        return steps(optim, factor * grads.at[:, 0].set(0.0))[0].sum()

    assert np.isfinite(jax.jit(jax.grad(partial(last, optim=ours)))(1.0))
    # Which is why optax's own is not taken.
    assert np.isnan(jax.jit(jax.grad(partial(last, optim=theirs)))(1.0))


def test_muon_has_a_derivative_where_there_was_no_gradient(key):
    shapes = {"torso": {"kernel": (4, 3)}, "kernel": (3, 3), "bias": (3,)}

    def normal(*lead):
        draw = lambda shape: jax.random.normal(key, (*lead, *shape))  # noqa: E731
        return jax.tree.map(draw, shapes, is_leaf=lambda x: isinstance(x, tuple))

    start, drawn = normal(), normal(3)
    start["bias"] = jnp.zeros(3)
    drawn["torso"] = jax.tree.map(jnp.zeros_like, drawn["torso"])
    drawn["bias"] = drawn["bias"].at[:, 0].set(0.0)

    def last(factor, optim):
        def take(carry, grad):
            params, state = carry
            updates, state = optim.update(grad, state, params)
            return (optax.apply_updates(params, updates), state), None

        grads = jax.tree.map(lambda x: factor * x, drawn)
        (params, _), _ = jax.lax.scan(take, (start, optim.init(start)), grads)
        return sum(x.sum() for x in jax.tree.leaves(params)), params

    def moved(optimiser):
        both = jax.value_and_grad(last, has_aux=True)
        (_, params), slope = jax.jit(partial(both, optim=optimiser(1e-2)))(1.0)
        return params, slope

    (one, slope), (other, without) = map(moved, (differentiable(Muon()), Muon()))
    assert_same_bits(one, other)
    assert np.isfinite(slope) and np.isnan(without)


def test_equal_advantages_are_standardised_with_a_derivative():
    def loss(x):
        advantage = jnp.array([x, x, 2.0 * x - 1.0])
        return (jnp.array([1.0, 2.0, 4.0]) * averages.standardise(advantage)).sum()

    # Of equal numbers the spread is 1e-8, and the third one moves away from the mean.
    slope = (1.0 * -1 + 2.0 * -1 + 4.0 * 2) / 3 / 1e-8
    np.testing.assert_allclose(jax.grad(loss)(1.0), slope, rtol=1e-5)


@pytest.mark.slow(optimised=False)
def test_an_objective_of_ones_own(agents):
    """The outer loss is any function of parts, state and rollout."""

    def entropy(parts, state, rollout):
        obs = rollout.transitions.obs
        outputs = parts.actor.apply(state.params["actor"], obs)
        return -parts.head.entropy(outputs).mean()

    meta = purerl.meta_gradient(PPO, "entropy_coef", unroll=2, objective=entropy)
    found = jax.jit(meta)(lane(agents, 0))
    assert -np.log(2) <= float(found.value) < 0
    assert float(found.gradient["entropy_coef"]) < 0  # more weight, more entropy


CLIPPED = PPO.replace(policy_loss=losses.ClipDrift(0.2))
DIFFERENTIATED = {"ppo", "recurrent_ppo", "recurrent_ppo/lstm", "vpg", "pqn", "lpg"}
# Other memories of recurrent PPO are differentiated as these two are.
OTHERS = {f"recurrent_ppo/{name}" for name in ("lru", "s5", "transformer")}


@pytest.mark.parametrize("name", sorted(SMALL.keys() - DIFFERENTIATED - OTHERS))
def test_an_algorithm_that_is_not_differentiated_is_refused(name):
    with pytest.raises(ConfigError, match="updates learn from their own rollout"):
        purerl.meta_gradient(small(name), "gamma")


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("name", sorted(DIFFERENTIATED | OTHERS))
def test_the_others_are_differentiated(name, key):
    config = small(name)
    names = ("learning_rate", "gamma")
    found = jax.jit(purerl.meta_gradient(config, names, unroll=2))(begun(config, key))
    assert set(found.gradient) == set(names)
    for gradient in found.gradient.values():
        assert np.isfinite(gradient) and gradient != 0.0


def test_the_bytes_that_are_kept_of_an_update(twice):
    """The state, and of each of 16 steps in 4 environments what CartPole has."""
    state = jax.eval_shape(purerl.make_algorithm(PPO).init, jax.random.key(0))

    def size(tree):
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))

    # Two observations of four numbers; action, log-probability, reward; two flags.
    transition = 4 * (2 * 4 + 3) + 2
    episode = 1 + 4 + 4  # whether it ended, its return and its length
    # Once more of each environment: how many of its transitions were bad.
    kept = size(state) + size(state.envs) + 16 * 4 * (transition + episode) + 4 * 4
    assert twice.kept_bytes(state) == kept


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="a name orders a loop's constants there"
)
@pytest.mark.parametrize("config", [PPO, EACH["pqn"][0]])
def test_the_programs_of_training_are_as_without_the_marks(config, key, monkeypatch):
    """A stop of derivatives and a name leave nothing in what is compiled."""

    def program():
        return jax.jit(purerl.make_train(config)).lower(key).as_text()

    marked = program()
    stopped = []
    with monkeypatch.context() as patch:
        patch.setattr(rollout, "checkpoint_name", lambda x, name: x)
        patch.setattr(rollout, "stop_gradient", lambda x: stopped.append(1) or x)
        plain = program()
    assert stopped and marked == plain


@pytest.mark.slow(optimised=False)
@pytest.mark.parametrize("instead", [{"unroll": 2}, {"objective": "actor_critic"}])
def test_what_moves_the_critic_alone_acts_on_the_policy_late(instead, key):
    config = PPO.replace(max_grad_norm=None, critic_learning_rate=1e-2)
    state = begun(config, key)

    def slope(**options):
        meta = purerl.meta_gradient(config, "critic_learning_rate", **options)
        return abs(float(jax.jit(meta)(state).gradient["critic_learning_rate"]))

    assert slope() < 1e-9 < slope(**instead)


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        (PPO, {"wrt": "gama"}, "wrt: PPOConfig has no field 'gama'"),
        (PPO, {"wrt": "env_params.length"}, "env_params.length is zero, for they only"),
        (CLIPPED, {"wrt": "policy_loss.clip_eps"}, "policy_loss.clip_eps is zero"),
        (CLIPPED, {"wrt": "value_loss"}, "only decides which samples count"),
        (
            PPO,
            {"wrt": "gamma", "objective": "return"},
            "objective must be one of policy_gradient, actor_critic, or a function",
        ),
        (PPO.replace(env="gymnasium/CartPole-v1"), {"wrt": "gamma"}, "on the host"),
    ],
)
def test_what_cannot_be_differentiated_is_refused(config, options, words):
    with pytest.raises(ConfigError, match=words):
        purerl.meta_gradient(config, **options)


def test_other_states_and_values_are_refused(twice, agents):
    wide = {name: jnp.zeros(2) for name in twice.start()}
    one = lane(agents, 0)
    for call, words in (
        (lambda: twice({"params": 1}), "state of one agent, such as"),
        (lambda: twice(agents), "for several agents use jax.vmap"),
        (lambda: twice(one, {"gamma": 0.0}), "values must be arrays of the sh"),
        (lambda: twice(one, wide), r"'gamma': \(2,\)"),
    ):
        with pytest.raises(ConfigError, match=words):
            call()
