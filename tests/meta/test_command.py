"""`purerl evolve`: presets, the dry run, going on, mistakes."""

import json

import pytest

import purerl
from purerl import losses
from purerl.acting.environment import resolve_env
from purerl.cli import main
from purerl.meta import training as presets
from purerl.meta.genome import Genome
from purerl.meta.strategy import read_strategy
from purerl.meta.training import EvolutionSetup, EvolveOptions

from .conftest import EVOLVED, LANES, SEGMENT, STRATEGY

TINY = [
    *("--total-timesteps", "640", "--num-envs", "2", "--num-steps", "16"),
    *("--num-epochs", "2", "--num-minibatches", "2", "--hidden-sizes", "8"),
    *("--policy-loss", "DPODrift(alpha=2.0, beta=0.6)"),
    *("--num-evaluations", "3", "--eval-episodes", "2", "--eval-max-steps", "20"),
    *("--eval-share", "1.0"),
]
EVOLVE = [
    *("evolve", "--evolve", EVOLVED, "--strategy", STRATEGY, "--population", "6"),
    *("--rollouts", "2", "--seed", "3", "--lanes", str(LANES)),
    *("--segment-updates", str(SEGMENT), "--no-progress"),
]
# Generations, agents a generation, numbers that are evolved.
PUBLISHED = {
    "value-loss-cartpole": (1024, 512, 4353),
    "value-loss-cartpole-demo": (512, 256, 4353),
    "drift-ant-like-lpo": (1025, 32, 1152),
    "drift-ant-like-lpo-ppo": (1025, 32, 1152),
    "dpo-cartpole-small": (10, 32, 2),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("command") / "out"
    status = main([*EVOLVE, *TINY, "--generations", "2", "--out", str(path)])
    assert status == 0
    return path


@pytest.mark.slow(optimised=False)
def test_the_command_is_the_function_and_writes_what_it_promises(folder, whole):
    result = purerl.load_evolution(folder)
    assert result.history["fitness"].tolist() == whole.history["fitness"][:2].tolist()
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        *("config.yaml", "manifest.json", "learned.yaml", "policy_loss.npz"),
        *("evolution.png", "policy_loss.png", "summary.json", "checkpoints"),
    }
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["agents"] == 24 and summary["env_steps"] == 24 * 640


def test_every_preset_is_here():
    assert set(presets.preset_names()) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_settings(name):
    generations, agents, numbers = PUBLISHED[name]
    values = presets.load_preset(name)
    config = values["config"]
    assert values["generations"] == generations
    assert values["population"] * values["rollouts"] == agents
    if config.env.startswith("brax"):  # its environment takes seconds to make
        config = config.replace(env="CartPole-v1", env_kwargs={}, policy="auto")
    genome = Genome(config, resolve_env(config), values["evolve"])
    assert genome.size == numbers
    if numbers > 2:
        assert not genome.start().any()  # published means start at zero


def test_a_preset_is_a_whole_evolution():
    values = presets.load_preset("value-loss-cartpole")
    setup = EvolutionSetup(EvolveOptions(**values))
    assert setup.settings["strategy"]["beta1"] == 0.99
    assert setup.asked.fitness == "training_curve"
    assert setup.runs == 512
    # 1952 updates of 4 x 64 steps each: 500,000 rounded down to whole updates.
    assert setup.steps == 512 * 1953 * 256
    assert setup.bounds[0].plan.evaluate_after == ()
    assert read_strategy("open-es-lpo").shaping == "z_score"


def test_the_drift_of_ant_is_named_for_what_it_is_and_takes_what_can_be_taken():
    ant = presets.load_preset("drift-ant-like-lpo")["config"]
    ppo = presets.load_preset("drift-ant-like-lpo-ppo")["config"]
    assert isinstance(ant.policy_loss, losses.MLPDrift)
    assert ppo.policy_loss.base_clip == 0.2
    assert ppo.replace(policy_loss=None) == ant.replace(policy_loss=None)
    # 21 times 9 updates, as many as the published script makes.
    assert ant.steps_per_update == 1024 * 32 * 5
    assert ant.total_timesteps == 21 * 9 * ant.steps_per_update
    assert (ant.activation, ant.optimiser.eps) == ("swish", 1e-8)
    assert ant.max_grad_norm >= 1e6  # the gradients of networks never come near it


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["evolve"], "evolve must name at least one field"),
        (["evolve", "--evolve", "value_los"], "Did you mean 'value_loss'"),
        (
            ["evolve", "--preset", "value-loss-cartpole", "--algorithm", "dqn"],
            "is a whole evolution; leave --algorithm out",
        ),
        (
            ["train", "--value-loss", "nowhere.npz"],
            "cannot read the loss 'nowhere.npz'",
        ),
    ],
)
def test_mistakes_print_one_sentence_and_exit_with_2(words, fragment, capsys):
    assert main(words) == 2
    assert fragment in capsys.readouterr().err
