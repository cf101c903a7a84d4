"""A network that begins as Adam: its arithmetic, what it sees, its noise, its files."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct

import purerl
from purerl import serialise
from purerl.algorithms import actor_critic, vpg
from purerl.config import ConfigError
from purerl.learning import optimiser as making
from purerl.learning.optimiser import frozen_in
from purerl.optimisers import Adam, LearnedOptimiser, Muon, OpenOptimiser
from purerl.optimisers.learned import DECAYS, FEATURES, layout_of
from purerl.rules import ActorCriticRule, LPGRule
from purerl.schedules import Schedule
from tests.algorithms.agents import agent_of
from tests.helpers import assert_same_bits, tiny_config

RATE = 0.01
LAYERS = {n: {"bias": jnp.zeros(n), "kernel": jnp.ones((2, n))} for n in (1, 3)}
PARAMS = {
    "actor": {"params": {"Dense_0": LAYERS[3]}},
    "critic": {"params": {"Dense_0": LAYERS[1]}},
}


def walk(optim, gradients, params):
    """Parameters after a step on each of the gradients `[N, ...]`."""

    def step(carry, gradient):
        params, state = carry
        moves, state = optim.update(gradient, state, params)
        return (jax.tree.map(jnp.add, params, moves), state), None

    return jax.lax.scan(step, (params, optim.init(params)), gradients)[0][0]


def course(transformation, steps=300, scale=1.0):
    """Parameters after steps on random gradients whose sizes span eight decades."""
    whole, restore = jax.flatten_util.ravel_pytree(PARAMS)
    draw, size = jax.random.normal(jax.random.key(0), (2, steps, whole.size))
    sizes = 10.0 ** (2.0 * size - 2.0)
    return walk(transformation, jax.vmap(restore)(scale * sizes * draw), PARAMS)


def flat(tree):
    return np.asarray(jax.flatten_util.ravel_pytree(tree)[0])


def with_weights(optimiser, first=None, second=None, bias=None):
    """An optimiser whose network has these weights, and zeros elsewhere."""
    (kernel_in, bias_in), (kernel_out, bias_out) = jax.tree.map(
        np.zeros_like, optimiser.params
    )
    for place, value in (first or {}).items():
        kernel_in[place] = value
    for place, value in (second or {}).items():
        kernel_out[place] = value
    bias_out[: len(bias or ())] = bias or ()
    return optimiser.replace(params=((kernel_in, bias_in), (kernel_out, bias_out)))


def random_weights(optimiser):
    weights, restore = jax.flatten_util.ravel_pytree(optimiser.params)
    drawn = jax.random.normal(jax.random.key(1), weights.shape)
    return optimiser.replace(params=restore(0.5 * drawn))


def test_it_begins_as_adam_and_stays_it_for_hundreds_of_steps():
    numbers = {"b1": 0.8, "b2": 0.97, "eps": 1e-4}
    ours = LearnedOptimiser.make(6, noise=True, **numbers)
    assert np.any(ours.params[0][0])  # the hidden layer is not empty
    moved = flat(course(ours(RATE)))
    adam = flat(course(optax.adam(RATE, **numbers)))
    assert np.abs(adam - flat(PARAMS)).max() > 0.1
    np.testing.assert_allclose(moved, adam, rtol=1e-6, atol=1e-6)


def test_the_outputs_change_adams_step_as_written():
    """`a exp(f) + 0.1 s` with outputs that are the same for all parameters."""
    factor, shift = 0.7, -2.0
    ours = with_weights(LearnedOptimiser(), bias=(factor, shift))
    adam, state = optax.adam(RATE), LearnedOptimiser()(RATE).init(PARAMS)
    grads = jax.tree.map(
        lambda x: jnp.cos(x + jnp.arange(x.size).reshape(x.shape)), PARAMS
    )
    updates, _ = jax.jit(ours(RATE).update)(grads, state, PARAMS)
    plain, _ = jax.jit(adam.update)(grads, adam.init(PARAMS), PARAMS)
    expected = flat(plain) * np.exp(factor) - RATE * 0.1 * shift
    np.testing.assert_allclose(flat(updates), expected, rtol=1e-5)


def test_it_sees_what_its_features_are_called():
    """Every feature by a network that passes only this one on, against numbers."""
    params = {
        "params": {
            "torso": {"Dense_0": {"kernel": jnp.array([[3.0, -4.0]])}},
            "Dense_0": {"bias": jnp.array([0.0])},
        }
    }
    steps = [jnp.array([2.0, 1.0, -8.0]), jnp.array([-1.0, 3.0, 4.0])]
    b1, b2 = 0.9, 0.999
    momenta = {decay: 0.0 for decay in (b1, *DECAYS)}
    second = 0.0
    for g in np.asarray(steps):
        momenta = {d: d * m + (1 - d) * g for d, m in momenta.items()}
        second = b2 * second + (1 - b2) * g**2
    root = np.sqrt(second / (1 - b2**2)) + 1e-8
    small = [m / (1 - d**2) / root for d, m in momenta.items()]
    size = np.log(root)
    # Leaves in the order of their names: the head's bias, then the torso's kernel.
    weights = np.array([0.0, 3.0, -4.0])
    expected = {
        "gradient": steps[1] / root,
        "momentum, Adam's": small[0],
        "momentum, 0.5": small[1],
        "momentum, 0.99": small[2],
        "size of the gradients": np.tanh(0.25 * (size - size.mean())),
        "parameter": weights / np.sqrt(25 / 3),
        "share of the run": np.full(3, 0.3),
        "depth of the layer": np.array([1.0, 0.0, 0.0]),
        "matrix or bias": np.array([0.0, 1.0, 1.0]),
    }
    assert tuple(expected) == FEATURES
    for name in (*FEATURES[:4], "parameter"):
        expected[name] = np.sign(expected[name]) * np.log1p(np.abs(expected[name]))
    restore = jax.flatten_util.ravel_pytree(params)[1]

    @jax.jit
    def second_move(ours):
        optim = ours(1.0)
        state = optim.init(params)
        _, state = optim.update(restore(steps[0]), state, params)
        return optim.update(restore(steps[1]), state, params)[0]

    adam = flat(second_move(LearnedOptimiser(share=0.3)))
    for number, name in enumerate(FEATURES):
        # A small weight, so that tanh passes the feature on as it is.
        ours = with_weights(
            LearnedOptimiser(share=0.3), {(number, 0): 1e-3}, {(0, 1): 1e4}
        )
        found, near = adam - flat(second_move(ours)), {"rtol": 2e-3, "atol": 2e-3}
        np.testing.assert_allclose(found, expected[name], **near, err_msg=name)


def test_the_scale_of_the_loss_does_not_matter():
    ours = random_weights(LearnedOptimiser(eps=1e-30))(RATE)
    one, other = (flat(course(ours, 50, scale=scale)) for scale in (1.0, 1024.0))
    assert np.abs(one - flat(course(Adam()(RATE), 50))).max() > 0.01
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@struct.dataclass
class Grown(Schedule):
    """The step size that a network with one unit of the share makes."""

    def __call__(self, share):
        return 1e-3 * jnp.exp(1.5 * jnp.tanh(2.0 * share))


LAYERWISE = {
    "learned": random_weights(LearnedOptimiser.make(noise=False)),
    "open": random_weights(OpenOptimiser.make(noise=False)),
    "muon": Muon(),
}


@pytest.mark.parametrize("chosen", LAYERWISE.values(), ids=LAYERWISE)
def test_frozen_networks_are_no_part_of_what_an_optimiser_sees(chosen):
    """What is not frozen moves as where there is nothing else, step after step."""
    large = jax.tree.map(lambda x: 50.0 * x, PARAMS["critic"])
    params = {"actor": PARAMS["actor"], "critic": large}
    whole, restore = jax.flatten_util.ravel_pytree(params)
    gradients = jax.random.normal(jax.random.key(3), (4, whole.size))
    frozen = frozen_in(("critic",))

    @jax.jit
    def walked():
        layered = jax.vmap(restore)(gradients)
        alone = {"actor": layered["actor"]}, {"actor": params["actor"]}
        as_layers = making.make(chosen, RATE, frozen=frozen)
        as_flat = making.make(chosen, RATE, None, restore, frozen)
        return (
            walk(making.make(chosen, RATE), *alone)["actor"],
            walk(as_layers, layered, params),
            restore(walk(as_flat, gradients, whole)),
        )

    wanted, *found = walked()
    assert np.abs(flat(wanted) - flat(params["actor"])).max() > 1e-3
    for each in found:
        np.testing.assert_array_equal(flat(each["critic"]), flat(large))
        np.testing.assert_allclose(flat(each["actor"]), flat(wanted), atol=1e-6)


def test_training_tells_it_the_share_of_the_run():
    """A network of the share alone is Adam with a schedule of the step size."""
    ours = with_weights(
        LearnedOptimiser(),
        {(FEATURES.index("share of the run"), 0): 2.0},
        {(0, 0): 1.5},
    )
    config = tiny_config(anneal_learning_rate=False, num_evaluations=0)

    def final(**changes):
        train = jax.jit(purerl.make_train(config.replace(**changes)))
        return flat(train(jax.random.key(0)).state.params)

    learned = final(optimiser=ours, learning_rate=1e-3)
    scheduled = final(optimiser=Adam(), learning_rate=Grown())
    np.testing.assert_allclose(learned, scheduled, rtol=1e-3, atol=2e-4)


def noisy(weight=1.0):
    """An optimiser whose step is Adam's and `0.1 weight` times noise."""
    return with_weights(LearnedOptimiser.make(2, noise=True), bias=(0.0, 0.0, weight))


def test_the_noise_is_normal_new_in_every_step_and_not_the_critics():
    params = {
        name: {"params": {"Dense_0": {"kernel": jnp.ones((100, 100))}}}
        for name in ("actor", "critic")
    }
    zero = jax.tree.map(jnp.zeros_like, params)
    optim = noisy(3.0)(RATE)
    state, moves, update = optim.init(params), [], jax.jit(optim.update)
    for _ in range(2):
        move, state = update(zero, state, params)
        moves.append(move)
    first, second = (flat(move["actor"]) for move in moves)
    for move in (first, second):
        assert abs(move.mean()) < 4 * 0.3 * RATE / 100
        np.testing.assert_allclose(move.std(), 0.3 * RATE, rtol=0.03)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.04
    assert not flat(moves[0]["critic"]).any()


def test_runs_with_other_keys_have_other_noise_and_the_same_key_the_same():
    config = tiny_config(optimiser=noisy(), num_evaluations=0, total_timesteps=64)
    algorithm = purerl.make_algorithm(config)
    keys = jax.random.split(jax.random.key(0), 3)[jnp.array([0, 1, 2, 0])]
    many, alone = jax.vmap(algorithm.init), algorithm.init
    states = jax.jit(lambda: (many(keys), alone(keys[1])))()
    seeds, one = (
        next(x.seed for x in state.opt_state if hasattr(x, "seed")) for state in states
    )
    assert len(np.unique(seeds)) == 3 and seeds[0] == seeds[3] and one == seeds[1]


PARTS = {
    "learned": random_weights(LearnedOptimiser.make(3, noise=True, b1=0.7)),
    "open": OpenOptimiser.make(4, 3, max_norm=None),
    "adam": Adam(b1=0.7),
    "rule": LPGRule.make(4, 3, 5, base=ActorCriticRule(low=-1.0), temporal=True),
}


@pytest.mark.parametrize("suffix", [".npz", ".yaml"])
@pytest.mark.parametrize("made", PARTS.values(), ids=PARTS)
def test_a_part_comes_back_from_its_file_bit_for_bit(made, suffix, tmp_path):
    path = purerl.save_part(made, tmp_path / f"part{suffix}")
    kind = "rule" if isinstance(made, LPGRule) else "optimiser"
    for again in (purerl.load_part(path), serialise.parse_part(str(path), kind)):
        assert_same_bits(again, made)
        assert jax.tree.structure(again) == jax.tree.structure(made)
    with pytest.raises(ConfigError, match="no loss"):
        purerl.load_part(path, "loss")


@pytest.mark.parametrize("policy", [True, False])
def test_only_a_policy_moves_at_random(policy):
    """Also where the critic has an optimiser, and a pytree, of its own."""
    weights, (kernel, _) = LearnedOptimiser.make(4, noise=True).params
    noisy = LearnedOptimiser((weights, (kernel, np.float32([0, 0, 1]))), noise=True)
    params = {"params": {"Dense_0": {"kernel": jnp.ones((3, 2))}}}

    name = "actor" if policy else "critic"
    sac = purerl.SACConfig(env="Pendulum-v1", optimiser=noisy)
    agent = agent_of(purerl.VPGConfig(optimiser=noisy))
    for optim, start in (
        (actor_critic.optimiser_of(sac, "actor" if policy else "critics"), params),
        (vpg.optimiser_of(agent, name, params), jnp.ones(6)),
    ):
        gradients = jax.tree.map(lambda x: jnp.zeros((1, *x.shape)), start)
        after = jax.jit(lambda *args, optim=optim: walk(optim, *args))(gradients, start)
        assert ((flat(after) != flat(start)) == policy).all()


# OPEN's network has many kinks, so that a wide difference goes over some.
@pytest.mark.parametrize(
    ("kind", "width"), [(LearnedOptimiser, 1e-2), (OpenOptimiser, 3e-4)]
)
@pytest.mark.slow(optimised=False)
def test_it_has_a_derivative_where_a_parameter_never_has_a_gradient(kind, width):
    """Along its weights and the size of gradients, against a central difference."""
    made = kind.make(4)
    optimiser = made if kind is OpenOptimiser else random_weights(made)
    weights, restore = jax.flatten_util.ravel_pytree(optimiser.params)
    direction = jax.random.normal(jax.random.key(5), weights.shape)
    gradient = jax.tree.map(jnp.zeros_like, PARAMS)  # of a critic that is frozen
    layer = gradient["actor"]["params"]["Dense_0"]
    layer["kernel"] = layer["kernel"].at[0].set([0.3, -0.2, 0.1])  # one input is zero

    @jax.jit
    def moved(length):
        """How far three steps go, at a place on a line through the weights."""
        own = optimiser.replace(params=restore(weights + length * direction))
        sizes = jnp.array([1.0, -0.5, 2.0]) * (1.0 + length)
        gradients = jax.tree.map(lambda x: jnp.tensordot(sizes, x, 0), gradient)
        params = walk(own(RATE), gradients, PARAMS)
        steps = jax.tree.map(lambda x, y: (x - y) / RATE, params, PARAMS)
        return jnp.vdot(jnp.arange(12.0), jax.flatten_util.ravel_pytree(steps)[0])

    slope = float(jax.grad(moved)(0.0))
    by_hand = float(moved(width) - moved(-width)) / (2.0 * width)
    assert abs(by_hand) > 0.1
    assert slope == pytest.approx(by_hand, rel=0.02)


# Where the numbers of a flat vector stand: on trees by hand, and on networks


def zeros(*shape):
    return np.zeros(shape, np.float32)


def dense(inputs, outputs):
    return {"kernel": zeros(inputs, outputs), "bias": zeros(outputs)}


def depths(params):
    """The depth of every leaf by its path."""
    layout = layout_of(params)
    names = ["/".join(name) for name in layout.names]
    return dict(zip(names, layout.depth.tolist(), strict=True))


def test_a_torso_is_before_its_head_and_what_is_alone_is_last():
    inside = {
        "Dense_0": dense(3, 2),
        "log_std": zeros(2),
        "torso": {f"Dense_{n}": dense(3, 3) for n in (0, 2, 10)},
    }
    found = depths({"actor": {"params": inside}})
    layers = ("torso/Dense_0", "torso/Dense_2", "torso/Dense_10", "Dense_0")
    for number, layer in enumerate(layers):
        for leaf in ("kernel", "bias"):
            assert found[f"actor/params/{layer}/{leaf}"] == number / 4
    assert found["actor/params/log_std"] == 1.0


def test_two_critics_of_one_kind_are_two_networks():
    one = {"MLP_0": {"Dense_0": dense(3, 3)}, "Dense_0": dense(3, 1)}
    layout = layout_of({"params": {"Critic_0": one, "Critic_1": one}})
    np.testing.assert_array_equal(layout.depth, [1, 1, 0, 0] * 2)
    np.testing.assert_array_equal(layout.network, [0] * 4 + [1] * 4)
    np.testing.assert_array_equal(layout.is_matrix, [0, 1] * 4)
    np.testing.assert_array_equal(layout.sizes, [1, 3, 3, 9] * 2)


NORMED = "torso/Dense_0 torso/LayerNorm_0 torso/Dense_1 torso/LayerNorm_1 Dense_0"
NOISY = {"noisy": True, "dueling": True, "hidden_sizes": (8,)}
LAYERED = [
    (purerl.PPOConfig(layer_norm=True, hidden_sizes=(8, 4)), NORMED),
    (purerl.DQNConfig(**NOISY), "torso/Dense_0 NoisyMLP_0"),
]


@pytest.mark.parametrize(("config", "order"), LAYERED)
def test_layers_stand_in_the_order_in_which_they_see_an_observation(config, order):
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    names = [name for name in ("core", "actor") if name in state.params]
    places = depths(state.params[names[0]] if names else state.params)

    def depth_of(layer):
        return next(d for path, d in places.items() if f"/{layer}/" in f"/{path}")

    found = [depth_of(layer) for layer in order.split()]
    assert found[0] == 0.0 and found == sorted(set(found))
