"""DiscoRL's rule in configs and files, and what is refused."""

from typing import Any

import jax
import numpy as np
import pytest

import purerl
from purerl import serialise
from purerl.config import ConfigError
from purerl.contrib.disco import rules as disco_rules
from purerl.rules import DiscoRule
from tests.contrib import disco_case as known
from tests.helpers import assert_same_bits


def test_a_rule_of_a_file_is_a_path_in_the_config_and_comes_back(disco_file):
    rule = DiscoRule.load(disco_file)
    assert jax.tree.leaves(rule) == []  # nothing of it is in a state or in a YAML file
    config = purerl.DiscoConfig(rule=rule)
    text = serialise.to_dict(config)["rule"]
    assert text == {
        "type": "DiscoRule",
        "params": None,
        "path": str(disco_file),
        "sha256": disco_rules.read(str(disco_file))[1],
    }
    assert serialise.from_dict(serialise.to_dict(config)) == config
    assert serialise.parse_part(f"DiscoRule(path='{disco_file}')", "rule") == rule
    resolved: Any = purerl.resolve(config)
    assert resolved.prediction_size == known.SIZES.prediction


def test_a_random_rule_has_its_numbers_as_leaves_and_comes_back(tmp_path):
    rule = DiscoRule.make(
        hidden_size=3, lifetime_size=2, prediction_size=4, units=2, embedding_size=1
    )
    assert rule.prediction_size == 4
    layers = disco_rules.shapes_of(disco_rules.Sizes(3, 2, 4, 2, 1))
    assert len(jax.tree.leaves(rule)) == 2 * len(layers)
    path = serialise.save_part(rule, tmp_path / "rule.npz", "rule")
    assert_same_bits(serialise.load_part(path, "rule").params, rule.params)


def test_the_published_network_has_as_many_numbers_as_the_paper_says():
    shapes = disco_rules.shapes_of(disco_rules.Sizes())
    assert sum(rows * units + units for rows, units in shapes.values()) == 754_778


def test_files_that_cannot_be_used_are_refused_in_a_sentence(tmp_path):
    missing = tmp_path / "none.npz"
    with pytest.raises(
        ConfigError, match=r"can be read, got .*none\.npz.*No such file"
    ):
        DiscoRule.load(missing)
    text = tmp_path / "text.npz"
    text.write_text("no weights")
    with pytest.raises(ConfigError, match=r"file of DiscoRL's weights.*text\.npz"):
        DiscoRule.load(text)
    with text.open("wb") as file:  # One array, as of an .npy file.
        np.save(file, np.zeros(3))
    with pytest.raises(ConfigError, match=r"text\.npz.*one array"):
        DiscoRule.load(text)
    with pytest.raises(ConfigError, match=r"text\.npz.*is no file that"):
        serialise.load_part(text)

    def saved(**changes):
        path = tmp_path / "changed.npz"
        arrays = {**known.published(), **changes}
        np.savez(path, **{n: x for n, x in arrays.items() if x is not None})
        return path

    with pytest.raises(ConfigError, match="has no array 'lstm/linear_2/b'"):
        DiscoRule.load(saved(**{"lstm/linear_2/b": None}))
    with pytest.raises(ConfigError, match=r"'lstm/linear_3' has the shapes \(6, 4\)"):
        DiscoRule.load(saved(**{"lstm/linear_3/w": np.zeros((6, 4))}))
    with pytest.raises(ConfigError, match=r"finite weights.*'lstm/linear_1'"):
        DiscoRule.load(saved(**{"lstm/linear_1/b": np.array([np.nan])}))


def test_another_file_in_the_place_of_the_first_is_refused(tmp_path):
    path = tmp_path / "meta_network.npz"
    np.savez(path, **known.published(seed=0))
    config = purerl.DiscoConfig(rule=DiscoRule.load(path))
    np.savez(path, **known.published(seed=1))
    with pytest.raises(ConfigError, match="holds others: its SHA-256 is not"):
        purerl.make_train(config)
