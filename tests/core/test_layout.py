"""Where the numbers of a flat vector stand: on trees written by hand, and on PPO's."""

import jax
import numpy as np
import pytest

import purerl
from purerl.networks import memories
from purerl.optimisers.learned import layout_of
from tests.helpers import CONTINUOUS_CARTPOLE, tiny_config


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


@pytest.mark.parametrize(
    ("config", "order"),
    [
        (
            purerl.PPOConfig(layer_norm=True, hidden_sizes=(8, 4)),
            [
                *("torso/Dense_0", "torso/LayerNorm_0"),
                *("torso/Dense_1", "torso/LayerNorm_1", "Dense_0"),
            ],
        ),
        (
            purerl.PPOConfig(env="Breakout-MinAtar"),
            ["torso/Conv_0", "torso/MLP_0/Dense_0", "torso/MLP_0/Dense_1", "Dense_0"],
        ),
        (
            purerl.RecurrentPPOConfig(
                memory=memories.S5(features=8, num_blocks=2), hidden_sizes=(8,)
            ),
            [
                *("torso/Dense_0", "memory/Dense_0"),
                *("block_0/LayerNorm_0", "memory/StateSpace_0", "block_0/Dense_0"),
                *("block_1/LayerNorm_0", "memory/StateSpace_1", "block_1/Dense_0"),
            ],
        ),
        (
            purerl.RecurrentPPOConfig(
                memory=memories.Transformer(features=8, num_blocks=2, num_heads=2),
                hidden_sizes=(8,),
            ),
            [
                *("torso/Dense_0", "memory/Dense_0"),
                *("memory/LayerNorm_0", "Attention_0/inputs", "Attention_0/outputs"),
                *("memory/Gate_0/after", "memory/LayerNorm_1", "memory/Dense_1"),
                *("memory/Dense_2", "memory/Gate_1/kept", "memory/LayerNorm_2"),
                *("Attention_1/inputs", "memory/Gate_2/kept", "memory/LayerNorm_3"),
                *("memory/Dense_3", "memory/Dense_4", "memory/Gate_3/after"),
            ],
        ),
        (
            purerl.PPOConfig(env="Breakout-MinAtar", torso="impala", layer_norm=True),
            [
                *("torso/Conv_0", "torso/LayerNorm_0", "torso/Conv_1"),
                *("torso/LayerNorm_3", "torso/Conv_4", "torso/Conv_5"),
                *("torso/LayerNorm_4", "torso/Conv_6", "torso/LayerNorm_5"),
                *("torso/Conv_10", "torso/LayerNorm_8", "torso/Conv_11"),
                *("torso/Conv_14", "torso/LayerNorm_12", "torso/Dense_0"),
                *("torso/LayerNorm_13", "Dense_0"),
            ],
        ),
        (
            purerl.DQNConfig(noisy=True, dueling=True, hidden_sizes=(8,)),
            ["torso/Dense_0", "NoisyMLP_0"],
        ),
    ],
)
def test_layers_stand_in_the_order_in_which_they_see_an_observation(config, order):
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    names = [name for name in ("core", "actor") if name in state.params]
    places = depths(state.params[names[0]] if names else state.params)

    def depth_of(layer):
        return next(d for path, d in places.items() if f"/{layer}/" in f"/{path}")

    found = [depth_of(layer) for layer in order]
    assert found[0] == 0.0 and found == sorted(set(found))


@pytest.mark.parametrize("kind", [purerl.SACConfig, purerl.MPOConfig])
def test_the_head_of_a_critic_of_all_actions_is_its_last_layer(kind):
    config = kind(env="CartPole-v1", layer_norm=True, hidden_sizes=(8,))
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    places = depths(state.params)
    order = ("MLP_1/Dense_0", "MLP_1/LayerNorm_0", "DiscreteCritic_1/Dense_0")
    leaves = ("kernel", "scale", "kernel")
    found = [
        places[f"critics/params/{layer}/{leaf}"]
        for layer, leaf in zip(order, leaves, strict=True)
    ]
    assert found == [0.0, 0.5, 1.0]


def test_critics_of_pictures_are_networks_of_their_own():
    """Each has convolutions and a head of its own, side by side under one name."""
    config = purerl.SACConfig(env="Breakout-MinAtar", hidden_sizes=(8,))
    state = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    layout = layout_of(state.params)
    places = depths(state.params)
    for number in range(2):
        head = f"critics/params/DiscreteCritic_{number}/Dense_0/kernel"
        assert places[f"critics/params/CNN_{number}/Conv_0/kernel"] == 0.0
        assert places[head] == 1.0
    names = ["/".join(name) for name in layout.names]
    networks = {
        name: {int(n) for x, n in zip(names, layout.network, strict=True) if name in x}
        for name in ("actor/", "CNN_0", "DiscreteCritic_0", "CNN_1", "DiscreteCritic_1")
    }
    assert networks["CNN_0"] == networks["DiscreteCritic_0"]
    assert networks["CNN_1"] == networks["DiscreteCritic_1"]
    assert len({*networks["actor/"], *networks["CNN_0"], *networks["CNN_1"]}) == 3


def test_numbers_without_layers_are_one_layer():
    layout = layout_of(zeros())
    assert (layout.depth.tolist(), layout.sizes.tolist()) == ([0.0], [1])
    assert depths({"bias": zeros(3), "kernel": zeros(2, 3)}) == {
        "bias": 0.0,
        "kernel": 0.0,
    }


def test_ppos_networks_are_known_apart():
    config = tiny_config(env=CONTINUOUS_CARTPOLE, hidden_sizes=(8, 4))
    params = jax.eval_shape(purerl.make_algorithm(config).init, jax.random.key(0))
    params = params.params
    layout = layout_of(params)
    found = depths(params)
    assert found["actor/params/torso/Dense_0/kernel"] == 0.0
    assert found["actor/params/torso/Dense_1/kernel"] == np.float32(1 / 3)
    assert found["actor/params/Dense_0/kernel"] == np.float32(2 / 3)
    assert found["actor/params/log_std"] == 1.0
    assert found["critic/params/torso/Dense_1/bias"] == 0.5
    assert found["critic/params/Dense_0/bias"] == 1.0
    is_critic = [name[0] == "critic" for name in layout.names]
    np.testing.assert_array_equal(layout.is_critic, is_critic)
    np.testing.assert_array_equal(layout.network, np.array(is_critic).astype(int))
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert layout.spread(layout.depth).shape == (total,)
