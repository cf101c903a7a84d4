import numpy as np
import pytest

import purerl
from purerl.config import ConfigError
from purerl.space.axes import read_values
from purerl.space.design import parse_axis as parse


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("learning-rate=1e-4,3e-4", ("learning_rate", [1e-4, 3e-4])),
        ("gamma=linspace(0.9, 1, 3)", ("gamma", [0.9, 0.95, 1.0])),
        ("num_envs=range(2,9,2)", ("num_envs", [2, 4, 6, 8])),
        ("hidden_sizes=(64,64),(8,)", ("hidden_sizes", [(64, 64), (8,)])),
        ("env=CartPole-v1,Doors-v0", ("env", ["CartPole-v1", "Doors-v0"])),
        ("lr=loguniform(1e-4,1e-2)", ("lr", purerl.loguniform(1e-4, 1e-2))),
        ("n=choice(4,8)", ("n", purerl.choice([4, 8]))),
        ("n=7", ("n", [7])),
        (
            "policy_loss=ClipDrift(clip_eps=0.1),DPODrift(alpha=2.0, beta=0.6)",
            (
                "policy_loss",
                ["ClipDrift(clip_eps=0.1)", "DPODrift(alpha=2.0, beta=0.6)"],
            ),
        ),
    ],
)
def test_axes_as_the_command_line_writes_them(text, axis):
    assert parse(text) == axis


def test_geomspace_is_even_in_the_logarithm():
    name, values = parse("learning_rate=geomspace(1e-4,1e-2,3)")
    assert name == "learning_rate"
    np.testing.assert_allclose(values, [1e-4, 1e-3, 1e-2])


@pytest.mark.parametrize("ends", ["-1,1", "0,1", "1,1e999"])
@pytest.mark.filterwarnings("error")
def test_geomspace_needs_ends_of_one_sign_and_says_so_without_a_warning(ends):
    with pytest.raises(purerl.ConfigError, match="two finite ends of one sign"):
        parse(f"learning_rate=geomspace({ends},3)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learning_rate", "NAME=VALUES, got 'learning_rate'"),
        ("lr=linspace(1,2)", "cannot read the axis 'lr=linspace"),
        ("lr=loguniform(2,1)", "lower one first"),
        ("lr=geomspace(1e-4)", "cannot read the axis 'lr=geomspace"),
        ("lr=linspace(0,1,-3)", "must be non-negative"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(text, words):
    with pytest.raises(ConfigError, match=words):
        parse(text)


def test_a_set_has_no_order_and_is_no_axis():
    with pytest.raises(ConfigError, match="must be a list of values, got a set"):
        read_values("activation", {"tanh", "relu"})
