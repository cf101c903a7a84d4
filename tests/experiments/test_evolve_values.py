"""The evolution of the numbers of algorithms that learn action values."""

import sys
from pathlib import Path

import pytest

import purerl
from purerl.acting.environment import resolve_env
from purerl.auto import resolve
from purerl.meta.genome import Genome

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))

import evolve_values

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
