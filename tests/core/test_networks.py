"""Networks: how they begin, what they compute by name, and in which types."""

from functools import partial

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.accelerator.kernels import traced_for
from purerl.networks import (
    MLP,
    CategoricalActor,
    Critic,
    GaussianActor,
    Impala,
    Nature,
    init_params,
    make_torso,
    orthogonal,
    small_product,
)
from purerl.networks.distributions import Gaussian
from purerl.networks.layers import Conv, Dense, layer_norm
from tests.helpers import deadline, slow_but


def gram_error(scale, shape, seeds):
    """Largest entry of `W^T W - scale^2 I` (the smaller side), per seed."""

    @jax.jit
    @jax.vmap
    def error(key):
        matrix = orthogonal(scale)(key, shape).reshape(-1, shape[-1])
        matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
        gram = jnp.matmul(matrix.T, matrix, precision="highest")
        return jnp.abs(gram - scale**2 * jnp.eye(len(gram))).max()

    return np.asarray(error(jax.random.split(jax.random.key(0), seeds)))


SHAPES = [
    ((64, 4), 50),  # tall
    ((4, 64), 50),  # wide
    # square: the worst conditioned
    pytest.param((64, 64), 200, marks=pytest.mark.slow),
    ((3, 3, 4, 16), 50),  # convolution: 36 rows
    ((3, 3, 1, 16), 50),  # convolution: 9 rows
    ((5, 1), 20),
    ((1, 1), 20),
]


@pytest.mark.parametrize(("shape", "seeds"), SHAPES)
def test_rows_or_columns_are_orthonormal_times_the_scale(shape, seeds):
    scale = np.sqrt(2.0)
    assert gram_error(scale, shape, seeds).max() < 2e-5


@pytest.mark.slow
def test_the_worst_conditioned_of_many_matrices_is_orthogonal_too():
    # Of 100,000 random 2x2 matrices the worst has a condition number near 1e5.
    keys = jax.random.split(jax.random.key(0), 100_000)
    drawn = jax.vmap(lambda k: jax.random.normal(k, (2, 2)))(keys)
    assert np.linalg.cond(drawn).max() > 1e4
    assert gram_error(1.0, (2, 2), 100_000).max() < 2e-5


@pytest.mark.slow
def test_the_matrices_are_haar_distributed():
    # An entry w of a Haar orthogonal 8x8 matrix has E[w] = 0, E[w^2] = 1/8 and
    # E[w^4] = 3 / (8 * 10); half the determinants are -1 (QR without sign correction
    # fails all but the second), and no two entries correlate.
    n, seeds = 8, 20_000
    keys = jax.random.split(jax.random.key(0), seeds)
    matrices = np.asarray(jax.jit(jax.vmap(lambda k: orthogonal()(k, (n, n))))(keys))
    error = 1 / np.sqrt(seeds)
    assert np.abs(matrices.mean(0)).max() < 4.5 * error / np.sqrt(n)
    np.testing.assert_allclose((matrices**2).mean(0), np.full((n, n), 1 / n), rtol=0.05)
    np.testing.assert_allclose((matrices**4).mean(), 3 / (n * (n + 2)), rtol=0.02)
    negative = (np.linalg.det(matrices) < 0).mean()
    assert abs(negative - 0.5) < 4.5 * 0.5 * error


@pytest.mark.slow
def test_networks_that_start_together_start_as_each_alone_does():
    # The same distribution, drawn in one place: orthonormal, of its own scale, and
    # independent of the others.
    obs = jnp.zeros((1, 4))
    networks = {
        "actor": (CategoricalActor(MLP((8, 8), "tanh"), 3), [obs]),
        "critic": (Critic(MLP((8, 8), "tanh")), [obs]),
    }
    keys = jax.random.split(jax.random.key(0), 2000)
    found = jax.jit(jax.vmap(lambda key: init_params(key, networks)))(keys)
    alone = networks["actor"][0].init(jax.random.key(0), obs)
    chex.assert_trees_all_equal_shapes_and_dtypes(
        jax.tree.map(lambda x: x[0], found["actor"]), alone
    )
    scales = {8: np.sqrt(2), 3: 0.01, 1: 1.0}
    kernels = [
        np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(found)
        if path[-1].key == "kernel"
    ]
    assert len(kernels) == 6
    for kernel in kernels:
        rows, columns = kernel.shape[1:]
        tall = kernel if rows >= columns else kernel.swapaxes(1, 2)
        gram = np.einsum("nij,nik->njk", tall, tall) / scales[columns] ** 2
        identity = np.broadcast_to(np.eye(gram.shape[-1]), gram.shape)
        np.testing.assert_allclose(gram, identity, atol=1e-5)
        # Entries have mean 0 and variance 1 / max(rows, columns), each of them.
        deviation = scales[columns] / np.sqrt(max(rows, columns))
        assert np.abs(kernel.mean(0)).max() < 5 * deviation / np.sqrt(len(kernel))
        np.testing.assert_allclose(kernel.std(0), deviation, rtol=0.12)
    # Second layers of actor and critic are drawn apart.
    first, second = (kernel for kernel in kernels if kernel.shape[1:] == (8, 8))
    correlation = (first[:, :, 0] * second[:, :, 0]).sum(1) / 2
    assert abs(correlation.mean()) < 5 / np.sqrt(8 * len(keys))


def test_an_ensemble_of_mapped_networks_draws_for_itself(key):
    # flax.linen.vmap makes another array of each layer's initial value.
    ensemble = nn.vmap(
        MLP,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=3,
    )((8,), "tanh")
    params = init_params(key, {"q": (ensemble, [jnp.zeros((1, 4))])})["q"]
    kernels = np.asarray(params["params"]["Dense_0"]["kernel"])
    gram = np.einsum("nij,nkj->nik", kernels, kernels)
    expected = np.broadcast_to(2 * np.eye(4), gram.shape)
    np.testing.assert_allclose(gram, expected, atol=1e-5)
    assert len(np.unique(kernels[:, 0, 0])) == 3


def test_initialising_on_two_devices_at_once_does_not_hang():
    # QR does, on CPU: its LAPACK call waits for threads that both devices occupy.
    keys = jax.random.split(jax.random.key(0), 16)
    init = jax.vmap(lambda k: orthogonal()(k, (64, 64)))
    with deadline(120):
        spread = jax.block_until_ready(jax.pmap(init)(keys.reshape(2, 8)))
    np.testing.assert_allclose(
        spread.reshape(16, 64, 64), jax.jit(init)(keys), atol=1e-5
    )


def test_an_mlp_is_dense_layers_with_activations():
    torso = MLP((3, 2), "tanh")
    obs = jnp.array([[1.0, -2.0]])
    params = jax.jit(torso.init)(jax.random.key(0), obs)
    layers = params["params"]
    hidden = np.asarray(obs)
    for name in ("Dense_0", "Dense_1"):
        hidden = np.tanh(hidden @ np.asarray(layers[name]["kernel"]))
        np.testing.assert_array_equal(layers[name]["bias"], 0.0)
    np.testing.assert_allclose(jax.jit(torso.apply)(params, obs), hidden, rtol=1e-5)


def test_simba_is_its_residual_blocks():
    torso = make_torso("simba", (2, 3), (4, 4), "relu", layer_norm=True)
    obs = jax.random.normal(jax.random.key(0), (5, 2, 3))
    params = jax.jit(torso.init)(jax.random.key(1), obs)
    layer = jax.tree.map(np.asarray, params["params"])
    assert sorted(layer) == [f"Dense_{n}" for n in range(5)] + [
        f"LayerNorm_{n}" for n in range(3)
    ]

    def normed(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-6)

    def dense(number, x):
        return x @ layer[f"Dense_{number}"]["kernel"] + layer[f"Dense_{number}"]["bias"]

    x = dense(0, np.asarray(obs).reshape(5, 6))
    for block in range(2):
        inner = np.maximum(dense(2 * block + 1, normed(x)), 0)
        assert inner.shape == (5, 16)  # four times as wide inside
        x = x + dense(2 * block + 2, inner)
    found = jax.jit(torso.apply)(params, obs)
    np.testing.assert_allclose(found, normed(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        jax.jit(torso.apply)(params, obs[2]), found[2], rtol=1e-4
    )
    with pytest.raises(ValueError, match="all of one width"):
        make_torso("simba", (3,), (4, 5), "relu")


def test_the_log_std_of_a_gaussian_does_not_depend_on_the_state():
    actor = GaussianActor(MLP((8,), "tanh"), 2, log_std_init=-0.5)
    obs = jax.random.normal(jax.random.key(0), (6, 3))
    params = jax.jit(actor.init)(jax.random.key(1), obs)
    outputs = jax.jit(actor.apply)(params, obs)
    assert isinstance(outputs, Gaussian)
    np.testing.assert_array_equal(outputs.log_std, np.full((6, 2), -0.5, np.float32))
    assert params["params"]["log_std"].shape == (2,)
    assert (outputs.mean.std(0) > 0).all()


@pytest.mark.parametrize("shape", slow_but([(5, 3), (2, 5, 3), (3,)], (3,)))
def test_the_small_product_has_the_gradients_of_the_plain_one(key, shape):
    x, kernel = jax.random.normal(key, shape), jax.random.normal(key, (3, 4))
    dense = nn.Dense(4, dot_general=small_product)
    plain = nn.Dense(4)
    params = {"params": {"kernel": kernel, "bias": jnp.ones(4)}}

    def loss(layer, params, x):
        return (layer.apply(params, x) ** 3).sum()

    found, expected = (
        jax.value_and_grad(partial(loss, layer), argnums=(0, 1))(params, x)
        for layer in (dense, plain)
    )
    chex.assert_trees_all_close(found, expected, rtol=1e-5)


def test_a_layer_whose_rows_are_moved_apart_has_the_gradients_of_the_plain_one(key):
    if jax.default_backend() != "cpu":
        pytest.skip("only a CPU moves rows apart")
    x, kernel = jax.random.normal(key, (256, 1024)), jax.random.normal(key, (1024, 3))
    params = {"params": {"kernel": kernel, "bias": jnp.ones(3)}}

    def both(layer):
        return jax.value_and_grad(
            lambda params, x: jnp.sin(layer.apply(params, x)).sum(), argnums=(0, 1)
        )

    assert "pad" in str(jax.make_jaxpr(both(Dense(3)))(params, x))
    assert "pad" not in str(jax.make_jaxpr(Dense(3).apply)(params, x))
    found, expected = (both(layer)(params, x) for layer in (Dense(3), nn.Dense(3)))
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-4)
    slope = jax.jvp(both(Dense(3)), (params, x), (params, x))[1]
    plain = jax.jvp(both(nn.Dense(3)), (params, x), (params, x))[1]
    chex.assert_trees_all_close(slope, plain, rtol=1e-3, atol=2e-2)


def test_the_compiler_does_not_fold_the_small_products_transpositions(key):
    if jax.default_backend() != "cpu":
        pytest.skip("only a CPU copies")
    x, kernel = jax.random.normal(key, (32, 64)), jax.random.normal(key, (64, 64))
    dims = (((1,), (0,)), ((), ()))

    def program(product):
        grad = jax.grad(lambda x, k: (product(x, k, dims) ** 2).sum(), argnums=(0, 1))
        return jax.jit(grad).lower(x, kernel).compile().as_text()

    folded = "lhs_contracting_dims={0}"
    assert folded in program(jax.lax.dot_general)
    assert folded not in program(small_product)


def test_layer_normalisation_is_the_same_on_every_platform():
    x = 3.0 + jax.random.normal(jax.random.key(0), (5, 7))
    params = {"params": {"scale": jnp.linspace(0.5, 2, 7), "bias": jnp.arange(7.0)}}
    found = {}
    for platform in ("cpu", "cuda"):
        with traced_for(platform):
            found[platform] = layer_norm().apply(params, x)
    mean, deviation = (np.array(f(x, -1))[:, None] for f in (jnp.mean, jnp.std))
    scale, bias = (np.array(params["params"][name])[None] for name in ("scale", "bias"))
    known = (x - mean) / deviation * scale + bias
    for values in found.values():
        np.testing.assert_allclose(values, known, rtol=1e-4, atol=1e-5)
    assert not jnp.array_equal(found["cpu"], found["cuda"])


def test_layer_normalisation_of_a_large_mean_keeps_its_bits_on_an_accelerator():
    # The mean square less the square of the mean has none left here.
    x = 1e4 + jnp.array([[-1.0, 1.0, -1.0, 1.0]])
    params = {"params": {"scale": jnp.ones(4), "bias": jnp.zeros(4)}}
    with traced_for("cuda"):
        found = layer_norm().apply(params, x)
    np.testing.assert_allclose(found, [[-1.0, 1.0, -1.0, 1.0]], rtol=1e-5)


# Networks of images, and the types in which torsos compute

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


CONVOLUTIONS = [
    ((), (10, 10, 4), 3, 1, "VALID"),
    ((3,), (10, 10, 4), 3, 1, "VALID"),
    ((), (5, 7, 2), 3, 1, "SAME"),
    ((), (6, 4, 1), 2, 1, "SAME"),  # an even window has more padding at its end
    ((), (12, 9, 3), 4, 2, "VALID"),  # a stride that leaves pixels over
    ((), (12, 9, 3), 4, 2, "SAME"),
    ((3,), (12, 9, 3), 4, 2, "SAME"),
    ((), (9, 8, 2), 8, 4, "VALID"),
    ((3,), (9, 10, 2), 4, 2, "VALID"),  # four outputs at once, with a stride
    ((), (5, 6, 17), 3, 1, "SAME"),  # two, of many channels
    ((3,), (3, 3, 2), 1, 2, "SAME"),
]


@pytest.mark.parametrize(("lead", "shape", "size", "stride", "padding"), CONVOLUTIONS)
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


@pytest.mark.parametrize("layer_norm", [False, True])
def test_impalas_network_is_what_its_figure_says(layer_norm):
    module = Impala((3, 2), 1, 4, layer_norm=layer_norm)
    obs = jax.random.normal(jax.random.key(0), (1, 5, 5, 2))
    params = init_params(jax.random.key(1), {"torso": (module, [obs])})["torso"]
    layers = params["params"]
    norm = normalise if layer_norm else (lambda x: x)
    convolutions = iter(range(6))

    def conv(x):
        layer = layers[f"Conv_{next(convolutions)}"]
        return nn.Conv(len(layer["bias"]), (3, 3)).apply({"params": layer}, x)

    x = obs
    for _ in range(2):
        x = nn.max_pool(conv(x), (3, 3), (2, 2), ((1, 1), (1, 1)))
        x = x + conv(relu(norm(conv(relu(norm(x))))))
    x = nn.Dense(4).apply({"params": layers["Dense_0"]}, relu(norm(x)).reshape(1, -1))
    found = jax.jit(module.apply)(params, obs)
    np.testing.assert_allclose(found, relu(norm(x)), rtol=1e-4, atol=1e-5)


def test_natures_network_is_its_convolutions():
    module = Nature(dense_size=3)
    obs = jax.random.uniform(jax.random.key(0), (1, 36, 36, 1))
    params = init_params(jax.random.key(1), {"torso": (module, [obs])})["torso"]
    layers, x = params["params"], obs
    for index, (units, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1))):
        conv = nn.Conv(units, (size, size), stride, "VALID")
        x = relu(conv.apply({"params": layers[f"Conv_{index}"]}, x))
    dense = nn.Dense(3).apply({"params": layers["Dense_0"]}, x.reshape(1, -1))
    found = jax.jit(module.apply)(params, obs)
    np.testing.assert_allclose(found, relu(dense), rtol=1e-4)
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
