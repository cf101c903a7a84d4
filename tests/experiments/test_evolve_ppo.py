"""The evolution of PPO's numbers over several tasks, and what it left behind."""

import functools
import json
import operator
from pathlib import Path
from types import SimpleNamespace

import evolve_ppo
import evolve_values
import frame
import jax
import numpy as np
import pytest
import xarray as xr

import purerl
from purerl import presets, serialise
from purerl.acting.environment import resolve_env
from purerl.meta.genome import Genome
from purerl.optimisers import LearnedOptimiser
from purerl.rules import LPGRule

FOLDER = Path(__file__).parents[2] / "experiments"
ARTIFACTS = FOLDER / "artifacts"


def compared(scores):
    """A comparison with scores `[S]` by task and setting."""
    tasks, settings = list(scores), list(next(iter(scores.values())))
    table = [[scores[task][name] for name in settings] for task in tasks]
    dims = ("environment", "setting", "seed")
    data = {"training_curve": (dims, np.array(table, float))}
    coords = {"environment": tasks, "setting": settings}
    return SimpleNamespace(dataset=xr.Dataset(data, coords))


def test_scores_are_in_units_of_tuned_above_no_learning():
    around = np.tile([-1.0, 1.0], 4)  # so that there is something to resample
    one = {"tuned": 10 + around, "no learning": np.zeros(8), "x": np.full(8, 5.0)}
    two = {"tuned": -100 + around, "no learning": np.full(8, -200.0)}
    two["x"] = np.full(8, -150.0)
    none = {"tuned": around, "no learning": around, "x": np.full(8, 9.0)}
    found = evolve_ppo.normalised(compared({"a": one, "b": two, "untold": none}))
    assert list(found["x"]["tasks"]) == ["a", "b"]  # nobody learns the third
    assert found["x"]["iqm"] == pytest.approx(0.5)
    assert found["x"]["raw"] == {"a": 5.0, "b": -150.0, "untold": 9.0}
    # The interval knows that the unit itself is uncertain.
    assert found["x"]["low"] < 0.5 < found["x"]["high"]
    assert found["tuned"]["iqm"] == pytest.approx(1.0, abs=0.02)
    assert found["no learning"]["iqm"] == pytest.approx(0.0)
    assert found["tuned"]["difference"] == [0.0, 0.0, 0.0]
    apart, low, high = found["no learning"]["difference"]
    assert low <= apart == -found["tuned"]["iqm"] <= high
    apart, low, high = found["x"]["mean_difference"]  # tasks count alike
    assert low < apart < high and apart == pytest.approx(-0.5)
    # A failed run counts as the worst of its task.
    failed = {**one, "x": np.array([np.nan] * 8)}
    assert evolve_ppo.normalised(compared({"a": failed}))["x"]["iqm"] == 0.0


@pytest.mark.parametrize("name", evolve_ppo.SETTINGS)
def test_every_setting_starts_from_tuned_ppo_and_can_be_evolved(name):
    tuned = presets.load("ppo-tuned")
    setting = evolve_ppo.SETTINGS[name]
    config = tuned.replace(**setting.changes(tuned))
    plain = {n: s for n, s in evolve_ppo.PLAIN.items() if n not in setting.without}
    genome = Genome(config, resolve_env(config), {**plain, **setting.evolve})
    start = genome.solution(genome.start())
    assert np.isfinite(genome.start()).all()
    purerl.make_train(
        config.replace(**{k: v for k, v in start.items() if k == "gamma"})
    )
    assert float(start["gamma"]) == pytest.approx(tuned.gamma, rel=1e-5)


@pytest.mark.parametrize("name", sorted(x.stem for x in ARTIFACTS.glob("lpg-*.npz")))
def test_a_learned_rule_can_be_read_and_trained_with(name):
    rule = purerl.load_part(ARTIFACTS / f"{name}.npz")
    assert isinstance(rule, LPGRule)
    purerl.make_train(purerl.LPGConfig(env="Catch-bsuite", rule=rule))


def same_number(config, other, name):
    """Two configs have the same number under a dotted name."""
    mine, theirs = (operator.attrgetter(name)(each) for each in (config, other))
    return float(mine) == pytest.approx(float(theirs), rel=1e-3)


def kept(file, *keys):
    """The config that the results of an evolution hold."""
    numbers = json.loads((FOLDER / "results" / f"{file}.json").read_text())
    return frame.kept_config(functools.reduce(dict.get, keys, numbers)["learned"])


@pytest.mark.parametrize(
    ("artifact", "file", "keys"),
    [
        ("pqn-evolved", "evolve-values", ("pqn",)),
        *(
            (f"ppo-{name}", "evolve-ppo", ("evolved", name))
            for name in evolve_ppo.STUDIES["five"].forms
        ),
    ],
)
def test_what_was_evolved_is_kept_and_can_be_trained_with(artifact, file, keys):
    config = serialise.from_yaml(ARTIFACTS / f"{artifact}.yaml")
    assert serialise.to_dict(config) == serialise.to_dict(kept(file, *keys))
    purerl.make_train(config)


def test_the_evolved_optimiser_can_be_read_and_trained_with():
    config = serialise.from_yaml(ARTIFACTS / "ppo-learned-optimiser.yaml")
    assert isinstance(config.optimiser, LearnedOptimiser)
    sizes = [leaf.size for leaf in jax.tree.leaves(config.optimiser.params)]
    assert sum(sizes) == 50  # as docs/results/learning-to-learn.md says
    purerl.make_train(config)


def test_the_closed_form_of_the_learned_drift_is_the_one_on_the_page():
    drift = purerl.load_part(ARTIFACTS / "ppo-drift-distilled.npz")
    found = json.loads((FOLDER / "results" / "evolve-ppo.json").read_text())
    assert drift.formula() == found["distilled"]
    config = serialise.from_yaml(ARTIFACTS / "ppo-drift-distilled.yaml")
    network = serialise.from_yaml(ARTIFACTS / "ppo-drift.yaml")
    assert config.replace(policy_loss=network.policy_loss) == network
    assert config.policy_loss.formula() == drift.formula()
    page = FOLDER.parent / "docs" / "results" / "learning-to-learn.md"
    assert drift.formula() in page.read_text()


def test_the_preset_has_the_numbers_that_were_evolved():
    learned, tuned = kept("evolve-ppo", "evolved", "tuned"), presets.load("ppo-tuned")
    assert all(same_number(tuned, learned, name) for name in evolve_ppo.PLAIN)


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_a_preset_of_values_is_its_default_with_the_evolved_numbers(name):
    setting = evolve_values.SETTINGS[name]
    learned, preset = kept("evolve-values", name), presets.load(f"{name}-tuned")
    assert all(same_number(preset, learned, number) for number in setting.evolve)
    fields = {number.split(".")[0] for number in setting.evolve}
    same = {field: getattr(setting.default, field) for field in fields}
    assert preset.replace(num_evaluations=0, **same) == setting.default


@pytest.mark.parametrize("name", evolve_values.SETTINGS)
def test_every_task_of_values_can_be_trained_on_and_none_is_in_both_lists(name):
    setting = evolve_values.SETTINGS[name]
    training = [task for task, _ in setting.training]
    for task in [*training, *setting.unseen]:
        purerl.make_train(setting.default.replace(**task))
    assert not [task for task in setting.unseen if task in training]
    Genome(setting.default, resolve_env(setting.default), setting.evolve)


@pytest.mark.parametrize("name", evolve_ppo.TASKS)
def test_no_task_of_a_judgement_is_one_of_the_training(name):
    trained = [change for change, _ in evolve_ppo.WIDE]
    for change in evolve_ppo.TASKS[name]:
        resolve_env(evolve_ppo.default().replace(**change))
        assert change not in trained
