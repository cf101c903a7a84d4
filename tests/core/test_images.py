"""The published networks of images, and the types in which torsos compute."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.accelerator.kernels import traced_for
from purerl.networks import Impala, Nature, init_params, make_torso
from purerl.networks.layers import Conv

ATARI = (84, 84, 4)


def count(module, shape=ATARI):
    """The number of parameters; only shapes are traced."""
    obs = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    params = jax.eval_shape(module.init, jax.random.key(0), obs)
    return sum(x.size for x in jax.tree.leaves(params))


def test_the_networks_have_the_published_numbers_of_parameters():
    # Nature's: 84 -> 20 -> 9 -> 7 pixels a side, and two numbers for each unit's norm.
    assert count(make_torso("nature", ATARI, (8,), "tanh")) == 1_684_128
    normed = make_torso("nature", ATARI, (8,), "tanh", layer_norm=True)
    assert count(normed) == 1_684_128 + 2 * (32 + 64 + 64 + 512)
    # IMPALA's: 84 -> 42 -> 21 -> 11 pixels a side, in fifteen convolutions.
    assert count(make_torso("impala", ATARI, (8,), "tanh")) == 1_089_232


def convolve(x, layer, stride, padding):
    """A convolution by its definition: a sum over the window's pixels, in NumPy."""
    kernel, bias = (np.asarray(layer[name], np.float64) for name in ("kernel", "bias"))
    size = kernel.shape[0]
    x = np.pad(x, ((padding, padding), (padding, padding), (0, 0)))
    side = (x.shape[0] - size) // stride + 1
    out = np.zeros((side, side, kernel.shape[-1]))
    for i in range(side):
        for j in range(side):
            window = x[i * stride : i * stride + size, j * stride : j * stride + size]
            out[i, j] = np.tensordot(window, kernel, 3) + bias
    return out


@pytest.mark.parametrize(
    ("lead", "shape", "size", "stride", "padding"),
    [
        ((), (10, 10, 4), 3, 1, "VALID"),
        ((3,), (10, 10, 4), 3, 1, "VALID"),
        ((), (5, 7, 2), 3, 1, "SAME"),
        ((), (6, 4, 1), 2, 1, "SAME"),  # an even window has more padding at its end
        ((), (12, 9, 3), 4, 2, "VALID"),  # a stride that leaves pixels over
        ((), (12, 9, 3), 4, 2, "SAME"),
        ((3,), (12, 9, 3), 4, 2, "SAME"),
        ((), (9, 8, 2), 8, 4, "VALID"),
        ((3,), (3, 3, 2), 1, 2, "SAME"),
    ],
)
def test_convolutions_and_their_gradients_are_flaxs(lead, shape, size, stride, padding):
    """Of one agent, and of several in a `vmap`."""
    theirs = nn.Conv(5, (size, size), stride, padding)
    ours = Conv(5, size, stride, padding)
    obs = jax.random.normal(jax.random.key(0), (*lead, 4, *shape))
    keys = jax.random.split(jax.random.key(1), lead) if lead else jax.random.key(1)
    init = jax.vmap(theirs.init) if lead else theirs.init
    params = jax.jit(init)(keys, obs)
    # The parameters are no zeros, so that a bias that is lost is seen.
    params = jax.tree.map(
        lambda x: x + jnp.cos(jnp.arange(x.size)).reshape(x.shape), params
    )

    def outputs_and_gradients(module):
        def loss(params, obs):
            y = module.apply(params, obs)
            return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum(), y

        both = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        (_, y), gradients = jax.jit(jax.vmap(both) if lead else both)(params, obs)
        return y, gradients

    expected = outputs_and_gradients(theirs)
    found = outputs_and_gradients(ours)
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-4)
    with traced_for("cuda"):
        chex.assert_trees_all_equal(outputs_and_gradients(ours), expected)
    shapes = jax.eval_shape(ours.init, jax.random.key(0), jnp.zeros((1, *shape)))
    known = jax.eval_shape(theirs.init, jax.random.key(0), jnp.zeros((1, *shape)))
    assert shapes == known


def normalise(x):
    """Layer normalisation over the last axis, as it begins: scale 1, shift 0."""
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-6)


def relu(x):
    return np.maximum(x, 0.0)


def pool(x):
    """The largest of 3x3 with stride 2: of an odd side padded by one on both ends."""
    side = x.shape[0]
    assert side % 2 == 1
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    ends = range(0, side, 2)
    return np.array(
        [[padded[i : i + 3, j : j + 3].max((0, 1)) for j in ends] for i in ends]
    )


@pytest.mark.parametrize("layer_norm", [False, True])
def test_impalas_network_is_what_its_figure_says(layer_norm):
    module = Impala((3, 2), 1, 4, layer_norm=layer_norm)
    obs = jax.random.normal(jax.random.key(0), (1, 5, 5, 2))
    params = init_params(jax.random.key(1), {"torso": (module, [obs])})["torso"]
    layers = params["params"]
    norm = normalise if layer_norm else (lambda x: x)
    convolutions = iter(range(6))

    def conv(x):
        return convolve(x, layers[f"Conv_{next(convolutions)}"], 1, 1)

    x = np.asarray(obs[0], np.float64)
    for _ in range(2):
        x = pool(conv(x))
        x = x + conv(relu(norm(conv(relu(norm(x))))))
    x = relu(norm(x)).reshape(-1)
    dense = layers["Dense_0"]
    expected = relu(norm(x @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"])))
    found = jax.jit(module.apply)(params, obs)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_natures_network_is_its_convolutions():
    module = Nature(dense_size=3)
    obs = jax.random.uniform(jax.random.key(0), (1, 36, 36, 1))
    params = init_params(jax.random.key(1), {"torso": (module, [obs])})["torso"]
    layers, x = params["params"], np.asarray(obs[0], np.float64)
    for index, stride in enumerate((4, 2, 1)):
        x = relu(convolve(x, layers[f"Conv_{index}"], stride, 0))
    dense = layers["Dense_0"]
    expected = relu(x.reshape(-1) @ np.asarray(dense["kernel"]))
    found = jax.jit(module.apply)(params, obs)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4)
    # Orthogonal, of gain sqrt(2): the convolution's window is a row of 16 numbers.
    kernel = np.asarray(layers["Conv_2"]["kernel"]).reshape(-1, 64)
    np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(64), atol=1e-4)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_bfloat16_is_each_product_rounded_and_features_are_float32(layer_norm):
    obs = jax.random.normal(jax.random.key(0), (7, 5))
    torso = make_torso(
        "mlp", (5,), (6, 4), "relu", layer_norm=layer_norm, dtype=jnp.bfloat16
    )
    params = init_params(jax.random.key(1), {"torso": (torso, [obs])})["torso"]
    exact = make_torso("mlp", (5,), (6, 4), "relu", layer_norm=layer_norm)
    chex.assert_trees_all_equal_shapes_and_dtypes(
        params, jax.eval_shape(exact.init, jax.random.key(1), obs)
    )

    def rounded(x):
        return np.asarray(jnp.asarray(x, jnp.bfloat16).astype(jnp.float32))

    x = rounded(obs)
    for index in range(2):
        kernel = rounded(params["params"][f"Dense_{index}"]["kernel"])
        x = rounded(x @ kernel)
        x = rounded(relu(normalise(x) if layer_norm else x))
    found = jax.jit(torso.apply)(params, obs)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, rounded(found))  # eight bits of mantissa
    np.testing.assert_allclose(found, x, rtol=2e-2, atol=1e-2)
    assert np.abs(found - jax.jit(exact.apply)(params, obs)).max() > 1e-4
