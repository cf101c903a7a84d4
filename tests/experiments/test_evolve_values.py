"""The evolution of the numbers of algorithms that learn action values."""

import json
from pathlib import Path

import evolve_values
import frame
import pytest

import purerl
from purerl import presets, serialise
from purerl.acting.environment import resolve_env
from purerl.auto import resolve
from purerl.meta.genome import Genome

SETTINGS = evolve_values.SETTINGS


@pytest.mark.parametrize("name", SETTINGS)
def test_an_evolution_moves_the_named_numbers_from_those_of_the_default(name):
    setting = SETTINGS[name]
    genome = Genome(setting.default, resolve_env(setting.default), setting.evolve)
    assert genome.size == len(setting.evolve)
    default = resolve(setting.default, resolve_env(setting.default))
    for leaf in genome.leaves:
        value = default
        for part in leaf.name.split("."):
            value = getattr(value, part)
        assert float(leaf.start) == pytest.approx(value, rel=1e-6)
        assert leaf.scale == setting.evolve[leaf.name]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_task_can_be_trained_on_and_none_is_in_both_lists(name):
    setting = SETTINGS[name]
    training = [task for task, _ in setting.training]
    for task in [*training, *setting.unseen]:
        purerl.make_train(setting.default.replace(**task))
    assert not [task for task in setting.unseen if task in training]
    assert all(low < high for _, (low, high) in setting.training)


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_the_preset_has_the_numbers_that_were_evolved(name):
    kept = json.loads(evolve_values.STORE.read_text())[name]["learned"]
    learned, preset = frame.kept_config(kept), presets.load(f"{name}-tuned")
    default, same = SETTINGS[name].default, {}
    for number in SETTINGS[name].evolve:
        mine, theirs = preset, learned
        for part in number.split("."):
            mine, theirs = getattr(mine, part), getattr(theirs, part)
        assert float(mine) == pytest.approx(float(theirs), rel=1e-3)
        field = number.split(".")[0]
        same[field] = getattr(default, field)
    assert preset.replace(num_evaluations=0, **same) == default


def test_what_was_evolved_is_kept_and_can_be_trained_with():
    kept = json.loads(evolve_values.STORE.read_text())["pqn"]["learned"]
    artifacts = Path(__file__).parents[2] / "experiments" / "artifacts"
    config = serialise.from_yaml(artifacts / "pqn-evolved.yaml")
    learned = frame.kept_config(kept)
    assert serialise.to_dict(config) == serialise.to_dict(learned)
    purerl.make_train(config)
