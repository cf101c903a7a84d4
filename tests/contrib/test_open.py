"""OPEN's network against flax's modules, and what PPO tells it."""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct

from purerl.algorithms import on_policy, policy_gradient
from purerl.config import ConfigError
from purerl.contrib.open import DECAYS, shapes_of
from purerl.keys import update_keys
from purerl.optimisers import OpenOptimiser
from purerl.optimisers.learned import layout_of, noise_at, seed_of
from purerl.train import bind
from tests.helpers import slow_but, tiny_config

RATE, SHARE, EPOCH = 1e-3, 0.25, 0.5


def dense(key, inputs, outputs):
    kernel = jax.random.normal(key, (inputs, outputs))
    return {"kernel": kernel, "bias": kernel[0] / 3}


def make_layers(seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    return {
        "actor": {
            "params": {
                "torso": {"Dense_0": dense(keys[0], 4, 3)},
                "Dense_0": dense(keys[1], 3, 2),
                "log_std": jnp.array([0.1, -0.2]),
            }
        },
        "critic": {
            "params": {
                "torso": {"Dense_0": dense(keys[2], 4, 3)},
                "Dense_0": dense(keys[3], 3, 1),
            }
        },
    }


ACTIVITY = {
    "actor": {
        "torso": {"activity_Dense_0": jnp.array([0.5, 0.0, 1.0])},
        "activity_Dense_0": jnp.array([3.0, 1.0]),
    },
    "critic": {
        "torso": {"activity_Dense_0": jnp.array([1.0, 1.0, 4.0])},
        "activity_Dense_0": jnp.array([0.7]),
    },
}
# How active the units of each layer are, and how deep the layer is; in the order of
# the leaves' names.
BY_LEAF = {
    "actor": [
        *[([1.5, 0.5], 0.5)] * 2,
        ([1.0, 1.0], 1.0),
        *[([1.0, 0.0, 2.0], 0.0)] * 2,
    ],
    "critic": [*[([1.0], 1.0)] * 2, *[([0.5, 0.5, 2.0], 0.0)] * 2],
}


class Reference(nn.Module):
    """The network of the paper, of flax's modules; sizes are those published."""

    @nn.compact
    def __call__(self, memory, seen):
        memory, x = nn.GRUCell(features=8, name="gru")(memory, seen)
        for number in range(2):
            x = nn.Dense(16, name=f"dense{number}")(x)
            x = nn.relu(nn.LayerNorm(name=f"norm{number}")(x))
        return memory, nn.Dense(3, name="dense2")(x)


def as_flax(params):
    """Weights by name as flax nests them."""
    nested = {}
    for name, array in params.items():
        *path, last = name.split(".")
        node = nested
        for part in path:
            node = node.setdefault(part, {})
        node[last] = array
    return {"params": nested}


def reference_steps(optimiser, params, gradients):
    """The parameters after some steps, tensor by tensor as the paper describes them."""
    start, layout = jax.flatten_util.ravel_pytree(params)[0], layout_of(params)
    weights = as_flax(optimiser.params)
    leaves, structure = jax.tree.flatten(params)
    momenta = [jnp.zeros((*x.shape, len(DECAYS))) for x in leaves]
    memories = [jnp.zeros((*x.shape, 8)) for x in leaves]
    facts = [fact for network in ("actor", "critic") for fact in BY_LEAF[network]]
    for count, gradient in enumerate(gradients):
        clip = optax.clip_by_global_norm(0.5)
        clipped = {
            name: clip.update(gradient[name], clip.init(None))[0] for name in gradient
        }
        noise = noise_at(seed_of(start), jnp.int32(count), layout)
        noise = np.split(noise, np.cumsum(layout.sizes)[:-1])
        moves = []
        for place, g in enumerate(jax.tree.leaves(clipped)):
            p, axes = leaves[place], tuple(range(g.ndim))
            decays = jnp.array(DECAYS)
            momenta[place] = decays * momenta[place] + (1 - decays) * g[..., None]
            m, (units, depth) = momenta[place], facts[place]
            columns = [p[..., None], jnp.sign(m), jnp.log(jnp.abs(m) + 1e-13)]
            columns += [jnp.sign(g)[..., None], jnp.log(jnp.abs(g) + 1e-13)[..., None]]
            seen = jnp.concatenate(columns, -1)
            seen = seen / jnp.sqrt(1e-5 + (seen**2).mean(axes, keepdims=True))
            whole = [SHARE, depth, EPOCH, jnp.array(units)]
            rest = [jnp.broadcast_to(x, g.shape)[..., None] for x in whole]
            seen = jnp.concatenate([seen, *rest], -1)
            memories[place], out = Reference().apply(weights, memories[place], seen)
            move = out[..., 0] * jnp.exp(1e-3 * out[..., 1])
            moves.append(move + out[..., 2] * noise[place].reshape(g.shape))
        mean = jnp.concatenate([x.ravel() for x in moves]).mean()
        steps = zip(leaves, moves, strict=True)
        leaves = [p - RATE * (move - mean) for p, move in steps]
    return jax.tree.unflatten(structure, leaves)


@pytest.mark.slow(optimised=False)
def test_a_course_of_steps_is_that_of_flaxs_modules():
    optimiser = OpenOptimiser.make(seed=3).replace(share=SHARE)
    rough = jax.random.split(jax.random.key(5), len(optimiser.params))
    weights = {  # Norms and biases away from where they start.
        name: x + 0.3 * jax.random.normal(key, x.shape)
        for key, (name, x) in zip(rough, optimiser.params.items(), strict=True)
    }
    optimiser = optimiser.replace(params=weights)
    params, gradients = make_layers(), [make_layers(seed) for seed in (1, 2)]
    optim = optimiser(RATE)

    @jax.jit
    def ours(params):
        state = optim.init(params)
        for gradient in gradients:
            move, state = optim.update(
                gradient, state, params, activity=ACTIVITY, epoch=EPOCH
            )
            params = jax.tree.map(jnp.add, params, move)
        return params

    with jax.numpy_rank_promotion("allow"):
        theirs = jax.jit(lambda p: reference_steps(optimiser, p, gradients))(params)
    moved = [jax.tree.leaves(x) for x in (ours(params), theirs, params)]
    for one, other, before in zip(*moved, strict=True):
        assert jnp.abs(other - before).max() > 1e-4
        np.testing.assert_allclose(one - before, other - before, rtol=2e-3, atol=2e-6)


@pytest.mark.parametrize(("sizes", "total"), [((16, 8), 1211), ((32, 16), 3571)])
def test_a_published_vector_is_read_in_its_order(sizes, total, tmp_path):
    """Every number lands where `ravel_pytree` took it from in the authors' pytree."""
    hidden, memory = sizes
    key, x = jax.random.key(0), jnp.zeros(memory)
    cell = nn.GRUCell(features=memory)
    gru = jax.eval_shape(cell.init, key, x, jnp.zeros(19))
    blocks = [[nn.Dense(hidden), nn.LayerNorm(), nn.relu] for _ in range(2)]
    read = nn.Sequential([*blocks[0], *blocks[1], nn.Dense(3)])
    read = jax.eval_shape(read.init, key, x)
    shapes = {"params": read, "gru_params": gru}
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)
    flat, restore = jax.flatten_util.ravel_pytree(zeros)
    assert flat.size == total
    tree = restore(jnp.arange(total, dtype=jnp.float32))
    np.save(tmp_path / "weights.npy", np.arange(total, dtype=np.float32))
    found = OpenOptimiser.load(tmp_path / "weights.npy").params
    layers = {"dense0": 0, "norm0": 1, "dense1": 3, "norm1": 4, "dense2": 6}
    for name, shape in shapes_of(*sizes).items():
        *path, last = name.split(".")
        node = tree["gru_params"]["params"].get(path[-1])
        if node is None:
            node = tree["params"]["params"][f"layers_{layers[path[0]]}"]
        assert found[name].shape == shape
        np.testing.assert_array_equal(found[name], node[last])


def test_what_is_no_published_vector_gets_a_sentence(tmp_path):
    np.save(tmp_path / "short.npy", np.zeros(1210, np.float32))
    with pytest.raises(ConfigError, match=r"shape \(1210,\); the published weights"):
        OpenOptimiser.load(tmp_path / "short.npy")
    with pytest.raises(ConfigError, match="cannot read the weights of OPEN"):
        OpenOptimiser.load(tmp_path / "absent.npy")
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ConfigError, match="cannot read the weights of OPEN"):
        OpenOptimiser.load(tmp_path / "pickled.npy")


@struct.dataclass
class Recorder:
    """Plain descent that remembers what it was told, step by step."""

    steps: int = struct.field(pytree_node=False, default=4)
    needs_layers: ClassVar[bool] = True
    needs_activity: ClassVar[bool] = True

    def __call__(self, learning_rate):
        def init(params):
            del params
            return jnp.int32(0), jnp.zeros((self.steps, 2))

        def update(gradient, state, params=None, *, activity=None, epoch=0.0):
            del params
            count, told = state
            units = 0.0
            if activity is not None:
                units = activity["actor"]["torso"]["activity_Dense_0"].sum()
            told = told.at[count].set(jnp.stack([epoch, units]))
            moves = jax.tree.map(lambda g: -learning_rate * g, gradient)
            return moves, (count + 1, told)

        return optax.GradientTransformationExtraArgs(init, update)


@pytest.mark.parametrize("target_kl", slow_but([None, 1e9], None))
def test_ppo_tells_the_epoch_and_how_active_its_units_are(target_kl):
    # No step size: every gradient step sees the same networks.
    config = tiny_config(
        optimiser=Recorder(6), num_epochs=3, learning_rate=1e-30, target_kl=target_kl
    )
    bound = bind(config)
    algorithm = bound.algorithm(bound.config)
    before = jax.jit(algorithm.init)(jax.random.key(0))
    after, _ = jax.jit(algorithm.step)(before)
    told = next(x for x in jax.tree.leaves(after.opt_state) if x.shape == (6, 2))
    np.testing.assert_array_equal(told[:, 0], [0, 0, 0.5, 0.5, 1, 1])
    # The two minibatches of an epoch are the rollout, whatever their order.
    means = told[:, 1].reshape(3, 2).mean(1)
    np.testing.assert_allclose(means, means[0], rtol=1e-5)
    parts = policy_gradient.make_agent(bound.config, bound.env)
    state = before
    keys = update_keys(state, 4)
    rollout = jax.jit(lambda keys: on_policy.collect(parts, state, keys))(keys[:3])
    obs = rollout.transitions.obs.reshape(-1, 4)
    layer = state.params["actor"]["params"]["torso"]["Dense_0"]
    kernel, bias = (np.asarray(layer[name]) for name in ("kernel", "bias"))
    units = np.tanh(np.asarray(obs) @ kernel + bias)
    np.testing.assert_allclose(means[0], np.abs(units).mean(0).sum(), rtol=1e-5)
