"""A loss of one's own: written with its type, read back, and told from others."""

import re
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import pytest
from flax import struct

import purerl
from purerl import losses, serialise
from purerl.config import ConfigError
from purerl.storage.folders import differences

HERE = __name__


@struct.dataclass
class Soft:
    """`weight * log_ratio^2`, or its absolute value: a number, a kind and sizes."""

    weight: float = 1.0
    kind: str = struct.field(pytree_node=False, default="square")
    sizes: tuple[int, ...] = struct.field(pytree_node=False, default=(1, 2))

    def __call__(self, log_ratio, advantage):
        del advantage
        return self.weight * (log_ratio**2 if self.kind == "square" else abs(log_ratio))


@struct.dataclass
class Hard(Soft):
    """Equal fields, another function."""

    def __call__(self, log_ratio, advantage):
        return 100.0 * super().__call__(log_ratio, advantage)


@struct.dataclass
class Sum:
    """A loss made of losses, and of arrays by name."""

    first: Any
    second: Any
    scales: dict

    def __call__(self, log_ratio, advantage):
        both = self.first(log_ratio, advantage) + self.second(log_ratio, advantage)
        return both * self.scales["outer"][0]


@pytest.fixture(autouse=True)
def registry():
    with patch.dict(losses.LOSSES):
        yield losses.LOSSES


def through_yaml(config, tmp_path):
    serialise.to_yaml(config, tmp_path / "config.yaml")
    return serialise.from_yaml(tmp_path / "config.yaml")


def test_a_registered_loss_comes_back_from_yaml_as_itself(tmp_path):
    losses.register("Softly", Soft)
    loss = Soft(0.25, "absolute", (3, 4))
    config = purerl.PPOConfig(policy_loss=loss)
    fields = {"weight": 0.25, "kind": "absolute", "sizes": [3, 4]}
    written = serialise.to_dict(config)["policy_loss"]
    assert written == {"type": "Softly", **fields}
    back = through_yaml(config, tmp_path)
    assert back.policy_loss == loss and type(back.policy_loss) is Soft
    assert serialise.parse_part("Softly(weight=2, kind='x')", "loss") == Soft(2, "x")
    # The same structure: a program that took one takes the other.
    assert jax.tree.structure(back) == jax.tree.structure(config)


def test_losses_inside_a_loss_come_back_too(tmp_path):
    losses.register("Soft", Soft)
    losses.register("Sum", Sum)
    loss = Sum(Soft(0.5), losses.ClipDrift(0.1), {"outer": np.array([2.0, 3.0])})
    back = through_yaml(purerl.PPOConfig(policy_loss=loss), tmp_path).policy_loss
    assert (back.first, back.second) == (loss.first, loss.second)
    np.testing.assert_array_equal(back.scales["outer"], loss.scales["outer"])


def test_an_unregistered_loss_is_known_by_its_import_path():
    config = purerl.PPOConfig(policy_loss=Soft(0.25))
    plain = serialise.to_dict(config)
    assert plain["policy_loss"]["type"] == f"{HERE}:Soft"
    assert serialise.from_dict(plain) == config
    assert serialise.parse_part(f"{HERE}:Soft(weight=0.25)", "loss") == Soft(0.25)
    losses.register("Soft", Soft)
    assert serialise.from_dict(plain) == config
    for path, words in {
        "lab.losses:Soft": "has not been imported.*--import lab.losses",
        f"{HERE}:Softer": "cannot find .*Softer .*for example mypackage.parts:Mine",
        f"{HERE}:stored": "must be a flax.struct.dataclass with __call__",
        "os:abort": "must be a flax.struct.dataclass with __call__",
    }.items():
        with pytest.raises(ConfigError, match=words):
            serialise.parse_part({"type": path}, "loss")


def stored(config):
    return {"config": serialise.to_dict(config), "seeds": [0]}


def test_equal_fields_of_another_class_are_another_config():
    soft, hard = (purerl.PPOConfig(policy_loss=cls(0.5)) for cls in (Soft, Hard))
    assert differences(stored(soft), stored(soft)) == []
    (found,) = differences(stored(soft), stored(hard))
    assert re.match(r"policy_loss is .*:Soft.* and .*:Hard", found)


REFUSED = [
    ("ClipDrift", Soft, "'ClipDrift' of .*Soft"),
    ("Square", lambda r, a: r**2, "'Square'.*flax.struct.dataclass"),
    ("my drift", Soft, "'my drift'"),
]


@pytest.mark.parametrize(("name", "cls", "words"), REFUSED)
def test_what_cannot_be_registered_is_refused(name, cls, words, registry):
    before = dict(registry)
    with pytest.raises(ConfigError, match=words):
        losses.register(name, cls)
    assert registry == before
